// A block's rounds: which lane runs next, which accesses are one request, which warp calls can be made.
#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "common/simt/access.h"
#include "common/simt/cluster.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"
#include "common/simt/engine.h"
#include "common/simt/symbols.h"

namespace simt {
namespace {

unsigned traced_warp = 0;

}  // namespace

void trace_warp(unsigned warp) { traced_warp = warp; }

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
    lane.waited = false;
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

}  // namespace simt
