// The machine: a launch is blocks, a block is warps, a warp is lanes, and a lane is a fiber that runs the kernel for one
// thread.
//
// A worker (an OS thread) runs one block at a time, to its end. Within the block it goes round the warps in a seeded order and
// lets each lane run until it must wait: at a block barrier, or in a warp call (shuffle, vote, __syncwarp) for the other
// lanes of its mask. So a lane runs far ahead of its neighbours, in an order that changes with the seed: legal on a GPU, and
// fatal for code that relies on luck.
//
// While it counts, a lane also stops before every access to device or shared memory. When all lanes of the warp have stopped,
// those at the lowest place in the code go on, together: their accesses are one request. Lanes that left a loop early stand
// at a higher place and wait there for the others, as on the hardware.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "common/simt/async.h"
#include "common/simt/counters.h"
#include "common/simt/fiber.h"
#include "common/simt/memory.h"
#include "common/simt/races.h"
#include "common/simt/simt.h"
#include "common/simt/trace.h"

namespace simt {

struct Lane;
struct Warp;
class Block;

std::uint64_t next_random(std::uint64_t& state);  // SplitMix64

// A lane's part in a warp call. It lives on the lane's stack while the lane waits for the others of the mask.
struct WarpCall {
  const char* name;  // of the intrinsic: calls match by name and mask
  std::uint32_t mask;
  std::source_location where;
  const void* pc;  // of the call, where it is known
  // Called once when every lane of the mask has arrived; calls[l] is null for lanes outside it. Fills in the results.
  void (*resolve)(Block& block, Warp& warp, WarpCall* const calls[warp_size]);
  const void* aligned_at = nullptr;  // of .aligned instructions: where in the code; all lanes must make the call there
};

// A lane's part in one of the barriers 1 … 15.
struct BarrierCall {
  const char* name;  // of the instruction: bar.sync and barrier.sync wait, bar.arrive does not
  int id = 0;
  int threads = 0;  // that it takes to open the barrier
  std::source_location where;
  const void* pc = nullptr;
};

struct Lane {
  enum class State { runnable, in_access, in_barrier, in_named_barrier, in_warp_call, exited };

  State state = State::exited;
  bool yielded = false;   // suspended itself although it could go on: an atomic or a volatile access
  bool counting = false;  // stops before every access
  bool traced = false;    // and before commits, waits and barriers
  int index = 0;          // in the block
  uint3 thread = {};      // threadIdx
  std::uintptr_t stack_low = 0;
  std::uintptr_t arena_low = 0;  // of the block's shared memory, red zones included, and its shadow
  std::uint8_t* arena_shadow = nullptr;
  Marker marker;  // of the device memory that it touches
  Block* block = nullptr;
  WarpCall* call = nullptr;            // while in_warp_call
  std::source_location barrier_place;  // while in_barrier
  const void* barrier_pc = nullptr;
  BarrierCall named_barrier = {};  // while in_named_barrier
  PendingAccess access = {};       // while in_access
  Fiber fiber;

  int warp() const { return index / warp_size; }
  int lane() const { return index % warp_size; }
  void wait();  // suspends until the engine makes the lane runnable again
  void yield();
};

struct Warp {
  int index = 0;
  Lane* lanes = nullptr;  // the first
  int count = 0;          // 32, or fewer in the last warp of a block
  Trace* trace = nullptr;
};

// What all workers share during one launch.
struct Run {
  Run(const Launch& launch_, bool ordered_);

  const Launch& launch;
  const bool ordered;                    // one worker: flags in device memory change in a seeded order, races are named exactly
  const bool races;                      // look for them
  const bool tracing;                    // the first warp of the first block
  const bool counting;                   // what is traced, too; in lock-step
  std::uint32_t first_mark;              // for Marks, unless ordered
  DeviceRaces device_races;              // if ordered
  Flags device_flags;                    // if ordered
  Counters counters;                     // guarded by mutex
  Trace trace;                           // of one warp: only the worker that runs it comes here
  std::vector<std::uint64_t> order;      // of the blocks
  std::atomic<std::size_t> next{0};      // into order
  std::atomic<bool> stopped{false};      // a fault after which the launch cannot go on
  std::atomic<bool> needs_order{false};  // a flag in device memory, or what may be a race there, was seen: run again, ordered
  std::mutex mutex;
  std::vector<Finding> findings;                      // guarded by mutex
  std::map<std::string, std::size_t> known_findings;  // their indices, by what makes them distinct; guarded by mutex

