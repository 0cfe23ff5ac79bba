// 07_block_sparse, list: the live tiles come from a list.
// Predecessor: 01_test_per_block.cuh
//
// The mask is looked at once, by the kernels of plan.cuh, and each tile of queries has a list of its live tiles of keys. The
// loop walks along it: no test is left.
//
// What to expect: the tests of `test_per_block` disappear from the loop, and a launch or three come before it. What remains is
// one read for each tile, for which the copies of the next tile wait. Still every tile gets a mask.
#pragma once

#include "steps/07_block_sparse/attend.cuh"

namespace block_sparse {

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) sparse_list(typename Tile::Shape shape, Plan plan,
                                                               Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                               Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                               Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                               Heads<T> o,        // [batch, heads, seq_q, dim]
                                                               float* lse) {      // [batch, heads, seq_q]
  const QueryTile tile = query_tile(shape, Tile::rows);
  // [doc: walk_a_list]
  const TileList list = load_list(&plan.lists[row_of(shape, tile)]);
  const int* tiles = plan.tiles + list.first;
  Attend<T, Tile, false> a(shape, {0, 0}, tile, k, v);
  if (list.count() > 0) a.begin(tile, q, k, v, tiles[0], [](int) {});
#pragma unroll 1
  for (int n = 0; n < list.count(); ++n) {
    const int next = n + 1 < list.count() ? tiles[n + 1] : -1;
    a.attend(tiles[n], next, next >= 0, std::true_type{}, [](int) {});
  }
  // [/doc: walk_a_list]
  a.finish(
      list.count(), [&](int n) { return tiles[n]; }, v, o, lse);
}

}  // namespace block_sparse
