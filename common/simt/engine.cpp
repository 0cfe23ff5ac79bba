#include "common/simt/engine.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "common/simt/access.h"
#include "common/simt/cluster.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"
#include "common/simt/symbols.h"

// What kernels see under these names; set before a lane runs.
constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace simt {

constinit thread_local Lane* current_lane = nullptr;

namespace {

Options current_options;
std::vector<Finding> all_findings;
std::vector<KernelCounters> all_counters;
std::vector<KernelTrace> all_traces;
unsigned traced_warp = 0;

// What a multiprocessor holds at once, and how many of them there are: NVIDIA's tables of compute capabilities.
struct Machine {
  const char* name;
  std::size_t multiprocessors, blocks, warps, registers, shared_bytes, shared_bytes_of_block, blocks_of_cluster;
};
const Machine& machine() {
  static constexpr Machine machines[] = {{"an H100", 132, 32, 64, 65536, 228 * 1024, max_shared_bytes, 8},
                                         {"an RTX 3090", 82, 16, 48, 65536, 100 * 1024, 99 * 1024, 1}};
  return machines[static_cast<int>(current_options.device)];
}

// So long may all blocks spin: a spin ends when somebody stores, and nobody does. The first is of rounds without any store.
constexpr int max_idle_rounds = 300000;
constexpr double max_idle_seconds = 2;
// In so many rounds with atomic or volatile accesses, some block ends. If not, it may wait for one that has not begun.
constexpr int max_rounds_alone = 256;

std::string to_string(uint3 v) {
  std::ostringstream text;
  text << '(' << v.x << ", " << v.y << ", " << v.z << ')';
  return text.str();
}

// Of element `linear` of a grid or block, which count in x first.
uint3 position(dim3 size, std::uint64_t linear) {
  return {static_cast<unsigned>(linear % size.x), static_cast<unsigned>(linear / size.x % size.y),
          static_cast<unsigned>(linear / size.x / size.y)};
}

// Of calls: mostly one string. Files that were compiled apart have their own.
bool same_name(const char* a, const char* b) { return a == b || std::string_view(a) == b; }

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::string_view(a.file_name()) == b.file_name());
}

}  // namespace

std::string ranges(std::uint32_t lanes) {
  std::ostringstream text;
  for (int first = 0; first < warp_size; ++first) {
    if (!(lanes >> first & 1)) continue;
    int last = first;
    while (last + 1 < warp_size && (lanes >> (last + 1) & 1)) ++last;
    if (text.tellp() > 0) text << ", ";
    text << first;
    if (last > first) text << '-' << last;
    first = last;
  }
  return text.str();
}

std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void configure(const Options& options) { current_options = options; }
const Options& options() { return current_options; }
std::size_t shared_bytes_of_block() { return machine().shared_bytes_of_block; }
std::vector<Finding> take_findings() { return std::exchange(all_findings, {}); }
std::vector<KernelCounters> take_counters() { return std::exchange(all_counters, {}); }
std::vector<KernelTrace> take_traces() { return std::exchange(all_traces, {}); }
void trace_warp(unsigned warp) { traced_warp = warp; }

// ---- lanes ----

bool WarpCall::matches(const WarpCall& other) const {
  return mask == other.mask && same_name(name, other.name) && bytes == other.bytes &&
         (barrier == nullptr || barrier->id == other.barrier->id);
}

std::string WarpCall::describe() const {
  if (barrier != nullptr) return barrier->describe();
  std::ostringstream text;
  text << name << (bytes == 8 ? " of 8 bytes" : "") << "(0x" << std::hex << mask << ')';
  return text.str();
}

std::string BarrierCall::describe() const {
  return of_cluster() || std::string_view(name) == "__syncthreads()"
             ? name
             : std::string(name) + ' ' + std::to_string(id) + ", " + std::to_string(threads);
}

void Lane::wait() {
  yielded = false;
  if (state != State::too_far_ahead) fresh = true;
  fiber.suspend();
}

void Lane::yield() {
  await_products(*this);
  await_issued(*this);
  yielded = true;
  fiber.suspend();
}

void Lane::note_found(std::uintptr_t address, std::uint64_t value, const void* pc) {
  std::uint64_t seed = reinterpret_cast<std::uintptr_t>(pc) ^ address << 20 ^ value * 0x9e3779b97f4a7c15u;
  const std::uint64_t mark = next_random(seed);
  polls_pc = pc;
  polls = address;
  fresh = std::find(found.begin(), found.end(), mark) == found.end();
  if (fresh) found[found_next++ % found.size()] = mark;
}

