// 07_block_sparse, test_per_block: step 05's tuned loop, with a test for each tile.
// Predecessor: 05_flash_v2/12_tuned.cuh
//
// A block looks at the mask before each tile of keys, from right to left, and skips the tiles that are dead. Copies run one
// tile ahead, so it is the next live tile that has to be found, while this one waits.
//
//   block   as in step 05: 128 queries, 4 warps
//   Smem    q[128][dim], stage[2] each with k[64][dim] and v[64][dim]
//
// What to expect: time in proportion to the live tiles, and a part that is not: the tests. A row of 256 tiles at 10 % live
// makes ten tests for each tile that it multiplies, each a read from global memory that all threads wait for. Every tile gets a
// mask.
#pragma once

#include "steps/07_block_sparse/attend.cuh"

namespace block_sparse {

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) sparse_test_per_block(typename Tile::Shape shape, Mask mask,
                                                                         Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                         Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                         Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                         Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                         float* lse) {      // [batch, heads, seq_q]
  const QueryTile tile = query_tile(shape, Tile::rows);
  const TileStates<typename Tile::Shape> states(shape, mask, tile.batch, tile.head, tile.first, tile.count);
  static_assert(Tile::keys == state_keys);
  // [doc: test_per_block]
  const auto live_up_to = [&](int j) {  // the last live tile up to j; −1: there is none
    while (j >= states.tiles.begin && states.of(j) == dead) --j;
    return j >= states.tiles.begin ? j : -1;
  };
  Attend<T, Tile, false> a(shape, {0, 0}, tile, k, v);
  const int first = live_up_to(states.tiles.end - 1);
  if (first >= 0) a.begin(tile, q, k, v, first, [](int) {});
#pragma unroll 1
  for (int j = first; j >= 0;) {
    const int next = live_up_to(j - 1);
    a.attend(j, next, next >= 0, std::true_type{}, [](int) {});
    j = next;
  }
  // [/doc: test_per_block]
  // A tile that is not live has no infinities to put back: rows see none of it.
  a.finish(
      states.tiles.end - states.tiles.begin,
      [&](int n) {
        const int j = states.tiles.begin + n;
        return states.of(j) == dead ? -1 : j;
      },
      v, o, lse);
}

}  // namespace block_sparse
