// 09_decoding, packed_heads: the query heads that share keys are rows of one mma.
//
// Step 05's kernel gives each query head a tile of 128 queries, of which one is there. With 4 heads on a key/value head, four
// blocks read the same keys, and each multiplies 127 rows of nothing. Here the rows of an mma are the query heads of a group,
// times the query tokens: K and V are read once for all of them.
//
//   block    an item: up to 16 rows, all their keys, in tiles of 16 keys a warp
//   warp     16 keys of every tile, for all rows. Its softmax knows only these keys, so warps merge at the end
//   lane     as in step 05: rows g and g + 8, columns 2t and 2t + 1
//
//   Smem     stage[2]   K and V of a tile, [warps][2][16][dim], swizzled. At the end the warps hand over O in the last one
//            states     (m, l) of each warp's rows
//
// What to expect: a group's keys are read once and not once a head: a quarter of the time of step 05 with 4 heads a group,
// where L2 does not help. But batch · kv_heads blocks may be fewer than SMs, and the loop waits at a barrier for each tile.
#pragma once

#include "steps/09_decoding/merge.cuh"

namespace decoding {

template <class T, class Tile>
struct PackedSmem {
  alignas(16) KeysAndValues<T, Tile::dim> stage[2][Tile::warps];
  SoftmaxState states[Tile::warps][item_rows];
};

// Starts to copy a block's tile of K, or of V (`which` is 1); rows that no query sees become zeros.
template <class T, class Tile>
__device__ void copy_tile(KeysAndValues<T, Tile::dim> (&to)[Tile::warps], int which, const Heads<const T>& from,
                          const Item& item, const Keys& seen, int tile) {
  constexpr int chunks = Tile::dim / chunk;
#pragma unroll 4
  for (int i = threadIdx.x; i < Tile::keys * chunks; i += Tile::threads) {
    const int row = i / chunks, column = i % chunks * chunk, key = tile * Tile::keys + row;
    const bool inside = seen.has(key);
    ptx::cp_async_16(&to[row / warp_keys][which][row % warp_keys][swizzled<Tile::dim>(row, column)],
                     &from.row(item.batch, item.kv_head, inside ? key : 0)[column], inside ? 16 : 0);
  }
}

// Grid: over items. Blocks of Tile::threads.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads) packed_heads(AttentionShape shape, Work work,
                                                              Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                              Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                              Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                              Outputs<T> outputs) {
  auto& smem = device::shared_storage<PackedSmem<T, Tile>>();
  const Item item = item_of(work, shape, blockIdx.x);
  const int warp = threadIdx.x / 32, begin = work.first_tile, end = begin + work.tiles;
  const auto request = [&](int tile) {
    auto& stage = smem.stage[tile % 2];
    if (tile < end) {
      copy_tile<T, Tile>(stage, 0, k, item, work.seen, tile);
      copy_tile<T, Tile>(stage, 1, v, item, work.seen, tile);
    }
    ptx::cp_async_commit_group();
  };
  // ---- prologue ----
  request(begin);
  WarpRows<T, Tile::dim> rows;
  rows.begin(shape, work, item, q);
  // ---- main loop ----
  // [doc: packed_loop]
  for (int tile = begin; tile < end; ++tile) {
    ptx::cp_async_wait_group<0>();  // this thread's part of the tile has come
    __syncthreads();                // everyone's part has come; and everyone has read the stage that is filled next
    request(tile + 1);
    auto& read = smem.stage[tile % 2][warp];
    rows.attend(item.keys, read[0], read[1], tile * Tile::keys + warp * warp_keys);
  }
  // [/doc: packed_loop]
  // ---- epilogue: behind the last tile no copy is under way ----
  const auto place = [&](int w) -> auto& { return smem.stage[(end - 1) % 2][w]; };
  merge_warps<Tile>(smem.states, rows, item.rows, place, [&](int row, int column, const SoftmaxState& state, const float4& o) {
    outputs.store_row(shape, work, item, row, column, state, o);
  });
}

}  // namespace decoding