// ---- blocks ----

template <class T>
void Block::shuffle(std::vector<T>& items) {
  for (std::size_t i = items.size(); i > 1; --i) {
    const std::uint64_t pick = (next_random(random_) >> 32) * i >> 32;  // below i, without a division
    std::swap(items[i - 1], items[pick]);
  }
}

void Block::begin(Run& run, std::uint64_t linear_index, Counters& counters, Cluster& cluster, int rank) {
  const auto [block, shared_bytes] = std::pair(run.launch.block, run.launch.shared_bytes);
  run_ = &run;
  counters_ = &counters;
  cluster_ = &cluster;
  rank_ = rank;
  linear_index_ = static_cast<std::uint32_t>(linear_index);
  random_ = options().seed * 0x2545f4914f6cdd1du + linear_index;
  threads_ = std::size_t{block.x} * block.y * block.z;
  exited_ = in_barrier_ = 0;
  votes_ = false;
  shared_type_ = nullptr;
  stacks_.prepare(static_cast<int>(threads_));
  if (lane_count_ < threads_) {
    lanes_ = std::make_unique<Lane[]>(threads_);
    lane_count_ = threads_;
  }
  arena_.begin_block(shared_bytes);
  for (NamedBarrier& barrier : named_barriers_) barrier = {};
  order_.begin_block(linear_index_, threads_, run.ordered ? &run.device_flags : nullptr, &cluster.shared_flags());
  races_.reserve(shared_bytes);
  races_.forget();
  async_ops_.begin_block(threads_);
  mbarriers_.begin_block();
  proxies_.begin_block(run.proxies, shared_bytes, threads_);

  warps_.clear();
  warp_order_.clear();
  for (std::size_t first = 0; first < threads_; first += warp_size) {
    warp_order_.push_back(static_cast<int>(warps_.size()));
    warps_.push_back({static_cast<int>(warps_.size()), &lanes_[first],
                      static_cast<int>(std::min<std::size_t>(warp_size, threads_ - first))});
  }
  const bool traced = run.tracing && linear_index == 0;
  if (traced && traced_warp < warps_.size()) warps_[traced_warp].trace = &run.trace;
  for (unsigned i = 0; i < threads_; ++i) {
    Lane& lane = lanes_[i];
    lane.state = Lane::State::runnable;
    lane.fresh = true;
    lane.stored = false;
    lane.found = {};
    lane.index = static_cast<int>(i);
    lane.counting = run.counting;
    lane.traced = traced && i / warp_size == traced_warp;
    lane.thread = position(block, i);
    lane.stack_low = stacks_.low(lane.index);
    lane.marker = Marker(run.first_mark, linear_index, i);
    lane.arena_low = arena_.low();
    lane.arena_shadow = arena_.shadow(arena_.low());
    lane.block = this;
    lane.cluster_arrivals = lane.cluster_waits = 0;
    lane.queue.clear();
    lane.accesses.clear();
    lane.fiber.start(stacks_, lane.index, [this, &lane] {
      run_->launch.call(run_->launch.kernel, run_->launch.params);
      await_products(lane);
      await_issued(lane);
      async_ops_.end_lane(lane);
      lane.state = Lane::State::exited;
      lane.yielded = false;
      ++exited_;
      cluster_->exited(lane);
    });
  }
}

Block::Status Block::round() {
  blockIdx = position(run_->launch.grid, linear_index_);
  blockDim = run_->launch.block;
  gridDim = run_->launch.grid;
  yielded_ = stored_ = false;
  bool ran = false;
  bool moved = false;
  shuffle(warp_order_);
  for (const int warp : warp_order_) {
    const WarpRun result = run_warp(warps_[static_cast<std::size_t>(warp)]);
    ran |= result.ran;
    moved |= result.moved;
    if (run_->stopped) return Status::stuck;
  }
  if (ended()) {
    async_ops_.end_block(*this);
    return Status::done;
  }
  moved |= release_barrier();
  moved |= async_ops_.land_for_mbarriers(*this, !moved);
  if (!ran && !moved) return Status::waiting;
  return moved ? Status::progressed : Status::spinning;
}

