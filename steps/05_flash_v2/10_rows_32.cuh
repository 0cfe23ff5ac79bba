// 05_flash_v2, rows_32: 32 rows a warp.
// Predecessor: 09_addresses.cuh
//
// Every instruction beside an mma takes time from the tensor core (step 02 measured it). In `registers` a warp of 16 rows loads
// a fragment of K or V for one mma. Here a warp has 32 rows, two slices of 16, and each fragment of K and V feeds two mma.
//
//   block   128 queries, 4 warps; two blocks on an SM
//   Smem    q[128][dim]   up to dim 64 the fragments of Q stay in registers. At dim 128 the accumulator of O needs these
//                         registers, so the fragments of Q are loaded again for each tile of keys
//           stage[2]      each with k[64][dim] and v[64][dim]; swizzled. 96 KB in all at dim 128
//
// What to expect: half as many ldmatrix for each mma of K and V, because a fragment is used twice as often: 32 ldmatrix for 128
// mma at dim 64, where `addresses` has 32 for 64. And half as many copies, because K and V are read once for 128 queries.
#pragma once

#include "common/device/flash_v2/tuned_tile.cuh"
#include "steps/05_flash_v2/06_folded_scale.cuh"

namespace flash_v2 {

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) flash_rows_32(AttentionShape shape,
                                                                 Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                 Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                 Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                 Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                 float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<TunedSmem<T, Tile>>();
  constexpr int dim = Tile::dim, keys = Tile::keys, slices = Tile::slices;
  const QueryTile tile = query_tile(shape, Tile::rows);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, keys);
  const int warp_row = __shfl_sync(all_lanes, threadIdx.x / 32, 0) * 16 * slices;  // the same for all lanes: nvcc sees it
  const float scale_log2 = magnitude(shape.scale);

  // ---- prologue ----
  if (tiles.begin < tiles.end) {
    copy_rows(smem.q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    copy_rows(smem.stage[0].k, k, tile.batch, tile.kv_head, (tiles.end - 1) * keys, shape.seq_k);
    copy_rows(smem.stage[0].v, v, tile.batch, tile.kv_head, (tiles.end - 1) * keys, shape.seq_k);
    ptx::cp_async_commit_group();
    if (shape.scale <= 0.0f) {
      ptx::cp_async_wait_group<0>();  // this thread's part of Q has come: it multiplies only that
      apply_sign<T, tile_threads>(smem.q, shape.scale);
    }
  }
  NextTile<T, dim, keys> next_tile(k, v, tile, tiles.end - 2);
  WarpOperands<T, Tile> warp;
  float acc[slices][dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[slices][2];
#pragma unroll
  for (int i = 0; i < slices; ++i) states[i][0] = states[i][1] = {};  // nvcc 13.0 does so for the first slice alone

  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  int stage_index = 0;           // of this tile
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](int j, auto masked) {
    auto& stage = smem.stage[stage_index];
    auto& next_stage = smem.stage[stage_index ^ 1];
    ptx::cp_async_wait_group<0>();   // this thread's part of the tile has come, and of Q
    guard.barrier<masked>(stage.v);  // __syncthreads(), with a vote on NaNs in V where keys are masked
    // So has everyone's; and everyone has read the other stage: it is filled next.
    if (j == tiles.end - 1) warp.keep_q(smem.q, warp_row);
    if (j > tiles.begin) next_tile.load(next_stage);
    ptx::cp_async_commit_group();
    stage_index ^= 1;
    next_tile.move(-1);

    // S = Q K^T
    float s[slices][keys / 8][4] = {};
    scores<T, Tile>(s, warp, smem.q, warp_row, stage.k, [](int) {});
    if constexpr (masked) mask_slices(s, shape, tile.first + warp_row, j * keys);
      // row maximum, P = exp2(S - m), rescale
#pragma unroll
    for (int i = 0; i < slices; ++i) softmax_folded(s[i], scale_log2, states[i], acc[i]);
    guard.take_out(stage.v);
    // O += P V
#pragma unroll
    for (int g = 0; g < keys / 16; ++g) {
      std::uint32_t p_frag[slices][4];
#pragma unroll
      for (int i = 0; i < slices; ++i) as_operand<T>(p_frag[i], s[i], g);
#pragma unroll
      for (int step = 0; step < dim / 16; ++step) {
        std::uint32_t v_frag[4];
        ptx::ldmatrix_x4_trans(v_frag, bytes_beyond(&stage.v[16 * g][0], columns_beyond<dim>(warp.a_from, step)));
        mma_slices<T>(acc, 2 * step, p_frag, v_frag);
      }
    }
  };
  for_each_tile(tiles, attend_tile);
  // ---- epilogue: O and LSE ----
  finish_slices(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, keys, v, o);
}

}  // namespace flash_v2
