// The machine: a launch is blocks, a block is warps, a warp is lanes, and a lane is a fiber that runs the kernel for one
// thread.
//
// A worker (an OS thread) runs one cluster at a time, to its end: mostly one block (cluster.h). Within each block it goes round
// the warps in a seeded order and lets each lane run until it must wait: at a block barrier, or in a warp call (shuffle, vote,
// __syncwarp) for the other lanes of its mask. So a lane runs far ahead of its neighbours, in an order that changes with the
// seed: legal on a GPU, and fatal for code that relies on luck.
//
// While it counts, the engine also finds out which accesses of the lanes are one request. A lane keeps a list of what it
// accessed. When every lane of the warp has something in its list or can make no further access, those whose next one is at the
// lowest place in the code make it together. So the counts are those of lanes that go in lock-step, where one that left a loop
// early stands at a higher place and waits for the others, as on the hardware.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "common/simt/async.h"
#include "common/simt/counters.h"
#include "common/simt/dependent.h"
#include "common/simt/fiber.h"
#include "common/simt/mbarrier.h"
#include "common/simt/memory.h"
#include "common/simt/mma.h"
#include "common/simt/proxies.h"
#include "common/simt/races.h"
#include "common/simt/rows.h"
#include "common/simt/simt.h"
#include "common/simt/trace.h"