Block::WarpRun Block::run_warp(Warp& warp) {
  WarpRun result;
  std::vector<Lane*> ready;
  for (int l = 0; l < warp.count; ++l) warp.lanes[l].yielded = false;
  while (true) {
    ready.clear();
    for (int l = 0; l < warp.count; ++l) {
      Lane& lane = warp.lanes[l];
      if (lane.state == Lane::State::runnable && !lane.yielded) ready.push_back(&lane);
    }
    // Accesses are issued when no lane can go on. The last lane at a named barrier wakes up those that ran before it: they,
    // too, come to their next access first.
    if (ready.empty()) {
      const bool resolved = resolve_calls(warp);
      if (run_->stopped || (!resolved && (waits_for_yielded(warp) || !issue(warp)))) return result;
    }
    shuffle(ready);
    for (Lane* lane : ready) {
      result.ran = true;
      threadIdx = lane->thread;
      current_lane = lane;
      lane->fiber.resume();
      current_lane = nullptr;
      result.moved |= lane->got_further();
      yielded_ |= lane->yielded;
      stored_ |= std::exchange(lane->stored, false);
      if (run_->stopped) return result;
    }
  }
}

// A lane that makes an atomic goes on in the next round; it may come to the access at which the others stand, and they are one
// request. Who only spins comes to none.
bool Block::waits_for_yielded(const Warp& warp) const {
  return std::any_of(warp.lanes, warp.lanes + warp.count,
                     [](const Lane& lane) { return lane.state == Lane::State::runnable && lane.yielded && lane.fresh; });
}

// Issues the accesses of the lanes, those at the lowest place in the code first, until a lane has none left: it may go on, or
// have its warp call made. True if there was one.
bool Block::issue(Warp& warp) {
  bool issued = false, all_ahead = true;
  while (all_ahead) {
    const void* lowest = nullptr;
    for (int l = 0; l < warp.count; ++l) {
      const Lane& lane = warp.lanes[l];
      if (!lane.is_ahead()) continue;
      const void* pc = lane.accesses.first().pc;
      if (lowest == nullptr || std::less<>()(pc, lowest)) lowest = pc;
    }
    if (lowest == nullptr) break;
    issued = true;
    for (auto& request : requests_) request.clear();
    for (int l = 0; l < warp.count; ++l) {
      Lane& lane = warp.lanes[l];
      if (!lane.is_ahead() || lane.accesses.first().pc != lowest) continue;
      const PendingAccess& access = lane.accesses.first();
      if (!access.predicated_off) requests_[access.form == Form::shared].push_back(access);
      lane.accesses.remove_first();
      if (lane.is_ahead()) continue;
      if (lane.state == Lane::State::too_far_ahead) lane.state = Lane::State::runnable;
      all_ahead = false;
    }
    for (const std::vector<PendingAccess>& request : requests_) {
      if (request.empty()) continue;
      const Cost cost = request.front().op == nullptr ? counters_->request(request) : Cost{};
      if (warp.trace != nullptr) warp.trace->request(*this, request, cost);
    }
  }
  return issued;
}

// When a fault has stopped the launch: no lane goes on, but what they accessed counts. In how many requests, the schedule
// decides: lanes stopped at different places.
void Block::issue_rest() {
  for (Warp& warp : warps_) {
    while (issue(warp)) {
    }
  }
}

// Completes every warp call whose lanes have all arrived. True if a lane became runnable.
bool Block::resolve_calls(Warp& warp) {
  bool resolved = false;
  for (int l = 0; l < warp.count; ++l) {
    if (warp.lanes[l].state != Lane::State::in_warp_call) continue;
    const WarpCall& call = *warp.lanes[l].call;
    WarpCall* calls[warp_size] = {};
    std::uint32_t arrived = 0;
    std::uint32_t gone = 0;
    if (warp.lanes[l].is_ahead()) continue;
    for (int other = 0; other < warp_size; ++other) {
      if (!(call.mask >> other & 1)) continue;
      if (other < warp.count && warp.lanes[other].is_ahead()) break;
      if (other >= warp.count || warp.lanes[other].state == Lane::State::exited) {
        gone |= 1u << other;
      } else if (warp.lanes[other].state == Lane::State::in_warp_call && call.matches(*warp.lanes[other].call)) {
        calls[other] = warp.lanes[other].call;
        arrived |= 1u << other;
      }
    }
    if (gone != 0 && !call.spares_exited) {
      run_->report("exited lane in mask", place_of(call.where), call.pc, [&] {
        return std::string(call.name) + " names lanes " + ranges(gone) + " of warp " + std::to_string(warp.index) +
               ", which have exited or never existed\n  called by " + describe(warp.lanes[l]);
      });
      run_->stopped = true;
      return false;
    }
    if ((arrived | gone) != call.mask) continue;
    if (call.aligned_at != nullptr) check_aligned(warp, calls);
    if (warp.trace != nullptr && call.barrier == nullptr) warp.trace->call(call);
    call.resolve(*this, warp, calls);
    if (run_->stopped) return false;
    for (int other = 0; other < warp.count; ++other) {
      if (calls[other] == nullptr) continue;
      Lane& lane = warp.lanes[other];
      lane.call = calls[other]->next;
      if (lane.call == nullptr && lane.state == Lane::State::in_warp_call) lane.state = Lane::State::runnable;
    }
    resolved = true;
  }
  return resolved;
}

