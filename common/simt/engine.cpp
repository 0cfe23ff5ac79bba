#include "common/simt/engine.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

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

// Blocks that one worker may keep open while they wait for each other: two for each multiprocessor of an H200.
constexpr std::size_t max_resident = 264;
constexpr int max_idle_rounds = 100000;

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

// "0-15, 17" for a set of lanes.
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

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::string_view(a.file_name()) == b.file_name());
}

}  // namespace

std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void configure(const Options& options) { current_options = options; }
const Options& options() { return current_options; }
std::vector<Finding> take_findings() { return std::exchange(all_findings, {}); }
std::vector<KernelCounters> take_counters() { return std::exchange(all_counters, {}); }
std::vector<KernelTrace> take_traces() { return std::exchange(all_traces, {}); }
void trace_warp(unsigned warp) { traced_warp = warp; }

// ---- lanes ----

void Lane::wait() {
  yielded = false;
  fiber.suspend();
}

void Lane::yield() {
  yielded = true;
  fiber.suspend();
}

// ---- blocks ----

template <class T>
void Block::shuffle(std::vector<T>& items) {
  for (std::size_t i = items.size(); i > 1; --i) {
    const std::uint64_t pick = (next_random(random_) >> 32) * i >> 32;  // below i, without a division
    std::swap(items[i - 1], items[pick]);
  }
}

void Block::begin(Run& run, std::uint64_t linear_index, Counters& counters) {
  const auto [block, shared_bytes] = std::pair(run.launch.block, run.launch.shared_bytes);
  run_ = &run;
  counters_ = &counters;
  linear_index_ = static_cast<std::uint32_t>(linear_index);
  random_ = options().seed * 0x2545f4914f6cdd1du + linear_index;
  threads_ = std::size_t{block.x} * block.y * block.z;
  exited_ = in_barrier_ = 0;
  votes_ = false;
  shared_type_ = nullptr;
  stacks_.prepare(static_cast<int>(threads_));
  arena_.begin_block(shared_bytes);
  for (NamedBarrier& barrier : named_barriers_) barrier = {};
  order_.begin_block(linear_index_, threads_, run.ordered ? &run.device_flags : nullptr);
  races_.words.reserve((shared_bytes + 3) / 4);
  copies_.begin_block(threads_, shared_bytes);

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
    lane.index = static_cast<int>(i);
    lane.counting = run.counting;
    lane.traced = traced && i / warp_size == traced_warp;
    lane.thread = position(block, i);
    lane.stack_low = stacks_.low(lane.index);
    lane.marker = Marker(run.first_mark, linear_index, i);
    lane.arena_low = arena_.low();
    lane.arena_shadow = arena_.shadow(arena_.low());
    lane.block = this;
    lane.fiber.start(stacks_, lane.index, [this, &lane] {
      run_->launch.call(run_->launch.kernel, run_->launch.params);
      lane.state = Lane::State::exited;
      lane.yielded = false;
      ++exited_;
    });
  }
}

Block::Status Block::round() {
  blockIdx = position(run_->launch.grid, linear_index_);
  blockDim = run_->launch.block;
  gridDim = run_->launch.grid;
  const std::uint64_t stores_before = stores_;
  bool ran = false;
  bool moved = false;
  shuffle(warp_order_);
  for (const int warp : warp_order_) {
    const WarpRun result = run_warp(warps_[static_cast<std::size_t>(warp)]);
    ran |= result.ran;
    moved |= result.moved;
    if (run_->stopped) return Status::stuck;
  }
  if (exited_ == threads_) return Status::done;
  moved |= release_barrier();
  if (!ran && !moved) {
    report_stuck();
    return Status::stuck;
  }
  return moved || stores_ != stores_before ? Status::progressed : Status::spinning;
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
    if (ready.empty() && !resolve_calls(warp) && !issue(warp)) return result;
    shuffle(ready);
    for (Lane* lane : ready) {
      result.ran = true;
      threadIdx = lane->thread;
      current_lane = lane;
      lane->fiber.resume();
      current_lane = nullptr;
      result.moved |= !lane->yielded;
      if (run_->stopped) return result;
    }
  }
}

