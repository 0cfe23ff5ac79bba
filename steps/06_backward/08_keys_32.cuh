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

#include "common/device/backward/slices.cuh"
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
  const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // uniform: not a register a lane
  const int first_key = blockIdx.x * wide_keys, kv_head = blockIdx.y, batch = blockIdx.z;
  const float scale_log2 = shape.scale * device::log2_e;
  const int warp_key = 16 * key_slices * warp;
  const QueryTiles tiles = query_tiles(shape, first_key, wide_keys, tile_rows);

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
  float* before = nullptr;  // sums of the tile whose dQ is left
  int stage_index = 0;      // of Q and dO, and of dS
  float acc_dk[key_slices][dim / 8][4] = {}, acc_dv[key_slices][dim / 8][4] = {};

  // dQ += dS K of a tile, whose dS lies in this buffer, to its sums: 32 queries × dim / 2 by each warp.
  const auto add_dq = [&](int buffer, float* sums) {
    const int row = warp / 2 * 32, column = warp % 2 * (dim / 2);
    float acc[key_slices][dim / 16][4] = {};
    multiply_tile_columns(acc, smem.ds[buffer], row, smem.k, column);
    add_slices<vector, dim>(sums, row, column, acc);
  };

  const auto attend_tile = [&](int head, int tile, auto is_masked) {
    auto& stage = smem.stage[stage_index];
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile has come for everyone; dS of the tile before is written; everyone has left what is filled now
    copy_next(stage_index ^ 1);
#pragma unroll 1
    for (int part = 0; part < tile_rows; part += part_rows) {
      // S^T = K Q^T, dP^T = V dO^T
      float s[key_slices][part_rows / 8][4] = {}, dp[key_slices][part_rows / 8][4] = {};
      std::uint32_t p_frag[part_rows / 16][key_slices][4], ds_frag[part_rows / 16][key_slices][4];
      multiply_rows(s, smem.k, warp_key, stage.q, part);
      // P = exp2(S - LSE)
#pragma unroll
      for (int n = 0; n < key_slices; ++n) {
        exponentiate(s[n], &stage.lse2[part], scale_log2);
        if constexpr (decltype(is_masked)::value) {
          mask_probabilities(s[n], shape, first_key + warp_key + 16 * n + lane / 4, tile * tile_rows + part);
        }
      }
      // dV += P^T dO
      pack_slices<T>(p_frag, s);
      multiply_kept(acc_dv, p_frag, stage.d_o, part);
      // dP^T = V dO^T, dS = P (dP - D)
      multiply_rows(dp, smem.v, warp_key, stage.d_o, part);
#pragma unroll
      for (int n = 0; n < key_slices; ++n) {
        times_probabilities(dp[n], s[n], &stage.minus_delta[part]);
        store_tile(smem.ds[stage_index], warp_key + 16 * n, part, dp[n]);
      }
      // dK += dS^T Q
      pack_slices<T>(ds_frag, dp);
      multiply_kept(acc_dk, ds_frag, stage.q, part);
    }
    if (before != nullptr) add_dq(stage_index ^ 1, before);
    before = &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim];
    stage_index ^= 1;
  };
  for_each_tile(shape, tiles, kv_head, attend_tile);

  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  if (before != nullptr) {
    __syncthreads();  // dS of the last tile is written
    add_dq(stage_index ^ 1, before);
  }
  float* flag = rows.flag(shape, batch, kv_head);
#pragma unroll
  for (int s = 0; s < key_slices; ++s) {
    store_rows(dk, batch, kv_head, first_key + warp_key + 16 * s, shape.seq_k, shape.scale, acc_dk[s], flag);
    store_rows(dv, batch, kv_head, first_key + warp_key + 16 * s, shape.seq_k, 1.0f, acc_dv[s], flag);
  }
}

}  // namespace backward
