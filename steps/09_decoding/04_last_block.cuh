// 09_decoding, last_block: the block that comes last merges the parts.
// Predecessor: 03_split_kv.cuh
//
// `split_kv` starts a second kernel when the last block of the first one has ended. Here each block counts itself when its part
// is in global memory. The one that finds all others counted merges the parts. Still in the order of the keys, so that the
// result does not depend on who was last.
//
//   arrived[items]   blocks that have written their part. All are 0 before the launch: somebody must clear them, and that is a
//                    small launch, too, unless a caller keeps the memory from launch to launch
//   Smem             last: whether this block merges
//
// What to expect: one microsecond less than `split_kv` where the launch is short; nothing where it is long.
#pragma once

#include "steps/09_decoding/03_split_kv.cuh"

namespace decoding {

template <class T, class Tile>
struct LastSmem : RingSmem<T, Tile> {
  int last;
};

// Grid: over items.
__global__ void clear_arrived(int items, int* arrived) {
  const int n = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (n < items) arrived[n] = 0;
}

// Grid: over items and, within, over splits. Blocks of Tile::threads.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads) last_block(AttentionShape shape, Work work,
                                                            Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                            Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                            Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                            int splits, Parts<Tile::dim> parts,
                                                            int* arrived,  // [items], all 0
                                                            Outputs<T> outputs) {
  auto& smem = device::shared_storage<LastSmem<T, Tile>>();
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
  // [doc: last_block]
  // The merge ends with a barrier: all threads have written their share of the part.
  if (threadIdx.x == 0) {
    __threadfence();  // the part is there before it is counted
    smem.last = atomicAdd(&arrived[number], 1) == splits - 1;
    __threadfence();  // all parts were counted before any is read
  }
  __syncthreads();  // thread 0 has found out whether all parts are there
  if (smem.last) {
    parts.merge(
        splits, [=](int i) { return number * splits + i; }, shape, work, item, outputs);
  }
  // [/doc: last_block]
}

}  // namespace decoding