// Of the lanes that are about to access memory, lets those at the lowest place in the code go on. True if there were any.
bool Block::issue(Warp& warp) {
  const auto pending = [&](int l) { return warp.lanes[l].state == Lane::State::in_access; };
  const void* lowest = nullptr;
  for (int l = 0; l < warp.count; ++l) {
    const void* pc = warp.lanes[l].access.pc;
    if (pending(l) && (lowest == nullptr || std::less<>()(pc, lowest))) lowest = pc;
  }
  if (lowest == nullptr) return false;
  for (auto& request : requests_) request.clear();
  for (int l = 0; l < warp.count; ++l) {
    Lane& lane = warp.lanes[l];
    if (!pending(l) || lane.access.pc != lowest) continue;
    if (!lane.access.predicated_off) requests_[lane.access.form == Form::shared].push_back(lane.access);
    lane.state = Lane::State::runnable;
  }
  for (const std::vector<PendingAccess>& request : requests_) {
    if (request.empty()) continue;
    const Cost cost = request.front().op == nullptr ? counters_->request(request) : Cost{};
    if (warp.trace != nullptr) warp.trace->request(*this, request, cost);
  }
  return true;
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
    for (int other = 0; other < warp_size; ++other) {
      if (!(call.mask >> other & 1)) continue;
      if (other >= warp.count || warp.lanes[other].state == Lane::State::exited) {
        gone |= 1u << other;
      } else if (warp.lanes[other].state == Lane::State::in_warp_call && warp.lanes[other].call->mask == call.mask &&
                 std::string_view(warp.lanes[other].call->name) == call.name) {
        calls[other] = warp.lanes[other].call;
        arrived |= 1u << other;
      }
    }
    if (gone != 0) {
      run_->report("exited lane in mask", place_of(call.where), call.pc, [&] {
        return std::string(call.name) + " names lanes " + ranges(gone) + " of warp " + std::to_string(warp.index) +
               ", which have exited or never existed\n  called by " + describe(warp.lanes[l]);
      });
      run_->stopped = true;
      return false;
    }
    if (arrived != call.mask) continue;
    if (call.aligned_at != nullptr) check_aligned(warp, calls);
    if (warp.trace != nullptr) warp.trace->call(call);
    call.resolve(*this, warp, calls);
    if (std::string_view(call.name).starts_with("__shfl")) counters_->shuffle();
    for (int other = 0; other < warp.count; ++other) {
      if (calls[other] != nullptr) warp.lanes[other].state = Lane::State::runnable;
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
  lane.state = Lane::State::in_barrier;
  lane.barrier_place = where;
  lane.barrier_pc = pc;
  ++in_barrier_;
  votes_ |= vote;
  lane.wait();
  return voted_;  // the next barrier cannot open before this lane comes to it
}

// The barrier opens when every thread of the block has arrived or exited. True if it did.
bool Block::release_barrier() {
  if (in_barrier_ == 0 || in_barrier_ + exited_ < threads_) return false;
  const Lane* first = nullptr;
  for (std::size_t i = 0; i < threads_; ++i) {
    Lane& lane = lanes_[i];
    if (lane.state != Lane::State::in_barrier) continue;
    lane.state = Lane::State::runnable;
    if (first == nullptr) first = &lane;
    if (!same_place(lane.barrier_place, first->barrier_place)) {
      run_->report("divergent barrier", place_of(lane.barrier_place), lane.barrier_pc, [&] {
        return "__syncthreads() is one barrier, reached at two places\n  by " + describe(*first) + " at " +
               with_callers(place_of(first->barrier_place), first->barrier_pc) + "\n  by " + describe(lane) + " at " +
               with_callers(place_of(lane.barrier_place), lane.barrier_pc);
      });
      first = &lane;
    }
  }
  in_barrier_ = 0;
  voted_ = std::exchange(votes_, false);
  counters_->barrier(warps_.size());
  order_.full_barrier();
  for (std::size_t i = 0; i < threads_; ++i) lanes_[i].marker.begin_barrier_epoch(order_.last_barrier());
  return true;
}

void Block::arrive_named(Lane& lane, const BarrierCall& call) {
  const auto refuse = [&](const std::string& why) {
    run_->report("barrier misuse", place_of(call.where), call.pc, [&] {
      return std::string(call.name) + ' ' + std::to_string(call.id) + ", " + std::to_string(call.threads) + ": " + why +
             "\n  by " + describe(lane);
    });
    stop(lane);
  };
  if (call.id < 1 || call.id >= named_barriers) refuse("barriers are numbered 1 to 15; 0 is __syncthreads()'s");
  if (call.threads < warp_size || call.threads % warp_size != 0 || static_cast<std::size_t>(call.threads) > threads_) {
    refuse("the count of threads is a multiple of 32, and the block has " + std::to_string(threads_));
  }
  NamedBarrier& barrier = named_barriers_[static_cast<std::size_t>(call.id)];
  if (barrier.threads != 0 && barrier.threads != call.threads) {
    refuse("others came to the same barrier for " + std::to_string(barrier.threads) + " threads");
  }
  const bool waits = std::string_view(call.name) != "bar.arrive";
  for (const std::uint32_t i : barrier.waiting) {
    const BarrierCall& other = lanes_[i].named_barrier;
    const bool aligned = std::string_view(call.name) == "bar.sync" || std::string_view(other.name) == "bar.sync";
    if (waits && aligned && other.pc != call.pc) {
      refuse("others wait in another instruction, " + std::string(other.name) + " at " +
             with_callers(place_of(other.where), other.pc) + "; threads that come from different places need barrier.sync");
    }
  }
  const auto index = static_cast<std::uint32_t>(lane.index);
  barrier.threads = call.threads;
  ++barrier.arrived;
  if (waits) barrier.waiting.push_back(index);
  order_.arrive(barrier.meeting, index);
  if (barrier.arrived == call.threads) {
    counters_->barrier(static_cast<std::uint64_t>(call.threads / warp_size));
    order_.end(barrier.meeting, barrier.waiting);
    for (const std::uint32_t i : barrier.waiting) lanes_[i].state = Lane::State::runnable;
    barrier = {};
  } else if (waits) {
    lane.named_barrier = call;
    lane.state = Lane::State::in_named_barrier;
    lane.wait();
  }
}

// Nobody can run: says who waits where.
void Block::report_stuck() {
  std::map<std::string, std::uint32_t> waiting;  // "warp 0 … at file:line" → lanes
  std::string place;
  const void* pc = nullptr;
  const auto describe_place = [&](const std::source_location& where, const void* at) {
    place = place_of(where);
    pc = at;
    return with_callers(place, pc);
  };
  for (std::size_t i = 0; i < threads_; ++i) {
    const Lane& lane = lanes_[i];
    std::string state = "have exited";
    if (lane.state == Lane::State::in_barrier) {
      state = "wait in __syncthreads() at " + describe_place(lane.barrier_place, lane.barrier_pc);
    } else if (lane.state == Lane::State::in_named_barrier) {
      const BarrierCall& call = lane.named_barrier;
      state = std::string("wait in ") + call.name + ' ' + std::to_string(call.id) + ", " + std::to_string(call.threads) +
              " at " + describe_place(call.where, call.pc);
    } else if (lane.state == Lane::State::in_warp_call) {
      std::ostringstream mask;
      mask << "0x" << std::hex << lane.call->mask;
      state = std::string("wait in ") + lane.call->name + "(" + mask.str() + ") at " +
              describe_place(lane.call->where, lane.call->pc);
    }
    waiting["warp " + std::to_string(lane.warp()) + " lanes @ " + state] |= 1u << lane.lane();
  }
  std::string text = "every thread of block " + to_string(position(run_->launch.grid, linear_index_)) + " waits";
  for (const auto& [state, lanes] : waiting) {
    const std::size_t at = state.find('@');
    text += "\n  " + state.substr(0, at) + ranges(lanes) + state.substr(at + 1);
  }
  run_->report("deadlock", place, pc, [&] { return text; });
  run_->stopped = true;
}

void Block::stop(Lane& lane) {
  run_->stopped = true;
  lane.wait();
  __builtin_unreachable();  // a stopped launch resumes no lane
}

void Block::run_again(Lane& lane) {
  run_->needs_order = true;
  stop(lane);
}

std::string Block::describe(const Lane& lane) const {
  return describe_thread(run_->launch, linear_index_, static_cast<unsigned>(lane.index));
}

std::string describe_thread(const Launch& launch, std::uint64_t block, unsigned thread) {
  return "block " + to_string(position(launch.grid, block)) + ", warp " + std::to_string(thread / warp_size) + ", lane " +
         std::to_string(thread % warp_size) + " (thread " + to_string(position(launch.block, thread)) + ")";
}

// ---- launches ----

std::size_t block_count(const Launch& launch) { return std::size_t{launch.grid.x} * launch.grid.y * launch.grid.z; }

Run::Run(const Launch& launch_, bool ordered_)
    : launch(launch_),
      ordered(ordered_),
      races(options().races),
      tracing(options().trace),
      counting(options().counters || tracing),
      first_mark(Marks::first_of(block_count(launch))) {
  order.resize(block_count(launch));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::uint64_t random = options().seed;
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next_random(random) % i]);
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
                     "\n  replay: --sim-seed " + std::to_string(options().seed) + modes[static_cast<int>(options().async_mode)];
  findings.push_back({std::move(kind), kernel, std::move(where), std::move(text)});
}