  // Counts a finding that was seen before: of the same kind, at the same place (and, of a race, with the same other place).
  // The text is made only for the first: finding names takes milliseconds, and a fault may happen a million times.
  using MakeText = std::function<std::string()>;
  // `where` is the place of `pc`, if that is known; else `pc` is null.
  void report(std::string kind, std::string where, const void* pc, const MakeText& text, const std::string& other_place = "");
};

class Block {
 public:
  static constexpr int named_barriers = 16;
  enum class Status { progressed, spinning, done, stuck };

  void begin(Run& run, std::uint64_t linear_index, Counters& counters);
  Status round();  // lets every lane that can run do so once

  Run& run() { return *run_; }
  SharedArena& arena() { return arena_; }
  Order& order() { return order_; }
  SharedRaces& races() { return races_; }
  AsyncCopies& copies() { return copies_; }
  Counters& counters() { return *counters_; }
  bool coin() { return next_random(random_) >> 63; }  // thrown by the seed
  const StackPool& stacks() const { return stacks_; }
  std::uint32_t linear_index() const { return linear_index_; }
  void count_store() { ++stores_; }
  const void* shared_type() const { return shared_type_; }  // &type_anchor<Smem>; null before the kernel asked for it
  void set_shared_type(const void* anchor) { shared_type_ = anchor; }
  // At __syncthreads(), which __syncthreads_or() is, too: returns whether any thread's vote was true.
  bool arrive(Lane& lane, bool vote, const std::source_location& where, const void* pc);
  void arrive_named(Lane& lane, const BarrierCall& call);
  [[noreturn]] void stop(Lane& lane);       // ends the launch from within a lane
  [[noreturn]] void run_again(Lane& lane);  // the same, for the launch to run again, in order
  std::string describe(const Lane& lane) const;

 private:
  struct WarpRun {
    bool ran = false;    // a lane was resumed
    bool moved = false;  // a lane got further than a spin
  };
  WarpRun run_warp(Warp& warp);
  bool resolve_calls(Warp& warp);
  bool issue(Warp& warp);
  void check_aligned(const Warp& warp, WarpCall* const calls[warp_size]);
  bool release_barrier();
  void report_stuck();
  template <class T>
  void shuffle(std::vector<T>& items);

  Run* run_ = nullptr;
  Counters* counters_ = nullptr;
  std::uint32_t linear_index_ = 0;
  std::uint64_t random_ = 0;
  std::vector<Lane> lanes_{max_threads_per_block};
  std::vector<Warp> warps_;
  std::vector<int> warp_order_;
  std::size_t threads_ = 0;
  std::size_t exited_ = 0;
  std::size_t in_barrier_ = 0;
  bool votes_ = false;  // of those in the barrier, one is true
  bool voted_ = false;  // and when it last opened
  std::uint64_t stores_ = 0;
  const void* shared_type_ = nullptr;
  StackPool stacks_;
  SharedArena arena_;
  Order order_;
  SharedRaces races_;
  AsyncCopies copies_;
  std::array<std::vector<PendingAccess>, 2> requests_;  // of issue(): through one pointer, lanes may reach both memories
  struct NamedBarrier {
    int threads = 0;                     // that it takes; 0: nobody has come
    int arrived = 0;                     // by bar.sync, barrier.sync or bar.arrive
    std::vector<std::uint32_t> waiting;  // by bar.sync or barrier.sync
    Meeting meeting;                     // of all who arrived
  };
  std::array<NamedBarrier, named_barriers> named_barriers_;
};

// The lane that runs on this OS thread; null in host code.
extern constinit thread_local Lane* current_lane;

// Host code for as long as this lives: a report is made by code of the standard library, which is observed like a kernel where
// a kernel file happens to have instantiated it.
class Unobserved {
 public:
  Unobserved() : lane_(std::exchange(current_lane, nullptr)) {}
  ~Unobserved() { current_lane = lane_; }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;

 private:
  Lane* lane_;
};

// "block (1, 0, 0), warp 3, lane 5 (thread (101, 0, 0))", from the indices of the block in the grid and the thread in the block
std::string describe_thread(const Launch& launch, std::uint64_t block, unsigned thread);

}  // namespace simt
