// 07_block_sparse, prefetch: the next index is there before anyone asks for it.
// Predecessor: 03_two_loops.cuh
//
// The copies of the next tile need its index, and they begin with the mma of this tile. In `two_loops` the index is read right
// before: 300 to 600 cycles, in which the block does nothing. Here indices take the way of the tiles. With the copies of a tile
// comes the index of the tile two places behind it, and a lane finds it in shared memory when it needs it.
//
// A load into a register one tile ahead is not enough: nvcc keeps an index that all lanes share in a uniform register, and the
// instruction that moves it there waits for the load at once.
//
// What to expect: a wait for L1 or L2 less for each tile of 128 × 64 pairs, which two blocks of an SM hide in part.
#pragma once

#include "steps/07_block_sparse/attend.cuh"

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
  const int* at = tiles;         // this tile's place in the list
  int remaining = list.count();  // tiles, this one among them
  int j = remaining > 0 ? tiles[0] : -1;
  int next = remaining > 1 ? tiles[1] : 0;  // the one that is copied meanwhile
  // [doc: index_with_the_copies]
  const auto copy_index = [&](int stage) {
    if (threadIdx.x == 0) ptx::cp_async_4(&a.smem.after[stage], at + 2, remaining > 2 ? 4 : 0);
  };
  if (j >= 0) a.begin(tile, q, k, v, j, copy_index);
  const auto attend_tile = [&](auto masked) {
    a.attend(j, next, remaining > 1, masked, [&](int stage) {
      ++at;
      --remaining;
      copy_index(stage);
    });
    j = next;
    next = a.tile_after();
  };
  // [/doc: index_with_the_copies]
#pragma unroll 1
  while (remaining > list.full + list.left) attend_tile(std::true_type{});
#pragma unroll 1
  while (remaining > list.left) attend_tile(std::false_type{});
#pragma unroll 1
  while (remaining > 0) attend_tile(std::true_type{});
  a.finish(
      list.right + list.left, [&](int m) { return tiles[m < list.right ? m : m + list.full]; }, v, o, lse);
}

}  // namespace block_sparse