void Block::check_aligned(const Warp& warp, WarpCall* const calls[warp_size]) {
  for (int l = 1; l < warp.count; ++l) {
    if (calls[l]->aligned_at == calls[0]->aligned_at) continue;
    run_->report("divergent instruction", place_of(calls[l]->where), calls[l]->aligned_at, [&] {
      const bool same_line = same_place(calls[l]->where, calls[0]->where);  // of a template, or a function inlined twice
      return std::string(calls[l]->name) + " is one instruction of the warp, reached at two places" +
             (same_line ? " that were made of one line" : "") + "\n  by " + describe(warp.lanes[0]) + " at " +
             with_callers(place_of(calls[0]->where), calls[0]->aligned_at) + "\n  by " + describe(warp.lanes[l]) + " at " +
             with_callers(place_of(calls[l]->where), calls[l]->aligned_at);
    });
    return;
  }
}

bool Block::arrive(Lane& lane, bool vote, const std::source_location& where, const void* pc) {
  await_products(lane);
  lane.state = Lane::State::in_barrier;
  lane.barrier = {.name = "__syncthreads()", .where = where, .pc = pc};
  ++in_barrier_;
  votes_ |= vote;
  lane.wait();
  return voted_;  // the next barrier cannot open before this lane comes to it
}

// The barrier opens when every thread of the block has arrived or exited. True if it did.
bool Block::release_barrier() {
  if (in_barrier_ == 0 || in_barrier_ + exited_ < threads_) return false;
  const Lane* first = nullptr;
  std::uint32_t warps = 0;
  for (std::size_t i = 0; i < threads_; ++i) {
    Lane& lane = lanes_[i];
    if (!lane.waits_for_full_barrier()) continue;
    lane.state = Lane::State::runnable;
    warps |= 1u << lane.warp();
    if (first == nullptr) first = &lane;
    if (lane.barrier.pc != first->barrier.pc) {
      run_->report("divergent barrier", place_of(lane.barrier.where), lane.barrier.pc, [&] {
        const bool same_line = same_place(lane.barrier.where, first->barrier.where);
        return std::string("__syncthreads() is one barrier, reached at two places") +
               (same_line ? " that were made of one line" : "") + "\n  by " + describe(*first) + " at " +
               with_callers(place_of(first->barrier.where), first->barrier.pc) + "\n  by " + describe(lane) + " at " +
               with_callers(place_of(lane.barrier.where), lane.barrier.pc);
      });
      first = &lane;
    }
  }
  if (in_barrier_ < threads_) report_skipped(*first);
  in_barrier_ = 0;
  voted_ = std::exchange(votes_, false);
  counters_->barrier(static_cast<std::uint64_t>(std::popcount(warps)));
  full_barrier();
  return true;
}

void Block::full_barrier() {
  order_.full_barrier();
  if (cluster_->size() == 1) races_.forget();
  for (std::size_t i = 0; i < threads_; ++i) lanes_[i].marker.begin_barrier_epoch(order_.epoch());
}

// The hardware goes on when all threads of the block have come that are still there. CUDA says that all must come.
void Block::report_skipped(const Lane& waiting) {
  run_->report("skipped barrier", place_of(waiting.barrier.where), waiting.barrier.pc, [&] {
    std::string gone;
    for (const Warp& warp : warps_) {
      std::uint32_t lanes = 0;
      for (int l = 0; l < warp.count; ++l) lanes |= std::uint32_t{warp.lanes[l].state == Lane::State::exited} << l;
      if (lanes != 0) gone += "\n  without warp " + std::to_string(warp.index) + " lanes " + ranges(lanes);
    }
    return "__syncthreads() was reached by some threads of the block, and the others have ended" + gone + "\n  reached by " +
           describe(waiting);
  });
}

