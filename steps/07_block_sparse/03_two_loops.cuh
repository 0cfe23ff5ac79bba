// 07_block_sparse, two_loops: full tiles have a loop of their own, without masks.
// Predecessor: 02_list.cuh
//
// The plan knows which tiles are full: every query sees every key. The list has them together, between the partial ones at the
// right edge and the other partial ones (TileList). So the loop is three loops, as step 05's peeled ones, and the one in the
// middle has no code for masks and no votes about NaNs.
//
// What to expect: nearly all tiles are full where there is no causal mask. There it gains what step 05's `edge_masks` gained.
#pragma once

#include "steps/07_block_sparse/attend.cuh"

namespace block_sparse {

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) sparse_two_loops(typename Tile::Shape shape, Plan plan,
                                                                    Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                    Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                    Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                    Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                    float* lse) {      // [batch, heads, seq_q]
  const QueryTile tile = query_tile(shape, Tile::rows);
  const TileList list = load_list(&plan.lists[row_of(shape, tile)]);
  const int* tiles = plan.tiles + list.first;
  Attend<T, Tile, false> a(shape, {0, 0}, tile, k, v);
  if (list.count() > 0) a.begin(tile, q, k, v, tiles[0], [](int) {});
  // [doc: three_loops]
  int n = 0;
  const auto attend_tile = [&](auto masked) {
    const int next = n + 1 < list.count() ? tiles[n + 1] : -1;
    a.attend(tiles[n], next, next >= 0, masked, [](int) {});
    ++n;
  };
#pragma unroll 1
  while (n < list.right) attend_tile(std::true_type{});
#pragma unroll 1
  while (n < list.right + list.full) attend_tile(std::false_type{});
#pragma unroll 1
  while (n < list.count()) attend_tile(std::true_type{});
  // [/doc: three_loops]
  a.finish(
      list.right + list.left, [&](int m) { return tiles[m < list.right ? m : m + list.full]; }, v, o, lse);
}

}  // namespace block_sparse