namespace simt {

struct Lane;
struct Warp;
class Block;
class Cluster;

inline std::uint64_t next_random(std::uint64_t& state) {  // SplitMix64
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A lane's part in a barrier of the block: in __syncthreads(), which is number 0, or in one of the barriers 1 … 15; or in that
// of the cluster.
struct BarrierCall {
  static constexpr int number_of_cluster = std::numeric_limits<int>::min();  // of none that a kernel can name

  const char* name;  // of the instruction: bar.sync and barrier.sync wait, bar.arrive does not
  int id = 0;
  int threads = 0;  // that it takes to open the barrier; of number 0: all that have not exited
  std::source_location where;
  const void* pc = nullptr;
  bool of_cluster() const { return id == number_of_cluster; }
  std::string describe() const;  // "bar.sync 1, 64"
};

// A lane's part in a warp call. It lives on the lane's stack while the lane waits for the others of the mask.
struct WarpCall {
  const char* name;  // of the intrinsic: calls match by name and mask
  std::uint32_t mask;
  std::source_location where;
  const void* pc;  // of the call, where it is known
  // Called once when every lane of the mask has arrived; calls[l] is null for lanes outside it. Fills in the results.
  void (*resolve)(Block& block, Warp& warp, WarpCall* const calls[warp_size]);
  const void* aligned_at = nullptr;      // of .aligned instructions: where in the code; all lanes must make the call there
  WarpCall* next = nullptr;              // in which the lane waits after this one, without going on in between
  int bytes = 0;                         // of a shuffle: calls match by them, too
  bool spares_exited = false;            // lanes of the mask that have exited, or never existed, need not make the call
  const BarrierCall* barrier = nullptr;  // 1 … 15, to which the warp comes: calls match by its number, too
  bool matches(const WarpCall& other) const;
  std::string describe() const;  // "__shfl_sync(0xffffffff)"
};

struct Lane {
  enum class State { runnable, too_far_ahead, in_barrier, in_warp_call, at_mbarrier, exited };

  State state = State::exited;
  bool yielded = false;   // suspended itself although it could go on: an atomic or a volatile access
  bool fresh = true;      // what it last found there was new to it; who finds the same again and again only waits
  bool stored = false;    // since the engine last looked
  bool counting = false;  // keeps a list of its accesses
  bool waited = false;    // for the launches before a dependent one, or has seen that another thread did
  bool traced = false;    // and of commits, waits and barriers
  int index = 0;          // in the block
  uint3 thread = {};      // threadIdx
  std::uintptr_t stack_low = 0;
  std::uintptr_t arena_low = 0;  // of the block's shared memory, red zones included, and its shadow
  std::uint8_t* arena_shadow = nullptr;
  Marker marker;  // of the device memory that it touches
  Block* block = nullptr;
  WarpCall* call = nullptr;                 // while in_warp_call
  BarrierCall barrier = {};                 // while in_barrier: but for __syncthreads(), when its whole warp has come
  MbarrierCall mbarrier;                    // while at_mbarrier
  std::uint32_t cluster_arrivals = 0;       // at the barrier of the cluster
  std::uint32_t cluster_waits = 0;          // for it to open
  PendingAccesses accesses;                 // while counting
  std::array<std::uint64_t, 8> found = {};  // the latest atomic and volatile accesses: places, addresses and values, hashed
  unsigned found_next = 0;                  // the oldest of these
  const void* polls_pc = nullptr;           // the last one
  std::uintptr_t polls = 0;
  MultiplyQueue queue;    // of mma.sync that the lane came to (mma.h)
  WarpCall product_call;  // the first of them, while the lane waits for it
  WarpCall* after_products = nullptr;
  Fiber fiber;

  int warp() const { return index / warp_size; }
  int lane() const { return index % warp_size; }
  bool is_ahead() const { return !accesses.empty(); }  // of what its warp has issued
  void wait();                                         // suspends until the engine makes the lane runnable again
  void yield();
  bool waits_for_full_barrier() const { return state == State::in_barrier && barrier.id == 0; }
  void note_found(std::uintptr_t address, std::uint64_t value, const void* pc);  // by an atomic or volatile access
  bool got_further() const { return state != State::too_far_ahead && (!yielded || fresh); }
};

struct Warp {
  int index = 0;
  Lane* lanes = nullptr;  // the first
  int count = 0;          // 32, or fewer in the last warp of a block
  Trace* trace = nullptr;
};

// What all workers share during one launch.
struct Run {
  bool runs_again() const { return needs_order || needs_proxies; }
  Run(const Launch& launch_, bool ordered_, bool proxies_, const EarlierLaunches* earlier_);

  const Launch& launch;
  const bool ordered;                    // one worker: flags in device memory change in a seeded order, races are named exactly
  const bool races;                      // look for them
  const bool proxies;                    // there are bulk copies: look for what they cannot see
  const EarlierLaunches* const earlier;  // of a dependent launch; null: all have ended, or nobody looks
  const bool tracing;                    // the first warp of the first block
  const bool counting;                   // what is traced, too
  std::uint32_t first_mark;              // for Marks, unless ordered
  DeviceRaces device_races;              // if ordered
  Flags device_flags;                    // if ordered
  Counters counters;                     // guarded by mutex
  Trace trace;                           // of one warp: only the worker that runs it comes here
  std::vector<std::uint64_t> order;      // of the blocks; those of a cluster follow each other
  std::atomic<std::size_t> next{0};      // of the clusters
  std::atomic<bool> stopped{false};      // a fault after which the launch cannot go on
  std::atomic<bool> needs_order{false};  // a flag in device memory, or what may be a race there, was seen: run again, ordered
  std::atomic<bool> needs_proxies{false};  // a bulk copy was seen: run again
  std::atomic<bool> waited{false};         // of a dependent launch: a thread has waited for the launch before
  std::vector<Block*> open;                // if ordered: the blocks that have begun and not ended
  std::mutex mutex;
  std::string printed;                                // by the kernel; guarded by mutex
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
  // Spinning: each lane that can run does no more than read what it has read before. Waiting: none can run. Stuck: the launch
  // was stopped.
  enum class Status { progressed, spinning, waiting, done, stuck };

  void begin(Run& run, std::uint64_t linear_index, Counters& counters, Cluster& cluster, int rank);
  Status round();     // lets every lane that can run do so once
  void issue_rest();  // of a launch that was stopped

  Run& run() { return *run_; }
  Cluster& cluster() { return *cluster_; }
  const Cluster& cluster() const { return *cluster_; }
  int rank() const { return rank_; }  // in the cluster
  std::size_t threads() const { return threads_; }
  Lane& lane(std::size_t index) { return lanes_[index]; }
  const Lane& lane(std::size_t index) const { return lanes_[index]; }
  bool ended() const { return exited_ == threads_; }
  SharedArena& arena() { return arena_; }
  const SharedArena& arena() const { return arena_; }
  Order& order() { return order_; }
  SharedRaces& races() { return races_; }
  AsyncOps& async_ops() { return async_ops_; }
  Mbarriers& mbarriers() { return mbarriers_; }
  Proxies& proxies() { return proxies_; }
  Counters& counters() { return *counters_; }
  bool coin() { return next_random(random_) >> 63; }  // thrown by the seed
  const StackPool& stacks() const { return stacks_; }
  std::uint32_t linear_index() const { return linear_index_; }
  bool yielded() const { return yielded_; }                 // in the last round: a lane made an atomic or volatile access
  bool stored() const { return stored_; }                   // a lane stored
  std::vector<std::string> spinning() const;                // who reads what, and where
  const void* spins_at() const;                             // one of these places
  const void* shared_type() const { return shared_type_; }  // &type_anchor<Smem>; null before the kernel asked for it
  void set_shared_type(const void* anchor) { shared_type_ = anchor; }
  // At __syncthreads(), which __syncthreads_or() is, too: returns whether any thread's vote was true.
  bool arrive(Lane& lane, bool vote, const std::source_location& where, const void* pc);
  void arrive_named(Lane& lane, const BarrierCall& call);
  void arrive_named(Warp& warp, WarpCall* const calls[warp_size]);  // of all its lanes that have not exited
  void full_barrier();                                              // what __syncthreads() orders
  [[noreturn]] void stop(Lane& lane);                               // ends the launch from within a lane
  [[noreturn]] void run_again(Lane& lane);                          // the same, for the launch to run again, in order
  [[noreturn]] void run_again_with_proxies(Lane& lane);
  std::string describe(const Lane& lane) const;
  std::string describe() const;  // "block (1, 0, 0)"

 private:
  struct WarpRun {
    bool ran = false;    // a lane was resumed
    bool moved = false;  // a lane got further than a spin
  };
  struct NamedBarrier {
    int threads = 0;                     // that it takes; 0: nobody has come
    int arrived = 0;                     // 32 for each warp, by bar.sync, barrier.sync or bar.arrive
    std::uint32_t warps = 0;             // that have arrived
    std::vector<std::uint32_t> waiting;  // by bar.sync or barrier.sync
    Meeting meeting;                     // of all who arrived
  };
  WarpRun run_warp(Warp& warp);
  bool resolve_calls(Warp& warp);
  bool issue(Warp& warp);
  void check_aligned(const Warp& warp, WarpCall* const calls[warp_size]);
  bool waits_for_yielded(const Warp& warp) const;
  void refuse(const Lane& lane, const BarrierCall& call, const std::string& why);
  void report_skipped(const Lane& waiting);
  bool release_barrier();
  template <class T>
  void shuffle(std::vector<T>& items);

  Run* run_ = nullptr;
  Cluster* cluster_ = nullptr;
  int rank_ = 0;
  Counters* counters_ = nullptr;
  std::uint32_t linear_index_ = 0;
  std::uint64_t random_ = 0;
  std::unique_ptr<Lane[]> lanes_;
  std::size_t lane_count_ = 0;
  std::vector<Warp> warps_;
  std::vector<int> warp_order_;
  std::size_t threads_ = 0;
  std::size_t exited_ = 0;
  std::size_t in_barrier_ = 0;
  bool votes_ = false;  // of those in the barrier, one is true
  bool voted_ = false;  // and when it last opened
  bool yielded_ = false;
  bool stored_ = false;
  const void* shared_type_ = nullptr;
  StackPool stacks_;
  SharedArena arena_;
  Order order_;
  SharedRaces races_;
  AsyncOps async_ops_;
  Mbarriers mbarriers_;
  Proxies proxies_;
  std::array<std::vector<PendingAccess>, 2> requests_;  // of issue(): through one pointer, lanes may reach both memories
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

inline std::size_t volume(dim3 size) { return std::size_t{size.x} * size.y * size.z; }
uint3 position(dim3 size, std::uint64_t linear);  // of an element of a grid or block, which count in x first
std::string to_string(uint3 v);                   // "(1, 0, 0)"
bool same_place(const std::source_location& a, const std::source_location& b);
std::string ranges(std::uint32_t lanes);  // "0-15, 17", for a set of lanes
std::string describe_block(const Launch& launch, std::uint64_t block);
// "block (1, 0, 0), warp 3, lane 5 (thread (101, 0, 0))", from the indices of the block in the grid and the thread in the block
std::string describe_thread(const Launch& launch, std::uint64_t block, unsigned thread);

}  // namespace simt