void Block::refuse(const Lane& lane, const BarrierCall& call, const std::string& why) {
  run_->report("barrier misuse", place_of(call.where), call.pc,
               [&] { return call.describe() + ": " + why + "\n  by " + describe(lane); });
  run_->stopped = true;
}

// The barrier instructions are the warp's (PTX ISA, barrier): a thread waits for all threads of its warp that have not exited,
// as in a warp call, and then the warp counts as 32, however many these are.
void Block::arrive_named(Lane& lane, const BarrierCall& call) {
  std::string wrong;
  if (call.id < 1 || call.id >= named_barriers) {
    wrong = "barriers are numbered 1 to 15; 0 is __syncthreads()'s";
  } else if (call.threads < warp_size || call.threads % warp_size != 0 ||
             static_cast<std::size_t>(call.threads) > warps_.size() * warp_size) {
    wrong = "the count of threads is a multiple of 32, and the block has " + std::to_string(threads_);
  }
  if (!wrong.empty()) {
    await_products(lane);
    refuse(lane, call, wrong);
    stop(lane);
  }
  WarpCall of_warp{call.name, 0xffffffffu, call.where, call.pc,
                   [](Block& block, Warp& warp, WarpCall* const* calls) { block.arrive_named(warp, calls); }};
  of_warp.spares_exited = true;
  of_warp.barrier = &call;
  meet(of_warp);
}

void Block::arrive_named(Warp& warp, WarpCall* const calls[warp_size]) {
  std::vector<std::uint32_t> lanes;
  for (int l = 0; l < warp.count; ++l) {
    if (calls[l] == nullptr) continue;
    warp.lanes[l].barrier = *calls[l]->barrier;
    lanes.push_back(static_cast<std::uint32_t>(warp.lanes[l].index));
  }
  const Lane& lane = lanes_[lanes.front()];
  const BarrierCall& first = lane.barrier;
  NamedBarrier& barrier = named_barriers_[static_cast<std::size_t>(first.id)];
  const bool waits = std::string_view(first.name) != "bar.arrive";
  std::string wrong;
  const auto same_count = [&](int threads) {
    if (wrong.empty() && threads != first.threads) {
      wrong = "others came to the same barrier for " + std::to_string(threads) + " threads";
    }
  };
  const auto same_instruction = [&](std::uint32_t i) {
    const BarrierCall& other = lanes_[i].barrier;
    const bool aligned = std::string_view(first.name) == "bar.sync" || std::string_view(other.name) == "bar.sync";
    if (!wrong.empty() || !waits || !aligned || other.pc == first.pc) return;
    wrong = "others wait in another instruction, " + std::string(other.name) + " at " +
            with_callers(place_of(other.where), other.pc) + "; take barrier.sync, as NVIDIA's synccheck asks";
  };
  if (barrier.threads != 0) same_count(barrier.threads);
  for (const std::uint32_t i : lanes) same_count(lanes_[i].barrier.threads);
  std::for_each(lanes.begin(), lanes.end(), same_instruction);
  std::for_each(barrier.waiting.begin(), barrier.waiting.end(), same_instruction);
  if (wrong.empty() && (barrier.warps >> warp.index & 1)) {
    wrong = "warp " + std::to_string(warp.index) + " has come to this barrier before, and would count twice";
  }
  if (!wrong.empty()) return refuse(lane, first, wrong);
  barrier.threads = first.threads;
  barrier.arrived += warp_size;
  barrier.warps |= 1u << warp.index;
  counters_->barrier(1);
  order_.arrive(barrier.meeting, lanes, !waits);
  if (waits) {
    for (const std::uint32_t i : lanes) lanes_[i].state = Lane::State::in_barrier;
    barrier.waiting.insert(barrier.waiting.end(), lanes.begin(), lanes.end());
  }
  if (barrier.arrived < barrier.threads) return;
  order_.end(barrier.meeting, barrier.waiting);
  for (const std::uint32_t i : barrier.waiting) lanes_[i].state = Lane::State::runnable;
  barrier = {};
}

