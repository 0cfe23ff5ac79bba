// Exercise 1 of step 07, solved: the row is walked twice. The first walk counts, so that the second one knows where the full
// tiles begin, and the left ones. Whether a partial tile lies to the right of all full ones is known from the lanes with full
// tiles, and from the rounds before this one.
#pragma once

#include "steps/07_block_sparse/plan.cuh"

namespace exercise {

using namespace block_sparse;
using block_sparse::all_lanes;

// Grid: x over rows, count_warps a block.
__global__ void __launch_bounds__(32 * count_warps) build_lists(AttentionShape shape, Mask mask, PlanSizes sizes,
                                                                int most,         // tiles of keys that there are
                                                                TileList* lists,  // [rows]
                                                                int* tiles) {     // [rows, most]
  const int row = blockIdx.x * count_warps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= sizes.rows) return;
  const int head = row / sizes.rows_of_head;  // of all batch entries
  // What a tile of keys is for these queries: states.of(tile). Live ones are among states.tiles.begin … states.tiles.end − 1.
  const TileStates<AttentionShape> states(shape, mask, head / shape.heads, head % shape.heads,
                                          row % sizes.rows_of_head * sizes.tile_queries, sizes.tile_queries);

  // Calls visit(state, lanes with right tiles, with full ones, with left ones, tile): 32 tiles a round, a lane has one.
  const auto walk = [&](const auto& visit) {
    bool full_before = false;  // in an earlier round
    for (int last = states.tiles.end - 1; last >= states.tiles.begin; last -= 32) {
      const TileState state = states.of(last - lane);
      const unsigned full_lanes = __ballot_sync(all_lanes, state == full);
      const unsigned partial_lanes = __ballot_sync(all_lanes, state == partial);
      const unsigned up_to_full = full_lanes == 0 ? all_lanes : (full_lanes & -full_lanes) - 1;  // lanes before the first one
      const unsigned right_lanes = full_before ? 0 : partial_lanes & up_to_full;
      visit(state, right_lanes, full_lanes, partial_lanes & ~right_lanes, last - lane);
      full_before |= full_lanes != 0;
    }
  };

  TileList list{row * most, 0, 0, 0};
  walk([&](TileState, unsigned right_lanes, unsigned full_lanes, unsigned left_lanes, int) {
    list.right += __popc(right_lanes);
    list.full += __popc(full_lanes);
    list.left += __popc(left_lanes);
  });
  if (lane == 0) store(reinterpret_cast<int4*>(&lists[row]), make_int4(list.first, list.right, list.full, list.left));

  int right_at = list.first, full_at = right_at + list.right, left_at = full_at + list.full;
  walk([&](TileState state, unsigned right_lanes, unsigned full_lanes, unsigned left_lanes, int tile) {
    const unsigned before = (1u << lane) - 1;  // lanes
    const bool is_right = right_lanes >> lane & 1;
    if (state == full) tiles[full_at + __popc(full_lanes & before)] = tile;
    if (state == partial && is_right) tiles[right_at + __popc(right_lanes & before)] = tile;
    if (state == partial && !is_right) tiles[left_at + __popc(left_lanes & before)] = tile;
    right_at += __popc(right_lanes);
    full_at += __popc(full_lanes);
    left_at += __popc(left_lanes);
  });
}

}  // namespace exercise
