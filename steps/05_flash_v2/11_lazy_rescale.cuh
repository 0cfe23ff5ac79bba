// 05_flash_v2, lazy_rescale: a reference maximum that seldom moves.
// Predecessor: 10_rows_32.cuh
//
// `rows_32` multiplies the accumulator of O by 2^(m_old − m_new) for every tile, though m seldom grows after the first tiles.
// And 2^(s − m) needs m only against overflow: P and its sum may be 2^8 times too large, because the division in the epilogue
// takes that out. So m stays until a row's maximum is more than 8 above it, in base 2; then, rarely, O is multiplied. That is
// lazy rescaling, as in FlashAttention-4. Each row decides for itself; the warp's vote only skips multiplications by 1.
//
// m begins at the lowest number, not at −∞. Then a score of −∞ needs no care: −∞ − m is never ∞ − ∞. Maxima beyond fma_limit
// are looked for at the same place.
//
//   Smem   as in `rows_32`
//
// What to expect: for each lane and tile one vote replaces 64 multiplications of O at dim 64, or 128 at dim 128, because m
// moves only in the first tiles. The shuffles for the maximum of a row disappear, too: a lane compares its own maximum with m.
#pragma once

#include "common/device/flash_v2/tuned_tile.cuh"

namespace flash_v2 {

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) flash_lazy_rescale(AttentionShape shape,
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
  for (int s = 0; s < slices; ++s) states[s][0] = states[s][1] = {lowest, 0.0f};
  float to_base_2 = 1;           // as lazy_rescale leaves it where some m is beyond fma_limit: all m begin there
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
    // row maximum; rescale where it has grown too far
    lazy_rescale(s, scale_log2, to_base_2, states, acc);
    guard.take_out(stage.v);
    // P = exp2(S - m), O += P V
#pragma unroll
    for (int g = 0; g < keys / 16; ++g) {
      std::uint32_t p_frag[slices][4];
#pragma unroll
      for (int i = 0; i < 4 * slices; ++i) exponentials<T>(p_frag, states, s, to_base_2, g, i);
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