// "block (0, 0, 0), warp 1, lanes 0-31: byte 0 of 'flag' (4 bytes), at FILE:LINE"
std::vector<std::string> Block::spinning() const {
  std::map<std::pair<int, std::pair<const void*, std::uintptr_t>>, std::uint32_t> who;
  for (std::size_t i = 0; i < threads_; ++i) {
    const Lane& lane = lanes_[i];
    if (lane.state == Lane::State::runnable && lane.yielded)
      who[{lane.warp(), {lane.polls_pc, lane.polls}}] |= 1u << lane.lane();
  }
  std::vector<std::string> all;
  for (const auto& [place, lanes] : who) {
    const auto& [pc, address] = place.second;
    all.push_back(describe() + ", warp " + std::to_string(place.first) + ", lanes " + ranges(lanes) + ": " +
                  describe_target(*this, address) + ", at " + with_callers(place_of(pc), pc));
  }
  return all;
}

const void* Block::spins_at() const {
  for (std::size_t i = 0; i < threads_; ++i) {
    if (lanes_[i].state == Lane::State::runnable && lanes_[i].yielded) return lanes_[i].polls_pc;
  }
  return nullptr;
}

void Block::stop(Lane& lane) {
  if (!run_->runs_again()) await_products(lane);  // what is wrong with them comes first
  run_->stopped = true;
  lane.wait();
  __builtin_unreachable();  // a stopped launch resumes no lane
}

void Block::run_again(Lane& lane) {
  run_->needs_order = true;
  stop(lane);
}

void Block::run_again_with_proxies(Lane& lane) {
  run_->needs_proxies = true;
  stop(lane);
}

std::string Block::describe(const Lane& lane) const {
  return describe_thread(run_->launch, linear_index_, static_cast<unsigned>(lane.index));
}

std::string Block::describe() const { return describe_block(run_->launch, linear_index_); }

std::string describe_block(const Launch& launch, std::uint64_t block) {
  return "block " + to_string(position(launch.grid, block));
}

std::string describe_thread(const Launch& launch, std::uint64_t block, unsigned thread) {
  return describe_block(launch, block) + ", warp " + std::to_string(thread / warp_size) + ", lane " +
         std::to_string(thread % warp_size) + " (thread " + to_string(position(launch.block, thread)) + ")";
}

// ---- launches ----

std::size_t volume(dim3 size) { return std::size_t{size.x} * size.y * size.z; }

Run::Run(const Launch& launch_, bool ordered_, bool proxies_)
    : launch(launch_),
      ordered(ordered_),
      races(options().races),
      proxies(races && proxies_),
      tracing(options().trace),
      counting(options().counters || tracing),
      first_mark(Marks::first_of(volume(launch.grid))) {
  const auto [grid, cluster] = std::pair(launch.grid, launch.cluster);
  std::vector<std::uint64_t> clusters(volume(grid) / volume(cluster));
  for (std::size_t i = 0; i < clusters.size(); ++i) clusters[i] = i;
  std::uint64_t random = options().seed;
  for (std::size_t i = clusters.size(); i > 1; --i) std::swap(clusters[i - 1], clusters[next_random(random) % i]);
  const dim3 in_grid = {grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z};
  order.reserve(volume(grid));
  for (const std::uint64_t one : clusters) {
    const uint3 at = position(in_grid, one);
    for (std::uint64_t i = 0; i < volume(cluster); ++i) {
      const uint3 in = position(cluster, i);
      const std::uint64_t y = at.y * cluster.y + in.y, z = at.z * cluster.z + in.z;
      order.push_back((z * grid.y + y) * grid.x + at.x * cluster.x + in.x);
    }
  }
}

void Run::report(std::string kind, std::string where, const void* pc, const MakeText& make_text,
                 const std::string& other_place) {
  const Unobserved unobserved;
  const std::lock_guard lock(mutex);
  const auto [known, fresh] = known_findings.try_emplace(kind + '\n' + where + '\n' + other_place, findings.size());
  if (!fresh) {
    ++findings[known->second].count;
    return;
  }
  const std::string kernel = function_name(launch.kernel);
  static constexpr const char* modes[] = {"", " --sim-async eager", " --sim-async random"};
  std::string text = kind + ": " + make_text() + "\n  at " + with_callers(where, pc) + " in kernel " + kernel +
                     "\n  replay: --sim-seed " + std::to_string(options().seed) +
                     modes[static_cast<int>(options().async_mode)] +
                     (options().device == Device::rtx3090 ? " --sim-device rtx3090" : "");
  findings.push_back({std::move(kind), kernel, std::move(where), std::move(text)});
}

