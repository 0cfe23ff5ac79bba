// The device as host code sees it: memory, properties, time, findings. One header, two builds: runtime_gpu.cu on the CUDA
// runtime, runtime_sim.cpp on the simulator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace runtime {

struct Properties {
  std::string backend;         // "gpu" or "sim"
  std::string name;            // "NVIDIA H200", "FlashSteps simulator"
  int compute_capability = 0;  // 90 for 9.0; 0 for the simulator
  int multiprocessors = 0;
  std::size_t shared_bytes_per_block = 0;  // the most one block may ask for
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  int sm_clock_mhz = 0;  // the maximum; 0 for the simulator
  std::string driver;    // "13.0"; empty for the simulator
  std::string toolkit;   // of the build
};

const Properties& properties();  // throws Error when there is no device

// No device, a failed call, a failed launch. what() is one or two lines with the call's text and place.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// what() says how much was asked for, for what, and how much there is.
struct OutOfMemory : Error {
  using Error::Error;
};

// Bytes written over an output before each launch. As fp32, and both halves as fp16 and as bf16, it is a NaN, so an element
// that a kernel failed to write shows; and a bit pattern that no kernel computes.
inline constexpr std::uint32_t poison_word = 0x7fed7fedu;

// Owns device memory, aligned to 256 bytes, between two guard zones. Movable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::string name, std::size_t bytes);  // the simulator's reports use the name
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

  void upload(const void* host, std::size_t bytes);  // to the start of the buffer
  void download(void* host, std::size_t bytes) const;
  void poison();               // fills with poison_word; to the simulator the memory then counts as never written
  bool guards_intact() const;  // nothing was written before or after the buffer

 private:
  std::string name_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

void synchronize();  // waits for all launches; throws Error if one failed

// Time between two points of the device's work, in milliseconds. Only on a GPU: the simulator has no time and throws Error.
class Timer {
 public:
  Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();
  void start();
  void stop();
  double milliseconds() const;  // waits for the work between the two to end

 private:
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

// Launches that are recorded once, and later sent to the GPU together: between them, it never waits for the host. Only on a
// GPU, as the Timer.
class Graph {
 public:
  explicit Graph(const std::function<void()>& launches);  // recorded, not run; throws Error for what cannot be recorded
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();
  void launch() const;

 private:
  void* executable_ = nullptr;
};

// ---- the simulator's side; on a GPU there are never findings, and configure() throws Error ----

// When asynchronous copies land: at the wait that must see them, at once, or at a seeded random moment.
enum class AsyncMode { late, eager, random };

// Which GPU it is as large as: how many blocks it holds at once, and how much shared memory a block may have.
enum class SimDevice { h100, rtx3090 };

struct SimOptions {
  std::uint64_t seed = 1;  // of the order in which blocks, warps and lanes run
  AsyncMode async_mode = AsyncMode::late;
  int workers = 0;    // OS threads that run blocks; 0: one per core
  bool races = true;  // look for them
  SimDevice device = SimDevice::h100;
};

void configure(const SimOptions& options);

// Does `work` with the launches in it in another order: under the seed after the one that is set. On a GPU, whose order no seed
// decides, it does it as it is.
void in_another_order(const std::function<void()>& work);

// A fault that the simulator saw: out of bounds, uninitialised, misaligned, deadlock …
struct Finding {
  std::string kind;  // "out-of-bounds write"
  std::string kernel;
  std::string where;        // "steps/01_naive_mha/02_row_per_thread.cuh:31"
  std::string text;         // the whole report, lines separated by '\n', with the seed that replays it
  std::uint64_t count = 1;  // how often it was seen at this place
};

std::vector<Finding> take_findings();  // those since the last call

// Whether launches from now on count what Nsight Compute counts; several times slower. Throws Error on a GPU.
void set_counting(bool on);

enum class Space { global, shared };
// Plain loads and stores; cp.async from global to shared memory, through L1 (.ca) or past it (.cg); ldmatrix; stmatrix; red.
enum class Op { load, store, copy_through_l1, copy_past_l1, matrix_load, matrix_store, reduction };

// The accesses of one line of the source, of one kind. A request is one access, made together by lanes of one warp.
struct LineCounters {
  std::string where;  // "steps/01_naive_mha/02_row_per_thread.cuh:41"
  Space space = Space::global;
  Op op = Op::load;
  unsigned bytes = 0;                  // that each lane moves
  unsigned sites = 0;                  // accesses of this kind that the line holds
  std::uint64_t instructions = 0;      // of warps
  std::uint64_t requests = 0;          // the same, without copies that read nothing
  std::uint64_t sectors = 0;           // of 32 bytes, of global memory
  std::uint64_t wavefronts = 0;        // passes through the banks of shared memory
  std::uint64_t wavefronts_ideal = 0;  // without bank conflicts
};

// What one launch did.
struct KernelCounters {
  std::string kernel;  // with its namespace
  std::array<unsigned, 3> grid = {}, block = {};
  std::size_t shared_bytes = 0;           // of a block
  std::uint64_t barriers = 0;             // by warps
  std::uint64_t shuffles = 0;             // by warps
  std::uint64_t tensor_instructions = 0;  // mma.sync, by warps
  std::uint64_t bytes_loaded = 0;         // global memory, in whole sectors, each counted once
  std::uint64_t bytes_stored = 0;
  std::vector<LineCounters> lines;  // in the order of the source
};

std::vector<KernelCounters> take_counters();  // those since the last call, in launch order

// Whether warp 0 of block 0 of launches from now on is traced; as slow as counting. Throws Error on a GPU.
void set_tracing(bool on);

// Where the lanes of one instruction access one of the memories.
struct TracedAddresses {
  std::string first;                                 // what lies at the first lane's: a buffer, "Smem::k_tile[3][5]"
  std::vector<std::optional<std::int64_t>> offsets;  // by lane, in bytes: from the start of that buffer, or of shared memory
};

// One instruction of a traced warp.
struct TraceEvent {
  std::string op;              // "ld.shared", "mma.m16n8k16.f16": as PTX names it, or CUDA
  std::string where;           // "steps/01_naive_mha/02_row_per_thread.cuh:41"
  std::uint32_t lanes = 0;     // that make it, as a mask
  std::optional<int> operand;  // of cp.async.wait_group: how many groups may stay under way; of bar: its number
  unsigned bytes = 0;          // that each lane moves
  TracedAddresses global;      // without offsets if it accesses none
  std::uint64_t sectors = 0;
  TracedAddresses shared;  // of ldmatrix and stmatrix: the rows, by the lanes that give them
  std::uint64_t wavefronts = 0;
  std::uint64_t wavefronts_ideal = 0;
};

struct KernelTrace {
  std::string kernel;  // with its namespace
  std::array<unsigned, 3> grid = {}, block = {};
  std::size_t shared_bytes = 0;    // of a block
  std::vector<TraceEvent> events;  // in the order in which the warp made them
};

std::vector<KernelTrace> take_traces();  // those since the last call, in launch order

}  // namespace runtime