namespace {

using Blocks = std::vector<std::unique_ptr<Block>>;  // of one worker, kept for the next launch

// One worker's share of a launch. It runs one block at a time; only while all its blocks spin on memory that another block
// must write does it open a further one.
void work(Run& run, Blocks& blocks) {
  Counters counters;
  std::size_t resident = 0;
  const auto open = [&] {
    const std::size_t next = run.next++;
    if (next >= run.order.size()) return false;
    if (resident == blocks.size()) blocks.push_back(std::make_unique<Block>());
    blocks[resident++]->begin(run, run.order[next], counters);
    return true;
  };
  int idle_rounds = 0;
  while (!run.stopped && (resident > 0 || open())) {
    bool spinning = true;
    for (std::size_t i = 0; i < resident;) {
      const Block::Status status = blocks[i]->round();
      if (status == Block::Status::stuck) break;
      spinning &= status == Block::Status::spinning;
      if (status == Block::Status::done) {
        std::swap(blocks[i], blocks[--resident]);
      } else {
        ++i;
      }
    }
    if (!spinning) {
      idle_rounds = 0;
    } else if (!(resident < max_resident && open()) && ++idle_rounds == max_idle_rounds) {
      run.report("endless spin", "unknown place", nullptr,
                 [] { return "every runnable thread reads the same memory again and again; nobody writes it"; });
      run.stopped = true;
    }
  }
  const std::lock_guard lock(run.mutex);
  run.counters.add(counters);
}

int worker_count() {
  if (options().workers > 0) return options().workers;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void execute(Run& run) {
  static std::vector<Blocks> pools;
  const std::size_t count = run.ordered ? 1 : std::min<std::size_t>(static_cast<std::size_t>(worker_count()), run.order.size());
  if (pools.size() < count) pools.resize(count);
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < count; ++i) helpers.emplace_back([&run, i] { work(run, pools[i]); });
  work(run, pools[0]);
  for (std::thread& helper : helpers) helper.join();
}

void validate(const Launch& launch) {
  const auto [grid, block] = std::pair(launch.grid, launch.block);
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  std::string wrong;
  if (threads == 0 || grid.x == 0 || grid.y == 0 || grid.z == 0) wrong = "an empty grid or block";
  if (threads > max_threads_per_block) wrong = std::to_string(threads) + " threads in a block, at most 1024";
  if (block.z > 64) wrong = "blockDim.z is " + std::to_string(block.z) + ", at most 64";
  if (grid.x > 0x7fffffffu) wrong = "gridDim.x is " + std::to_string(grid.x) + ", at most 2147483647";
  if (grid.y > 65535 || grid.z > 65535) wrong = "gridDim.y and gridDim.z may be 65535 at most";
  if (launch.shared_bytes > max_shared_bytes) {
    wrong = std::to_string(launch.shared_bytes) + " bytes of shared memory, at most " + std::to_string(max_shared_bytes);
  }
  if (!wrong.empty()) throw LaunchError{"invalid launch of " + function_name(launch.kernel) + ": " + wrong};
}

}  // namespace

void launch(const Launch& launch) {
  static std::mutex one_launch_at_a_time;
  static std::set<Function> ordered_kernels;  // seen to need it
  const std::lock_guard lock(one_launch_at_a_time);
  validate(launch);
  const Snapshot before;
  if (options().counters) Footprint::clear();
  auto run = std::make_unique<Run>(launch, ordered_kernels.contains(launch.kernel));
  execute(*run);
  if (run->needs_order) {
    before.restore();
    if (options().counters) Footprint::clear();
    ordered_kernels.insert(launch.kernel);
    run = std::make_unique<Run>(launch, true);
    execute(*run);
  }
  if (!run->stopped) {
    for (const std::uintptr_t address : before.changed_unseen()) {
      run->report("unseen write", "unknown place", nullptr, [&] {
        return describe_address(address) +
               " changed, but no store was reported; write 16-bit and vector values through store()";
      });
    }
  }
  all_findings.insert(all_findings.end(), run->findings.begin(), run->findings.end());
  if (options().counters) all_counters.push_back(run->counters.result(launch));
  if (run->tracing) all_traces.push_back(run->trace.result(launch));
}

}  // namespace simt
