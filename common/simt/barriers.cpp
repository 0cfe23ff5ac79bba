// A block's barriers: __syncthreads(), and those with numbers.
#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "common/simt/cluster.h"
#include "common/simt/collectives.h"
#include "common/simt/engine.h"
#include "common/simt/symbols.h"

namespace simt {

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

}  // namespace simt