namespace {

using Clusters = std::vector<std::unique_ptr<Cluster>>;  // of one worker, kept for the next launch

// How many blocks of the launch the machine holds at once, and so how many may wait for each other. (In clusters perhaps fewer:
// the multiprocessors come in groups, and a cluster lies in one of these.)
std::size_t resident_blocks(const Launch& launch) {
  const auto round_up = [](std::size_t n, std::size_t to) { return (n + to - 1) / to * to; };
  const Machine& m = machine();
  const std::size_t warps = round_up(volume(launch.block), warp_size) / warp_size;
  constexpr std::size_t reserved_shared = 1024;  // of a block, by the system
  std::size_t on_one =
      std::min({m.blocks, m.warps / warps, m.shared_bytes / (round_up(launch.shared_bytes, 128) + reserved_shared)});
  if (launch.registers > 0) on_one = std::min(on_one, m.registers / round_up(launch.registers * warp_size, 256) / warps);
  return m.multiprocessors * std::max<std::size_t>(on_one, 1);
}

// Since when all blocks have done nothing but spin.
class Idle {
 public:
  bool for_too_long(bool stored) {
    if (rounds_ == 0) begin_ = seconds();
    stored_ |= stored;
    if (++rounds_ >= max_idle_rounds && !stored_) return true;
    return rounds_ % 16 == 0 && seconds() - begin_ > max_idle_seconds;
  }

