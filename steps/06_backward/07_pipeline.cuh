// 06_backward, pipeline: copies of the next tile beside the products of this one, and masks only at the edges.
// Predecessor: 06_transposed.cuh
//
// In `transposed` everyone waits for Q and dO of each tile. Two ideas of step 05 apply here as they are. There are two stages
// for Q and dO: cp.async fills one while the other is multiplied. The row statistics come the same way. And the loop over tiles
// of queries is three loops: tiles on the causal diagonal or on the edge of a window need a mask, those between them do not.
// The heads that share the keys follow one another, so the next tile may be the first of the next head.
//
//   Smem   k, v[64][dim], stage[2] of q, d_o[64][dim], lse2, minus_delta[64]; ds[64][64]
//
// What to expect: 1.1 times `transposed`, because the copies are hidden. The two barriers of a tile stay. Shared memory stays
// the bound, with 3.3 wavefronts for an mma: at most 0.46 of the roof.
#pragma once

#include "common/device/backward/query_tiles.cuh"
#include "common/device/backward/rows.cuh"

namespace backward {

template <class T, int dim>
struct PipelineSmem {
  Tile<T, tile_keys, dim> k;
  Tile<T, tile_keys, dim> v;
  Stage<T, tile_rows, dim> stage[2];
  Tile<T, tile_keys, tile_rows> ds;
};

// Q, dO and the statistics of the queries first … of a head, to a stage.
template <int threads, class T, int rows, int dim>
__device__ void copy_stage(Stage<T, rows, dim>& stage, const AttentionShape& shape, const Heads<const T>& q,
                           const Heads<const T>& d_o, const RowStatistics& statistics, int batch, int head, int first) {
  copy_tile<threads>(stage.q, q, batch, head, first, shape.seq_q);
  copy_tile<threads>(stage.d_o, d_o, batch, head, first, shape.seq_q);
  static_assert(threads >= rows / 2);
  const int n = threadIdx.x % (rows / 4) * 4;  // the first rows / 4 threads copy 16 bytes of LSE each, the next of D
  const std::int64_t row = statistics.at(shape, batch, head, first + n);
  if (threadIdx.x < rows / 4) ptx::cp_async_16(&stage.lse2[n], &statistics.lse2[row]);
  if (threadIdx.x >= rows / 4 && threadIdx.x < rows / 2) ptx::cp_async_16(&stage.minus_delta[n], &statistics.minus_delta[row]);
}

// Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of tile_threads.
template <class T, int dim, bool vector>
__global__ void __launch_bounds__(tile_threads) backward_pipeline(AttentionShape shape,
                                                                  Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                  Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                  Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                  Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                  RowStatistics rows,
                                                                  float* dq_sums,  // [batch, heads, padded, dim], in blocks
                                                                  Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                                                                  Heads<T> dv) {   // [batch, kv_heads, seq_k, dim]
  auto& smem = device::shared_storage<PipelineSmem<T, dim>>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_key = blockIdx.x * tile_keys, kv_head = blockIdx.y, batch = blockIdx.z;
  const float scale_log2 = shape.scale * device::log2_e;
  const int lane_key = first_key + 16 * warp + lane / 4;
  const QueryTiles tiles = query_tiles(shape, first_key, tile_keys, tile_rows);

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
  int stage_index = 0;
  float acc_dk[dim / 8][4] = {}, acc_dv[dim / 8][4] = {};

  const auto attend_tile = [&](int head, int tile, auto is_masked) {
    auto& stage = smem.stage[stage_index];
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile, and before the first one K and V, have come for everyone; everyone has left the other stage
                      // and dS
    copy_next(stage_index ^ 1);
    const int first = tile * tile_rows;
#pragma unroll 1
    for (int part = 0; part < tile_rows; part += part_rows) {
      // S^T = K Q^T, dP^T = V dO^T
      float s[part_rows / 8][4] = {}, dp[part_rows / 8][4] = {};
      multiply_rows(s, smem.k, 16 * warp, stage.q, part);
      multiply_rows(dp, smem.v, 16 * warp, stage.d_o, part);
      // P = exp2(S - LSE), dS = P (dP - D)
      exponentiate(s, &stage.lse2[part], scale_log2);
      if constexpr (decltype(is_masked)::value) mask_probabilities(s, shape, lane_key, first + part);
      times_probabilities(dp, s, &stage.minus_delta[part]);
      store_tile(smem.ds, 16 * warp, part, dp);
      // dV += P^T dO, dK += dS^T Q
      multiply_kept(acc_dv, s, stage.d_o, part);
      multiply_kept(acc_dk, dp, stage.q, part);
    }
    __syncthreads();  // dS is written before the warps that have queries read it

    // dQ += dS K, of queries 16 · warp …
    float* sums = &dq_sums[rows.at(shape, batch, head, first + 16 * warp) * dim];
#pragma unroll
    for (int column = 0; column < dim; column += 16) {
      float acc[2][4] = {};
      multiply_tile_columns(acc, smem.ds, 16 * warp, smem.k, column);
      add_block<vector>(&sums[column / 16 * sums_block], acc[0], acc[1]);
    }
    stage_index ^= 1;
  };
  for_each_tile(shape, tiles, kv_head, attend_tile);

  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  float* flag = rows.flag(shape, batch, kv_head);
  store_rows(dk, batch, kv_head, first_key + 16 * warp, shape.seq_k, shape.scale, acc_dk, flag);
  store_rows(dv, batch, kv_head, first_key + 16 * warp, shape.seq_k, 1.0f, acc_dv, flag);
}

}  // namespace backward
