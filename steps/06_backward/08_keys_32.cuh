// 06_backward, keys_32: 32 keys a warp, and dQ one tile late.
// Predecessor: 07_pipeline.cuh
//
// A warp of `pipeline` loads a fragment of Q, dO or their columns for every two mma. Here a warp has 32 keys, two slices of 16,
// and each such fragment feeds four. A block has 128 keys. Of dQ each of the four warps has half of the queries and half of the
// columns: there, too, a fragment of K feeds four.
//
// And dQ waits: dS of a tile is multiplied one tile later, from the other of two buffers. Then the barrier at the top of the
// loop is enough. It says that dS of the tile before is written, that the tile has come, and that everyone has left what is
// filled now.
//
//   warp   32 keys × 32 queries of Sᵀ and dPᵀ at a time; dV and dK of these keys; dQ of 32 queries × dim / 2
//   Smem   k, v[128][dim], stage[2] as before, ds[2][128][64]
//
// dV and dK are 2 · dim accumulators a lane: dim ≤ 64.
//
// What to expect: 2.0 wavefronts for an mma instead of 3.3, half of the additions to dQ, one barrier for a tile: 1.6 times
// `pipeline`. 192 accumulators and 32 registers of fragments leave about 30 for all else; 128 threads and 109 KB: two blocks on
// an SM.
#pragma once

#include "common/device/backward/keys_warp.cuh"
#include "steps/06_backward/07_pipeline.cuh"

namespace backward {

// Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of tile_threads.
template <class T, int dim, bool vector>
__global__ void __launch_bounds__(tile_threads, 2) backward_keys_32(AttentionShape shape,
                                                                    Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                    Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                    Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                    Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                    RowStatistics rows,
                                                                    float* dq_sums,  // [batch, heads, padded, dim], in blocks
                                                                    Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                                                                    Heads<T> dv) {   // [batch, kv_heads, seq_k, dim]
  auto& smem = device::shared_storage<Keys32Smem<T, dim>>();
  const int first_key = blockIdx.x * wide_keys, kv_head = blockIdx.y, batch = blockIdx.z;
  const float scale_log2 = shape.scale * device::log2_e;
  const QueryTiles tiles = query_tiles(shape, first_key, wide_keys, tile_rows);
  KeysWarp<T, dim, vector> warp(smem);

  // ---- prologue: K, V and the first tile ----
  TileOfHead next = first_tile(shape, tiles, kv_head);  // the tile that is copied next
  copy_tile<tile_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
  copy_tile<tile_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
  const auto copy_next = [&](int stage) {
    if (next.there) copy_stage<tile_threads>(smem.stage[stage], shape, q, d_o, rows, batch, next.head, next.tile * tile_rows);
    ptx::cp_async_commit_group();
    advance(next, tiles);
  };
  copy_next(0);
  float* dq_before = nullptr;  // where dQ of the tile before goes, which is not added yet
  int stage_index = 0;         // of Q and dO, and of dS

  const auto attend_tile = [&](int head, int tile, auto is_masked) {
    auto& stage = smem.stage[stage_index];
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile has come for everyone; dS of the tile before is written; everyone has left what is filled now
    copy_next(stage_index ^ 1);
#pragma unroll 1
    for (int part = 0; part < tile_rows; part += part_rows) {
      KeysScores p = {}, ds = {};  // first S and dP
      KeysOperands operands;
      // S^T = K Q^T, P = exp2(S - LSE), dV += P^T dO
      multiply_rows(p, smem.k, warp.key, stage.q, part);
      warp.probabilities(p, &stage.lse2[part], scale_log2, first_key, [&](auto& of_slice, int key) {
        if constexpr (decltype(is_masked)::value) mask_probabilities(of_slice, shape, key, tile * tile_rows + part);
      });
      pack_slices<T>(operands, p);
      multiply_kept(warp.acc_dv, operands, stage.d_o, part);
      // dP^T = V dO^T, dS = P (dP - D), dK += dS^T Q
      multiply_rows(ds, smem.v, warp.key, stage.d_o, part);
#pragma unroll
      for (int n = 0; n < key_slices; ++n) {
        times_probabilities(ds[n], p[n], &stage.minus_delta[part]);
        store_tile(smem.ds[stage_index], warp.key + 16 * n, part, ds[n]);
      }
      pack_slices<T>(operands, ds);
      multiply_kept(warp.acc_dk, operands, stage.q, part);
    }
    if (dq_before != nullptr) warp.add_dq(stage_index ^ 1, dq_before);
    dq_before = &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim];
    stage_index ^= 1;
  };
  for_each_tile(shape, tiles, kv_head, attend_tile);

  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  if (dq_before != nullptr) {
    __syncthreads();  // dS of the last tile is written
    warp.add_dq(stage_index ^ 1, dq_before);
  }
  float* flag = rows.flag(shape, batch, kv_head);
  store_rows(dk, batch, kv_head, first_key + warp.key, shape.seq_k, shape.scale, warp.acc_dk, flag);
  store_rows(dv, batch, kv_head, first_key + warp.key, shape.seq_k, 1.0f, warp.acc_dv, flag);
}

}  // namespace backward
