// 06_backward, tuned_64: addresses made once, copies between the mma, dP from −D on.
// Predecessor: 08_keys_32.cuh
//
// Four things are left beside the mma of `keys_32`.
//
//   addresses   a thread's copies are whole passes of rows apart: one pointer each for Q and dO, made once. How far a tile is
//               from the first is the same for all threads: no register of a lane holds it
//   stores      one stmatrix writes four 8 × 8 matrices of dS
//   copies      go out between the steps of Sᵀ, not all at once: the load-store unit takes the ldmatrix of the mma in between
//   −D          is where the accumulators of dPᵀ begin: the first mma takes it as C, and dS is one product
//   the rest    is as in `keys_32`: what warps and Smem hold, and why dQ waits for a tile
//
// What to expect: the same bound and fewer instructions: one stmatrix for four stores, 64 additions for a lane and tile less,
// addresses out of the loop. 1.15 times `keys_32`, 360 TFLOP/s.
#pragma once

#include "common/device/backward/keys_warp.cuh"

namespace backward {

// with_dq: false for `deterministic`, which makes dQ elsewhere.
// Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of tile_threads.
template <class T, int dim, bool with_dq = true, class Shape = AttentionShape>
__global__ void __launch_bounds__(tile_threads, 2) backward_tuned_64(Shape shape,
                                                                     Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                     Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                     Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                     Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                     RowStatistics rows,
                                                                     float* dq_sums,  // [batch, heads, padded, dim], in blocks
                                                                     Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                                                                     Heads<T> dv) {   // [batch, kv_heads, seq_k, dim]
  auto& smem = device::shared_storage<Keys32Smem<T, dim>>();
  TunedKeysWarp<T, dim, Shape> warp(smem);
  const int first_key = blockIdx.x * wide_keys, kv_head = blockIdx.y, batch = blockIdx.z;
  const float scale_log2 = shape.scale * device::log2_e;
  const QueryTiles tiles = query_tiles(shape, first_key, wide_keys, tile_rows);

  // ---- prologue: K, V and the first tile ----
  TileOfHead next = first_tile(shape, tiles, kv_head);  // the tile that is copied next
  copy_tile<tile_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
  copy_tile<tile_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
  const StageCopies<tile_threads, T, tile_rows, dim> copies(shape, q, d_o, rows, batch);
  copies.copy_share(smem.stage[0].q, smem.stage[0].d_o, next, 0, 1);
  copies.copy_statistics(smem.stage[0].lse2, smem.stage[0].minus_delta, next);
  ptx::cp_async_commit_group();
  float* dq_before = nullptr;  // where dQ of the tile before goes, which is not added yet
  int stage_index = 0;         // of Q and dO, and of dS

  const auto attend_tile = [&](int head, int tile, auto is_masked) {
    auto &stage = smem.stage[stage_index], &next_stage = smem.stage[stage_index ^ 1];
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile has come for everyone; dS of the tile before is written; everyone has left what is filled now
    advance(next, tiles);
    copies.copy_statistics(next_stage.lse2, next_stage.minus_delta, next);
    // [doc: products_of_a_tile]
#pragma unroll
    for (int part = 0; part < tile_rows; part += part_rows) {
      const int query = tile * tile_rows + part;
      KeysScores p = {}, acc_dp;
      KeysOperands ds_frag;
      // S^T = K Q^T, and the copies; P = exp2(S - LSE); dV += P^T dO
      warp.scores(p, stage.q, part, [&](int step) {
        if (part == 0) copies.copy_share(next_stage.q, next_stage.d_o, next, step, dim / 16);
      });
      warp.probabilities(p, &stage.lse2[part], scale_log2, first_key, [&](auto& of_slice, int key) {
        if constexpr (decltype(is_masked)::value) mask_probabilities(of_slice, shape, key, query);
      });
      drop(p, shape, batch, head, query, first_key + warp.key);
      warp.add_dv(p, stage.d_o, part);
      // dP^T - D = V dO^T - D; dS = P (dP - D); dK += dS^T Q
      warp.dp(acc_dp, stage.d_o, part, stage.minus_delta);
      warp.ds(ds_frag, acc_dp, p, shape, &stage.minus_delta[part]);
      if constexpr (with_dq) store_slices(smem.ds[stage_index], warp.key, part, ds_frag);
      warp.add_dk(ds_frag, stage.q, part);
    }
    // [/doc: products_of_a_tile]
    ptx::cp_async_commit_group();
    if (with_dq && dq_before != nullptr) warp.add_dq(stage_index ^ 1, dq_before);
    if constexpr (with_dq) dq_before = &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim];
    stage_index ^= 1;
  };
  for_each_tile(shape, tiles, kv_head, attend_tile);

  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  if (with_dq && dq_before != nullptr) {
    __syncthreads();  // dS of the last tile is written
    warp.add_dq(stage_index ^ 1, dq_before);
  }
  device::multiply_by_factor(warp.acc_dv, shape);
  float* flag = rows.flag(shape, batch, kv_head);
  store_rows(dk, batch, kv_head, first_key + warp.key, shape.seq_k, shape.scale, warp.acc_dk, flag);
  store_rows(dv, batch, kv_head, first_key + warp.key, shape.seq_k, 1.0f, warp.acc_dv, flag);
}

}  // namespace backward