 private:
  static double seconds() {  // that this worker has computed: others on the machine do not count
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  int rounds_ = 0;
  double begin_ = 0;
  bool stored_ = false;
};

void report_endless(Run& run, const Clusters& clusters, std::size_t resident, std::size_t not_begun) {
  constexpr std::size_t shown = 8;
  std::vector<std::string> all;
  const void* pc = nullptr;
  for (std::size_t i = 0; i < resident && all.size() <= shown; ++i) {
    for (std::size_t rank = 0; rank < clusters[i]->size(); ++rank) {
      const Block& block = clusters[i]->block(rank);
      for (std::string& one : block.spinning()) all.push_back(std::move(one));
      if (pc == nullptr) pc = block.spins_at();
    }
  }
  std::string text = "every thread that can run reads the same memory again and again; nobody writes it";
  if (not_begun > 0) {
    text = "the " + std::to_string(resident * volume(run.launch.cluster)) + " blocks that " + machine().name +
           " holds at once only read memory that nobody writes; " + std::to_string(not_begun) +
           " more can begin when one of these has ended";
  }
  for (std::size_t i = 0; i < std::min(all.size(), shown); ++i) text += "\n  " + all[i];
  if (all.size() > shown) text += "\n  and others";
  run.report("endless spin", pc == nullptr ? "unknown place" : place_of(pc), pc, [&] { return text; });
  run.stopped = true;
}

// One worker's share of a launch. It runs one cluster at a time. While all its blocks spin on memory that another block must
// write, it opens further clusters: as many as the machine would hold.
void work(Run& run, Clusters& clusters) {
  Counters counters;
  std::size_t resident = 0;
  const std::size_t blocks = volume(run.launch.cluster), count = run.order.size() / blocks;
  // In no order, nobody waits for another cluster.
  const std::size_t most = run.ordered ? std::max<std::size_t>(resident_blocks(run.launch) / blocks, 1) : 1;
  const auto open = [&] {
    const std::size_t next = run.next++;
    if (next >= count) return false;
    if (resident == clusters.size()) clusters.push_back(std::make_unique<Cluster>());
    clusters[resident++]->begin(run, next, counters);
    return true;
  };
  const auto open_more = [&] {
    bool opened = false;
    for (std::size_t more = 1 + resident / 8; more > 0 && resident < most && open(); --more) opened = true;
    return opened;
  };
  Idle idle;
  int rounds_alone = 0;
  while (!run.stopped && (resident > 0 || open())) {
    bool spinning = true, yielded = false, stored = false;
    for (std::size_t i = 0; i < resident;) {
      const Block::Status status = clusters[i]->round();
      if (status == Block::Status::stuck) break;
      spinning &= status == Block::Status::spinning;
      yielded |= clusters[i]->yielded();
      stored |= clusters[i]->stored();
      if (status == Block::Status::done) {
        rounds_alone = 0;
        std::swap(clusters[i], clusters[--resident]);
      } else {
        ++i;
      }
    }
    if (run.stopped) break;
    rounds_alone += yielded;
    if ((spinning || rounds_alone >= max_rounds_alone) && open_more()) {
      rounds_alone = 0;
      idle = {};
    } else if (!spinning) {
      idle = {};
    } else if (idle.for_too_long(stored)) {
      const std::size_t begun = std::min<std::size_t>(run.next, count);
      report_endless(run, clusters, resident, run.ordered ? blocks * (count - begun) : 0);
    }
  }
  for (std::size_t i = 0; i < resident; ++i) clusters[i]->issue_rest();
  const std::lock_guard lock(run.mutex);
  run.counters.add(counters);
}

int worker_count() {
  if (options().workers > 0) return options().workers;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void execute(Run& run) {
  static std::vector<Clusters> pools;
  const std::size_t clusters = run.order.size() / volume(run.launch.cluster);
  const std::size_t count = run.ordered ? 1 : std::min<std::size_t>(static_cast<std::size_t>(worker_count()), clusters);
  if (pools.size() < count) pools.resize(count);
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < count; ++i) helpers.emplace_back([&run, i] { work(run, pools[i]); });
  work(run, pools[0]);
  for (std::thread& helper : helpers) helper.join();
}

void validate(const Launch& launch) {
  const auto [grid, block] = std::pair(launch.grid, launch.block);
  const dim3 cluster = launch.cluster;
  const std::uint64_t threads = volume(block), together = volume(cluster);
  std::string wrong;
  if (threads == 0 || grid.x == 0 || grid.y == 0 || grid.z == 0) wrong = "an empty grid or block";
  if (threads > max_threads_per_block) wrong = std::to_string(threads) + " threads in a block, at most 1024";
  if (block.z > 64) wrong = "blockDim.z is " + std::to_string(block.z) + ", at most 64";
  if (grid.x > 0x7fffffffu) wrong = "gridDim.x is " + std::to_string(grid.x) + ", at most 2147483647";
  if (grid.y > 65535 || grid.z > 65535) wrong = "gridDim.y and gridDim.z may be 65535 at most";
  if (launch.shared_bytes > machine().shared_bytes_of_block) {
    wrong = std::to_string(launch.shared_bytes) + " bytes of shared memory, at most " +
            std::to_string(machine().shared_bytes_of_block);
  }
  if (together == 0 || grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    wrong = "a grid of " + to_string(grid) + " blocks is not made of clusters of " + to_string(cluster);
  } else if (together > machine().blocks_of_cluster) {
    wrong = "clusters of " + std::to_string(together) + " blocks; " + machine().name + " has " +
            (machine().blocks_of_cluster == 1 ? "none" : "none of more than " + std::to_string(machine().blocks_of_cluster));
  }
  if (!wrong.empty()) throw LaunchError{"invalid launch of " + function_name(launch.kernel) + ": " + wrong};
}

}  // namespace

void launch(const Launch& launch) {
  static std::mutex one_launch_at_a_time;
  static std::set<Function> ordered_kernels, bulk_kernels;  // seen to need it
  const std::lock_guard lock(one_launch_at_a_time);
  validate(launch);
  const Snapshot before;
  if (options().counters) Footprint::clear();
  const auto begun = [&] {
    return std::make_unique<Run>(launch, ordered_kernels.contains(launch.kernel), bulk_kernels.contains(launch.kernel));
  };
  auto run = begun();
  for (execute(*run); run->runs_again(); execute(*run)) {
    before.restore();
    if (options().counters) Footprint::clear();
    if (run->needs_order) ordered_kernels.insert(launch.kernel);
    if (run->needs_proxies) bulk_kernels.insert(launch.kernel);
    run = begun();
  }
  if (!run->stopped) {
    for (const std::uintptr_t address : before.changed_unseen()) {
      run->report("unseen write", "unknown place", nullptr, [&] {
        return describe_address(address) +
               " changed, but no store was reported; write 16-bit and vector values through store()";
      });
    }
  }
  std::fwrite(run->printed.data(), 1, run->printed.size(), stdout);
  all_findings.insert(all_findings.end(), run->findings.begin(), run->findings.end());
  if (options().counters) all_counters.push_back(run->counters.result(launch));
  if (run->tracing) all_traces.push_back(run->trace.result(launch));
}

}  // namespace simt
