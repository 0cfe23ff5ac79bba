// 07_block_sparse, prefetch: the next index is fetched one tile ahead.
// Predecessor: 03_two_loops.cuh
//
// The copies of the next tile need its index, and they begin with the mma of this tile. In `two_loops` the index is read right
// before: 300 to 600 cycles, in which the block does nothing. Here the index after the next one is read while this tile is
// multiplied.
//
// What to expect: a wait for L1 or L2 less for each tile of 128 × 64 pairs, which two blocks of an SM hide in part.
#pragma once

#include "steps/07_block_sparse/03_two_loops.cuh"

namespace block_sparse {

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) sparse_prefetch(typename Tile::Shape shape, Plan plan,
                                                                   Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                   Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                   Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                   Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                   float* lse) {      // [batch, heads, seq_q]
  const QueryTile tile = query_tile(shape, Tile::rows);
  const TileList list = load_list(&plan.lists[row_of(shape, tile)]);
  const int* tiles = plan.tiles + list.first;
  Attend<T, Tile, false> a(shape, {0, 0}, tile, k, v);
  int left = list.count();                                            // tiles, this one among them
  int j = left > 0 ? tiles[0] : -1, next = left > 1 ? tiles[1] : -1;  // this tile, and the one that is copied meanwhile
  const int* at = tiles;
  if (j >= 0) a.begin(tile, q, k, v, j);
  const auto attend_tile = [&](auto masked) {
    const int tile_after = left > 2 ? at[2] : -1;  // comes while this tile is multiplied
    a.attend(j, next, masked);
    j = next;
    next = tile_after;
    ++at;
    --left;
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

}  // namespace block_sparse
