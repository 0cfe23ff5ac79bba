// Exercise 2 of step 07: the index of the tile after the next comes with a tile's copies.
//
// That is the loop of 04_prefetch.cuh. The lists lie one behind the other in `tiles`. The kernel has a fault where a list ends.
// At the default shape O and LSE are right, and yet the simulator has reports. Mend the fault. The grader wants no report, and
// then not one byte more copied than the solution copies.
#pragma once

#include "steps/07_block_sparse/exercises/exercise.h"

namespace exercise {

using namespace block_sparse;

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
__global__ void __launch_bounds__(tile_threads) walk_lists(AttentionShape shape, Mask mask, Plan plan,
                                                           Heads<const __half> q,  // [batch, heads, seq_q, dim]
                                                           Heads<const __half> k,  // [batch, kv_heads, seq_k, dim]
                                                           Heads<const __half> v,  // [batch, kv_heads, seq_k, dim]
                                                           Heads<__half> o,        // [batch, heads, seq_q, dim]
                                                           float* lse) {           // [batch, heads, seq_q]
  const QueryTile queries = query_tile(shape, Tile::rows);
  const TileList list = load_list(&plan.lists[row_of(shape, queries)]);
  const int* tiles = plan.tiles + list.first;
  Attend<__half, Tile, true> a(shape, tokens_of(mask, queries.head), queries, k, v);
  const int* at = tiles;                                              // this tile's place in the list
  int left = list.count();                                            // tiles, this one among them
  int j = left > 0 ? tiles[0] : -1, next = left > 1 ? tiles[1] : -1;  // this tile, and the one that is copied meanwhile
  const auto copy_index = [&](int stage) {
    if (threadIdx.x == 0) ptx::cp_async_4(&a.smem.after[stage], at + 2);
  };
  if (j >= 0) a.begin(queries, q, k, v, j, copy_index);
  const auto attend_tile = [&](auto masked) {
    a.attend(j, next, next >= 0, masked, [&](int stage) {
      ++at;
      --left;
      copy_index(stage);
    });
    j = next;
    next = a.tile_after();
  };
#pragma unroll 1
  while (left > list.full + list.left) attend_tile(std::true_type{});
#pragma unroll 1
  while (left > list.left) attend_tile(std::false_type{});
#pragma unroll 1
  while (left > 0) attend_tile(std::true_type{});
  a.finish(
      list.right + list.left, [&](int m) { return tiles[m < list.right ? m : m + list.full]; }, v, o, lse);
}

}  // namespace exercise
