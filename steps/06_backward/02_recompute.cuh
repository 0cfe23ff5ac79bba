// 06_backward, recompute: P and dS never leave the chip.
// Predecessor: 01_standard.cuh
//
// `standard` moves three matrices of seq_q × seq_k elements to global memory and back. But S, P, dP and dS of a pair (query,
// key) need only rows of Q, K, V and dO, and two numbers of the query. So a block takes a tile of keys, walks over the queries
// that see them, and computes P and dS of a tile again whenever it needs them: FlashAttention-2's Algorithm 2. dK and dV of the
// block's keys stay in registers. A query's dQ has a part from every block; they meet in fp32 sums in global memory, added by
// `red`.
//
//   block   32 keys of a key/value head, 8 warps; tiles of 8 queries, for each head that shares the keys
//   warp    S, dP and the part of dQ of one query: a lane has one key, then every 32nd column of dQ
//           dK and dV of 4 keys: a lane has every 32nd column
//   Smem    k, v[32][dim + 1]   for the whole kernel; a padded row begins one bank further
//           q, d_o[8][dim]      the tile
//           p, ds[8][32]        from the lanes that have keys to the warps that have keys
//
// What to expect: no traffic of N². 1.6 loads of shared memory for a multiply-add, about 1.3 after nvcc has joined some, and
// 0.1 shuffles: 12 TFLOP/s at most. Each tile of 32 keys adds dim · 4 bytes for a query. The additions come in any order: the
// last bits of dQ differ from run to run.
#pragma once

#include "common/device/backward/scalar_tile.cuh"
#include "common/device/ptx/red.cuh"

namespace backward {

// Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of 32 · recompute_warps. dim ≤ 32 · columns.
template <class T, int columns, class Shape = AttentionShape>
__global__ void __launch_bounds__(32 * recompute_warps) backward_recompute(Shape shape,
                                                                           Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                           Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                           Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                           Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                           RowStatistics rows,
                                                                           float* dq_sums,  // [batch, heads, padded, dim]
                                                                           Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                                                                           Heads<T> dv) {   // [batch, kv_heads, seq_k, dim]
  auto& smem = device::shared_storage<RecomputeSmem<columns>>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dim = shape.dim;
  const int first_key = blockIdx.x * recompute_keys, kv_head = blockIdx.y, batch = blockIdx.z,
            group = shape.heads / shape.kv_heads;
  const int end_key = min(first_key + recompute_keys, shape.seq_k);
  const float scale_log2 = shape.scale * device::log2_e;

  // ---- prologue: K, V ----
  for (int j = warp; j < end_key - first_key; j += recompute_warps) {
    load_row(smem.k[j], k.row(batch, kv_head, first_key + j), dim);
    load_row(smem.v[j], v.row(batch, kv_head, first_key + j), dim);
  }
  float acc_dk[keys_of_warp][columns] = {}, acc_dv[keys_of_warp][columns] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int first = shape.first_query(first_key); first < shape.end_query(end_key - 1); first += recompute_warps) {
      const int i = first + warp;  // this warp's query
      if (i < shape.seq_q) {
        load_row(smem.q[warp], q.row(batch, head, i), dim);
        load_row(smem.d_o[warp], d_o.row(batch, head, i), dim);
      }
      __syncthreads();  // Q and dO, and before the first tile K and V, are written before anyone reads them

      // S = Q K^T, dP = dO V^T; P = exp2(S - LSE), dS = P (dP - D)
      const RowKeys seen = keys_of(shape, i);
      float p = 0.0f, ds = 0.0f;  // of key first_key + lane
      if (seen.has(first_key + lane)) {
        float s = 0.0f, dp = 0.0f;
        for (int t = 0; t < dim; ++t) {
          s += smem.q[warp][t] * smem.k[lane][t];
          dp += smem.d_o[warp][t] * smem.v[lane][t];
        }
        const std::int64_t at = rows.at(shape, batch, head, i);
        p = device::exp2_fast(s * scale_log2 - rows.lse2[at]);
        ds = p * (dp + rows.minus_delta[at]);
        if constexpr (device::drops<Shape>) drop_pair(shape, rows, batch, head, i, first_key + lane, dp, p, ds);
      }
      smem.p[warp][lane] = p;
      smem.ds[warp][lane] = ds;

      // dQ += dS K
      float acc_dq[columns] = {};
      for (int j = max(seen.first, first_key); j < min(seen.end, end_key); ++j) {
        add_row(acc_dq, __shfl_sync(all_lanes, ds, j - first_key), smem.k[j - first_key], dim);
      }
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const int t = 32 * c + lane;
        if (i < shape.seq_q && t < dim) ptx::red_add_f32(&dq_sums[rows.at(shape, batch, head, i) * dim + t], acc_dq[c]);
      }
      __syncthreads();  // P and dS are written before the warps that have keys read them

      // dV += P^T dO, dK += dS^T Q
#pragma unroll
      for (int r = 0; r < recompute_warps; ++r) {
        const RowKeys keys = keys_of(shape, first + r);
#pragma unroll
        for (int n = 0; n < keys_of_warp; ++n) {
          const int j = warp * keys_of_warp + n;
          if (!keys.has(first_key + j)) continue;  // a pair that is masked adds nothing, not even 0 · NaN
          add_row(acc_dv[n], smem.p[r][j], smem.d_o[r], dim);
          add_row(acc_dk[n], smem.ds[r][j], smem.q[r], dim);
        }
      }
      __syncthreads();  // everyone has read Q, dO, P and dS before the next tile overwrites them
    }
  }

  // ---- epilogue: dK, dV ----
#pragma unroll
  for (int n = 0; n < keys_of_warp; ++n) {
    const int j = first_key + warp * keys_of_warp + n;
    if (j >= shape.seq_k) continue;
    store_row(dk.row(batch, kv_head, j), shape.scale, acc_dk[n], dim);
    store_row(dv.row(batch, kv_head, j), 1.0f, acc_dv[n], dim);
  }
}

}  // namespace backward
