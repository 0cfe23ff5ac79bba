// What lanes do together: barriers, shuffles, votes, and shared memory.
#include "common/simt/collectives.h"

#include <algorithm>
#include <bit>

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
    lane.block->run().report("caller not in mask", place_of(call.where), call.pc, [&] {
      return call.describe() + " was called by a lane that the mask does not name\n  by " + lane.block->describe(lane);
    });
    lane.block->stop(lane);
  }
  lane.call = behind_products(lane, &call);
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

bool same_line(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column();
}

// Instructions that the warp makes of it: one at each place where a lane stands, and two where 64 bits are shuffled.
std::uint64_t instructions_of(WarpCall* const calls[warp_size]) {
  std::uint64_t places = 0;
  int bytes = 4;
  for (int lane = 0; lane < warp_size; ++lane) {
    if (calls[lane] == nullptr) continue;
    bytes = calls[lane]->bytes;
    const auto there = [&](const WarpCall* other) { return other != nullptr && same_line(other->where, calls[lane]->where); };
    places += std::none_of(calls, calls + lane, there);
  }
  return bytes == 8 ? 2 * places : places;
}

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
  if (block.run().counting) block.counters().shuffle(instructions_of(calls));
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
  note_traced(lane, "bar.sync", 0, __builtin_return_address(0));
  lane.block->arrive(lane, false, where, __builtin_return_address(0));
}

bool barrier_or(bool predicate, const std::source_location& where) {
  Lane& lane = lane_or_die();
  note_traced(lane, "bar.red.or", 0, __builtin_return_address(0));
  return lane.block->arrive(lane, predicate, where, __builtin_return_address(0));
}

void warp_barrier(std::uint32_t mask, const std::source_location& where) {
  WarpCall call{"__syncwarp", mask, where, __builtin_return_address(0), [](Block& block, Warp& warp, WarpCall* const* calls) {
                  std::vector<std::uint32_t> lanes;
                  for (int lane = 0; lane < warp.count; ++lane) {
                    if (calls[lane] != nullptr) lanes.push_back(static_cast<std::uint32_t>(warp.lanes[lane].index));
                  }
                  block.order().meet(lanes);
                  const bool all = lanes.size() == static_cast<std::size_t>(warp.count);
                  for (int lane = 0; all && lane < warp.count; ++lane)
                    warp.lanes[lane].marker.begin_epoch(block.order().epoch());
                }};
  call.spares_exited = true;
  meet(call);
}

void bar_sync(int id, int threads, const std::source_location& where) {
  Lane& lane = lane_or_die();
  note_traced(lane, "bar.sync", id, __builtin_return_address(0));
  lane.block->arrive_named(lane, {"bar.sync", id, threads, where, __builtin_return_address(0)});
}

void barrier_sync(int id, int threads, const std::source_location& where) {
  Lane& lane = lane_or_die();
  note_traced(lane, "barrier.sync", id, __builtin_return_address(0));
  lane.block->arrive_named(lane, {"barrier.sync", id, threads, where, __builtin_return_address(0)});
}

void bar_arrive(int id, int threads, const std::source_location& where) {
  Lane& lane = lane_or_die();
  note_traced(lane, "bar.arrive", id, __builtin_return_address(0));
  lane.block->arrive_named(lane, {"bar.arrive", id, threads, where, __builtin_return_address(0)});
}

void fence(Scope scope) {
  const Lane& lane = lane_or_die();
  lane.block->order().fence(static_cast<std::uint32_t>(lane.index), scope);
}

std::uint64_t shuffle(const char* name, Shuffle mode, std::uint32_t mask, std::uint64_t value, int bytes, int operand,
                      int width, const std::source_location& where) {
  const void* const pc = __builtin_return_address(0);
  if (width < 1 || width > warp_size || !std::has_single_bit(static_cast<unsigned>(width))) {
    const Lane& lane = lane_or_die();
    lane.block->run().report("shuffle misuse", place_of(where), pc, [&] {
      return std::string(name) + " of width " + std::to_string(width) + ": it is 1, 2, 4, 8, 16 or 32\n  by " +
             lane.block->describe(lane);
    });
    width = warp_size;
  }
  ShuffleCall call{{name, mask, where, pc, resolve_shuffle}, mode, value, operand, width};
  call.bytes = bytes;
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
