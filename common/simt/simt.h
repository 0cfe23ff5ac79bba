// The simulator as host code sees it: device memory, launches, options, findings. Kernels see cuda.h instead.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace simt {

// ---- options ----

enum class AsyncMode { late, eager, random };  // when asynchronous copies land
enum class Device { h100, rtx3090 };           // how much of a launch it holds at once: compute capabilities 9.0 and 8.6

struct Options {
  std::uint64_t seed = 1;  // of the order in which blocks, warps and lanes run
  AsyncMode async_mode = AsyncMode::late;
  int workers = 0;        // OS threads; 0: one per core
  bool races = true;      // look for them
  bool counters = false;  // count what Nsight Compute counts: about twice as slow
  bool trace = false;     // note what warp 0 of block 0 does
  Device device = Device::h100;
};

void configure(const Options& options);
const Options& options();

std::size_t shared_bytes_of_block();  // that the device has

// ---- the machine: limits of compute capability 9.0 ----

inline constexpr int warp_size = 32;
inline constexpr unsigned max_threads_per_block = 1024;
inline constexpr std::size_t max_shared_bytes = 232448;  // 227 KiB

// For which threads an atomic, a volatile access or a fence counts: those of its block, of the device, or all. A plain access
// is whole for its own thread alone.
enum class Scope : std::uint8_t { thread, block, device, system };

// ---- places ----

std::string place_of(const std::source_location& where);  // "steps/01_naive_mha/02_row_per_thread.cuh:31"

// ---- device memory ----

// Memory for kernels, aligned to 256 bytes, between red zones of 4 KiB. Reports call it by its name. Null when the machine
// has no room for it.
void* allocate(const std::string& name, std::size_t bytes);
void release(void* pointer);
inline constexpr std::size_t memory_share = 10;  // allocate() hands out one byte of so many that the machine has
std::size_t memory_available();                  // bytes that allocate() could still hand out

// From now on the bytes count as written by the host / as never written. The range must lie within one allocation.
void mark_written(void* pointer, std::size_t bytes);
void mark_unwritten(void* pointer, std::size_t bytes);

// How many of the bytes, from the first on, were written by the host or by a kernel. They must lie within one allocation.
std::size_t written_bytes(const void* pointer, std::size_t bytes);

// From now on, host code in a kernel's source file that reads or writes device memory ends the program, as it does where the
// memory is on a GPU: stderr says what and where, and the exit status is 1.
void check_host_accesses();

// The red zones around an allocation hold what they held when it was made. (Stores there are findings too; this also sees
// those that no hook saw.)
bool red_zones_intact(const void* pointer);

// ---- launches ----

struct LaunchError {
  std::string text;  // "invalid configuration: 2048 threads in a block, at most 1024"
};

using Function = void (*)();  // any kernel, its parameters forgotten

struct Launch {
  Function kernel;
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes;
  const void* params;  // the kernel's arguments, packed
  std::size_t params_bytes;
  void (*call)(Function kernel, const void* params);  // calls the kernel once, for one thread
  std::size_t registers = 0;                          // of a thread, where known: how many blocks fit depends on it
  dim3 cluster = {};                                  // blocks of a cluster: each may wait for the others
  bool dependent = false;                             // may begin before the launch before has ended, if the device lets it
};

// Runs the kernel to its end. Throws LaunchError for a configuration that no GPU would accept; faults of the kernel become
// findings. After a fault that leaves nothing sensible to go on with (a deadlock, a wild pointer) the launch stops.
void launch(const Launch& launch);

// The host waits: all launches have ended before what follows. Whoever marks or releases memory has waited, too.
void await_launches();

// ---- counters ----

// Plain loads and stores of device and of shared memory; cp.async.ca, which goes through L1, and cp.async.cg, which does not;
// ldmatrix and stmatrix; red, an atomic on device memory without a result.
enum class Form { global, shared, copy_through_l1, copy_past_l1, matrix, reduction };

// The accesses of one line of the source, of one kind. A request is one access by the lanes of one warp that make it together.
struct LineCounters {
  std::string where;  // "steps/01_naive_mha/02_row_per_thread.cuh:41"
  Form form = Form::global;
  bool store = false;                  // or load
  unsigned bytes = 0;                  // that each lane moves
  unsigned sites = 0;                  // accesses of that kind that the compiler made of the line
  std::uint64_t instructions = 0;      // of warps
  std::uint64_t requests = 0;          // the same, without copies that read nothing
  std::uint64_t sectors = 0;           // of 32 bytes, of device memory
  std::uint64_t wavefronts = 0;        // of shared memory
  std::uint64_t wavefronts_ideal = 0;  // had no two words lain in one bank
};

// One launch.
struct KernelCounters {
  std::string kernel;
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  std::uint64_t barriers = 0;             // __syncthreads() by warps
  std::uint64_t shuffles = 0;             // by warps
  std::uint64_t tensor_instructions = 0;  // mma.sync, by warps
  std::uint64_t bytes_loaded = 0;         // device memory in whole sectors, each counted once
  std::uint64_t bytes_stored = 0;
  std::vector<LineCounters> lines;  // in the order of the source
};

std::vector<KernelCounters> take_counters();  // of the launches since the last call that ran with Options::counters

// ---- trace ----

// Where the lanes of one instruction access one of the memories.
struct TracedAddresses {
  std::string first;                                 // what lies at the first lane's: "q" (a buffer), "Smem::k_tile[3][5]"
  std::vector<std::optional<std::int64_t>> offsets;  // by lane, in bytes: from the start of that buffer, or of shared memory
};

// One instruction of the traced warp.
struct TraceEvent {
  std::string op;                   // "ld.shared", "mma.m16n8k16.f16": as PTX names it, or CUDA
  std::string where;                // "steps/01_naive_mha/02_row_per_thread.cuh:41"
  std::uint32_t lanes = 0;          // that make it, as a mask
  std::optional<int> operand = {};  // of cp.async.wait_group: how many groups may stay under way; of bar: its number
  unsigned bytes = 0;               // that each lane moves
  TracedAddresses global = {};      // without offsets if it accesses none
  std::uint64_t sectors = 0;        // of device memory
  TracedAddresses shared = {};      // of ldmatrix and stmatrix: the rows, by the lanes that give them
  std::uint64_t wavefronts = 0;     // of shared memory
  std::uint64_t wavefronts_ideal = 0;
};

// Warp 0 of block 0 of one launch.
struct KernelTrace {
  std::string kernel;
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  std::vector<TraceEvent> events;  // in the order in which the warp made them
};

std::vector<KernelTrace> take_traces();  // of the launches since the last call that ran with Options::trace

// ---- findings ----

struct Finding {
  std::string kind;
  std::string kernel;
  std::string where;
  std::string text;
  std::uint64_t count = 1;
};

std::vector<Finding> take_findings();

}  // namespace simt

#pragma GCC visibility pop
