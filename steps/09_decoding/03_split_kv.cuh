// 09_decoding, split_kv: blocks split the keys of an item, and a second kernel merges their parts.
// Predecessor: 02_warp_rings.cuh
//
// One sequence with 8 key/value heads has 8 items: `warp_rings` leaves 124 of 132 SMs idle. Here `splits` blocks share an
// item's keys (Flash-Decoding). Each writes its (m, l, O) to global memory, and `combine` merges them in the order of the keys:
// the result is the same in every run.
//
//   block    item blockIdx.x / splits, and part blockIdx.x % splits of its tiles; a part may be empty
//   parts    [items, splits, 16] rows of O in fp32, and (m, l)
//
// What to expect: 1 × 32,768 keys near what all SMs can read, plus two microseconds for the second launch.
#pragma once

#include "steps/09_decoding/02_warp_rings.cuh"

namespace decoding {

// Grid: over items and, within, over splits. Blocks of Tile::threads.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads) split_kv(AttentionShape shape, Work work,
                                                          Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                          Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                          Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                          int splits, Parts<Tile::dim> parts) {
  auto& smem = device::shared_storage<RingSmem<T, Tile>>();
  const int number = blockIdx.x / splits, part = blockIdx.x - number * splits;
  const Item item = item_of(work, shape, number);
  const TileRange tiles = part_of_tiles(item.keys, part, splits);
  KeyRing<T, Tile> ring(smem, shape, k, v);
  ring.request_first(item, tiles);
  WarpRows<T, Tile::dim> rows;
  rows.begin(shape, work, item, q);
  ring.attend_all(rows, item, tiles);
  ring.merge(rows, item.rows, [&](int row, int column, const SoftmaxState& state, const float4& o) {
    parts.put(blockIdx.x, row, column, state, o);
  });
}

// Grid: over items.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads)
    combine(AttentionShape shape, Work work, int splits, Parts<Tile::dim> parts, Outputs<T> outputs) {
  const int number = blockIdx.x;
  parts.merge(
      splits, [=](int part) { return number * splits + part; }, shape, work, item_of(work, shape, number), outputs);
}

}  // namespace decoding
