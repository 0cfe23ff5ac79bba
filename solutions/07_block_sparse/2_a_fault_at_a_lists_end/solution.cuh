// Exercise 2 of step 07, solved. The index two places on belongs to this list only if more than two tiles are left; the copy of
// another one reads 0 bytes. It still writes, and what it writes is a 0, which is a tile, too. So there is a next tile only if
// more than one tile is left, this one among them.
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
    if (threadIdx.x == 0) ptx::cp_async_4(&a.smem.after[stage], at + 2, left > 2 ? 4 : 0);
  };
  if (j >= 0) a.begin(queries, q, k, v, j, copy_index);
  const auto attend_tile = [&](auto masked) {
    a.attend(j, next, left > 1, masked, [&](int stage) {
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
