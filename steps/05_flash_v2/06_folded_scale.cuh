// 05_flash_v2, folded_scale: scale and maximum in one FMA.
// Predecessor: 05_edge_masks.cuh
//
// `edge_masks` multiplies every score by the scale, and subtracts the row's maximum before the exponential: two instructions
// for each score. 2^(s · scale_log2 − m) is one FMA and one ex2, with scale_log2 = |scale| · log2(e). The maximum is then
// looked for among the scores as they are, so scale_log2 must be positive: Q takes the sign of the scale (extremes.cuh).
//
//   Smem   as in `pipeline`
//
// What to expect: one multiplication less for each of a lane's 32 scores: 32 of about 440 instructions a tile at dim 64.
#pragma once

#include "common/device/flash_v2/extremes.cuh"
#include "steps/05_flash_v2/04_pipeline.cuh"

namespace flash_v2 {

// softmax_tile for scores as the mma left them: the FMA that subtracts the maximum brings them to base 2, too. scale_log2 > 0.

// [doc: softmax_folded]
template <int frags, int columns>
__device__ void softmax_folded(float (&s)[frags][4], float scale_log2, SoftmaxState (&states)[2], float (&acc)[columns][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // row maximum
    float lane_max = -INFINITY;
#pragma unroll
    for (int p = 0; p < frags; ++p) {
      lane_max = fmaxf(lane_max, fmaxf(s[p][2 * r], s[p][2 * r + 1]));
    }
    float row_max = states[r].m;
    row_max = fmaxf(row_max, quad_maximum(lane_max) * scale_log2);
    const float factor = device::rescale_factor(states[r].m, row_max), subtract = device::safe_maximum(row_max);
    float to_base_2 = scale_log2;
    if (fabsf(row_max) > fma_limit) {
      round_products(s, r, scale_log2);
      to_base_2 = 1.0f;
    }
    // P = exp2(S - m)
    float row_sum = states[r].l * factor;  // of this lane's keys; the epilogue adds the four lanes
#pragma unroll
    for (int p = 0; p < frags; ++p) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[p][2 * r + e] = device::exp2_fast(fmaf(s[p][2 * r + e], to_base_2, -subtract));
        row_sum += s[p][2 * r + e];
      }
    }
    states[r].m = row_max;
    states[r].l = row_sum;
    // rescale
#pragma unroll
    for (int p = 0; p < columns; ++p) {
#pragma unroll
      for (int e = 0; e < 2; ++e) acc[p][2 * r + e] *= factor;
    }
  }
}
// [/doc: softmax_folded]

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads, 2) flash_folded_scale(AttentionShape shape,
                                                                      Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                      Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                      Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                      Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                      float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<PipelineSmem<T, dim>>();
  const QueryTile tile = query_tile(shape, tile_rows);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float scale_log2 = magnitude(shape.scale);
  RowKeys rows[2];
  visible_keys(shape, tile.first + warp_row, rows);

  const auto copy_tile = [&](int j) {
    auto& stage = smem.stage[j % 2];
    copy_rows(stage.k, k, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    copy_rows(stage.v, v, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    ptx::cp_async_commit_group();
  };

  float acc[dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  // ---- prologue ----
  if (tiles.begin < tiles.end) {
    copy_rows(smem.q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    if (shape.scale <= 0.0f) {
      ptx::cp_async_wait_all();  // this thread's part of Q has come: it multiplies only that
      apply_sign<T, tile_threads>(smem.q, shape.scale);
    }
    copy_tile(tiles.end - 1);
  }
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](int j, auto masked) {
    auto& stage = smem.stage[j % 2];
    ptx::cp_async_wait_group<0>();   // this thread's part of the tile has come, and of Q
    guard.barrier<masked>(stage.v);  // __syncthreads(), with a vote on NaNs in V where keys are masked
    // Behind this barrier everyone's part has come; and everyone has read the other stage, which is filled next.
    if (j > tiles.begin) copy_tile(j - 1);

    // S = Q K^T
    float s[score_frags][4] = {};
#pragma unroll
    for (int step = 0; step < dim; step += 16) {
      std::uint32_t q_frag[4];
      load_q(q_frag, smem.q, warp_row, step);
#pragma unroll
      for (int p = 0; p < score_frags; p += 2) {
        std::uint32_t k_frag[4];
        load_k(k_frag, stage.k, 8 * p, step);
        mma_two<T>(s[p], s[p + 1], q_frag, k_frag);
      }
    }
    if constexpr (masked) mask_scores(s, rows, j * tile_keys);
    // row maximum, P = exp2(S - m), rescale
    softmax_folded(s, scale_log2, states, acc);
    guard.take_out(stage.v);
    // O += P V
#pragma unroll
    for (int step = 0; step < tile_keys / 16; ++step) {
      std::uint32_t p_frag[4];
      as_operand<T>(p_frag, s, step);
#pragma unroll
      for (int p = 0; p < dim / 8; p += 2) {
        std::uint32_t v_frag[4];
        load_v(v_frag, stage.v, 16 * step, 8 * p);
        mma_two<T>(acc[p], acc[p + 1], p_frag, v_frag);
      }
    }
  };
  for_each_tile(tiles, attend_tile);
  // ---- epilogue: O and LSE ----
  finish_rows<T, true>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
