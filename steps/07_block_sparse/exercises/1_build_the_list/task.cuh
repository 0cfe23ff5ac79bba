// Exercise 1 of step 07: the lists of live tiles.
//
// Write build_lists. A warp has a tile of queries, which is a row, and writes the row's TileList and its tiles of keys:
//
//     tiles[first …]   the partial tiles to the right of the first full one, then the full tiles, then the other partial tiles;
//                      in each of the three the last tile of the keys comes first
//     lists[row]       first = row · most; right, full and left: how many of each. Without a full tile all tiles are right
//
// The kernel writes nothing else. Look at TileStates in mask.h, and not at lists.cuh, which has a solution.
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
  (void)states, (void)lane, (void)most, (void)lists, (void)tiles;
}

}  // namespace exercise
