// What lanes do together: barriers, shuffles, votes, and shared memory.
#include "common/simt/collectives.h"

#include <algorithm>
#include <sstream>

#include "common/simt/access.h"
#include "common/simt/cuda.h"
#include "common/simt/symbols.h"

namespace simt {

Lane& lane_or_die() {
  if (current_lane == nullptr) throw std::logic_error("a warp or block intrinsic was called outside a kernel");
  return *current_lane;
}

void meet(WarpCall& call) {
  Lane& lane = lane_or_die();
  if (!(call.mask >> lane.lane() & 1)) {
    std::ostringstream mask;
    mask << "0x" << std::hex << call.mask;
    lane.block->run().report("caller not in mask", place_of(call.where), call.pc, [&] {
      return std::string(call.name) + "(" + mask.str() + ") was called by a lane that the mask does not name\n  by " +
             lane.block->describe(lane);
    });
    lane.block->stop(lane);
  }
  lane.call = &call;
  lane.state = Lane::State::in_warp_call;
  lane.wait();
}

namespace {

struct ShuffleCall : WarpCall {
  Shuffle mode;
  std::uint64_t value;
  int operand;
  int width;
  std::uint64_t result = 0;
};

// The lane that a shuffle reads (PTX ISA, shfl.sync: five bits of the operand count): lanes at the edge of a segment keep their
// own value.
int source_lane(const ShuffleCall& call, int lane) {
  const int operand = call.operand & 31;
  const int first = lane & ~(call.width - 1);
  const int last = first + call.width - 1;
  switch (call.mode) {
    case Shuffle::index:
      return first + (operand & (call.width - 1));
    case Shuffle::up:
      return lane - operand < first ? lane : lane - operand;
    case Shuffle::down:
      return lane + operand > last ? lane : lane + operand;
    case Shuffle::butterfly:
      return (lane ^ operand) > last ? lane : lane ^ operand;
  }
  __builtin_unreachable();
}

void resolve_shuffle(Block& block, Warp& warp, WarpCall* const calls[warp_size]) {
  for (int lane = 0; lane < warp_size; ++lane) {
    if (calls[lane] == nullptr) continue;
    auto& call = *static_cast<ShuffleCall*>(calls[lane]);
    const int source = source_lane(call, lane);
    if (calls[source] == nullptr) {
      block.run().report("shuffle from absent lane", place_of(call.where), call.pc, [&] {
        return std::string(call.name) + " reads lane " + std::to_string(source) + ", which is not in the mask\n  by " +
               block.describe(warp.lanes[lane]);
      });
      continue;  // the result stays 0
    }
    call.result = static_cast<ShuffleCall*>(calls[source])->value;
  }
}

struct VoteCall : WarpCall {
  bool predicate;
  std::uint32_t result = 0;
};

void resolve_vote(Block&, Warp&, WarpCall* const calls[warp_size]) {
  std::uint32_t ballot = 0;
  for (int lane = 0; lane < warp_size; ++lane) {
    if (calls[lane] != nullptr && static_cast<VoteCall*>(calls[lane])->predicate) ballot |= 1u << lane;
  }
  for (int lane = 0; lane < warp_size; ++lane) {
    if (calls[lane] != nullptr) static_cast<VoteCall*>(calls[lane])->result = ballot;
  }
}

}  // namespace

void barrier(const std::source_location& where) {
  Lane& lane = lane_or_die();
  await_traced(lane, "bar.sync", 0, __builtin_return_address(0));
  lane.block->arrive(lane, false, where, __builtin_return_address(0));
}

bool barrier_or(bool predicate, const std::source_location& where) {
  Lane& lane = lane_or_die();
  await_traced(lane, "bar.red.or", 0, __builtin_return_address(0));
  return lane.block->arrive(lane, predicate, where, __builtin_return_address(0));
}

void warp_barrier(std::uint32_t mask, const std::source_location& where) {
  WarpCall call{"__syncwarp", mask, where, __builtin_return_address(0), [](Block& block, Warp& warp, WarpCall* const* calls) {
                  const WarpCall* const* first = std::find_if(calls, calls + warp_size, [](auto* c) { return c != nullptr; });
                  std::vector<std::uint32_t> lanes;
                  for (int lane = 0; lane < warp_size; ++lane) {
                    if ((*first)->mask >> lane & 1) lanes.push_back(static_cast<std::uint32_t>(warp.lanes[lane].index));
                  }
                  const Time met = block.order().meet(lanes);
                  for (int lane = 0; lanes.size() == warp_size && lane < warp_size; ++lane) {
                    warp.lanes[lane].marker.begin_epoch(met);
                  }
                }};
  meet(call);
}

void bar_sync(int id, int threads, const std::source_location& where) {
  Lane& lane = lane_or_die();
  await_traced(lane, "bar.sync", id, __builtin_return_address(0));
  lane.block->arrive_named(lane, {"bar.sync", id, threads, where, __builtin_return_address(0)});
}

void barrier_sync(int id, int threads, const std::source_location& where) {
  Lane& lane = lane_or_die();
  await_traced(lane, "barrier.sync", id, __builtin_return_address(0));
  lane.block->arrive_named(lane, {"barrier.sync", id, threads, where, __builtin_return_address(0)});
}

void bar_arrive(int id, int threads, const std::source_location& where) {
  Lane& lane = lane_or_die();
  await_traced(lane, "bar.arrive", id, __builtin_return_address(0));
  lane.block->arrive_named(lane, {"bar.arrive", id, threads, where, __builtin_return_address(0)});
}

void fence(Scope scope) {
  const Lane& lane = lane_or_die();
  lane.block->order().fence(static_cast<std::uint32_t>(lane.index), scope);
}

std::uint64_t shuffle(const char* name, Shuffle mode, std::uint32_t mask, std::uint64_t value, int operand, int width,
                      const std::source_location& where) {
  ShuffleCall call{{name, mask, where, __builtin_return_address(0), resolve_shuffle}, mode, value, operand, width};
  meet(call);
  return call.result;
}

std::uint32_t ballot(const char* name, std::uint32_t mask, bool predicate, const std::source_location& where) {
  VoteCall call{{name, mask, where, __builtin_return_address(0), resolve_vote}, predicate};
  meet(call);
  return call.result;
}

void* shared_memory(std::size_t bytes, std::size_t alignment, const void* anchor, const std::source_location& where) {
  Lane& lane = lane_or_die();
  const SharedArena& arena = lane.block->arena();
  if (bytes > arena.bytes() || arena.begin() % alignment != 0) {
    lane.block->run().report("shared memory", place_of(where), __builtin_return_address(0), [&] {
      return "the kernel's struct takes " + std::to_string(bytes) + " bytes, the launch asked for " +
             std::to_string(arena.bytes());
    });
    lane.block->stop(lane);
  }
  lane.block->set_shared_type(anchor);
  return reinterpret_cast<void*>(arena.begin());
}

}  // namespace simt
