// 06_backward, transposed: Sᵀ = K Qᵀ and dPᵀ = V dOᵀ.
// Predecessor: 05_fragment_order.cuh
//
// In `fragment_order` a warp has queries while it makes P and dS, and keys while it makes dV and dK: P and dS change hands
// through shared memory. Here the first two products are transposed. A warp has 16 keys from the beginning. The accumulators of
// Pᵀ and dSᵀ, packed to 16 bits, are the A operands of Pᵀ dO and dSᵀ Q, as P was of P V in step 05: they stay in their lanes.
// Only dS goes through shared memory, for dQ, which sums over the keys of all warps.
//
//   warp   16 keys × 64 queries of Sᵀ and dPᵀ, dV and dK of these keys; then dQ of 16 queries
//   lane   keys g and g + 8; the statistics belong to columns now, and each lane reads those of its 16 queries
//   Smem   k, v, q, d_o[64][dim], ds[64 keys][64 queries]
//
// What to expect: no speed. 112 ldmatrix for a warp and tile instead of 96: K and V are loaded for each half of the queries, dS
// for each 16 columns of dQ. What is gained is room: 96 accumulators of dK, dV, S and dP instead of 128 (dim 64), 45 KB instead
// of 54.
#pragma once

#include "common/device/backward/query_tiles.cuh"
#include "common/device/backward/rows.cuh"
#include "common/device/backward/tensor_tile.cuh"

namespace backward {

template <class T, int dim>
struct TransposedSmem {
  Tile<T, tile_keys, dim> k;
  Tile<T, tile_keys, dim> v;
  Tile<T, tile_rows, dim> q;
  Tile<T, tile_rows, dim> d_o;
  Tile<T, tile_keys, tile_rows> ds;
};

// Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of tile_threads.
template <class T, int dim, bool vector>
__global__ void __launch_bounds__(tile_threads) backward_transposed(AttentionShape shape,
                                                                    Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                    Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                    Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                    Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                    RowStatistics rows,
                                                                    float* dq_sums,  // [batch, heads, padded, dim], in blocks
                                                                    Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                                                                    Heads<T> dv) {   // [batch, kv_heads, seq_k, dim]
  auto& smem = device::shared_storage<TransposedSmem<T, dim>>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_key = blockIdx.x * tile_keys, kv_head = blockIdx.y, batch = blockIdx.z;
  const int group = shape.heads / shape.kv_heads;
  const int last_key = min(first_key + tile_keys, shape.seq_k) - 1;
  const float scale_log2 = shape.scale * device::log2_e;
  const int lane_key = first_key + 16 * warp + lane / 4;

  copy_tile<tile_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
  copy_tile<tile_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
  float acc_dk[dim / 8][4] = {}, acc_dv[dim / 8][4] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const int first_tile = shape.first_query(first_key) / tile_rows, end_query = shape.end_query(last_key);
    for (int first = first_tile * tile_rows; first < end_query; first += tile_rows) {
      copy_tile<tile_threads>(smem.q, q, batch, head, first, shape.seq_q);
      copy_tile<tile_threads>(smem.d_o, d_o, batch, head, first, shape.seq_q);
      ptx::cp_async_wait_all();
      __syncthreads();  // Q and dO, and before the first tile K and V, have come for everyone

      const std::int64_t row = rows.at(shape, batch, head, first);
#pragma unroll 1
      for (int part = 0; part < tile_rows; part += part_rows) {
        // S^T = K Q^T, dP^T = V dO^T
        float s[part_rows / 8][4] = {}, dp[part_rows / 8][4] = {};
        multiply_rows(s, smem.k, 16 * warp, smem.q, part);
        multiply_rows(dp, smem.v, 16 * warp, smem.d_o, part);
        // P = exp2(S - LSE), dS = P (dP - D)
        exponentiate(s, &rows.lse2[row + part], scale_log2);
        mask_probabilities(s, shape, lane_key, first + part);
        times_probabilities(dp, s, &rows.minus_delta[row + part]);
        store_tile(smem.ds, 16 * warp, part, dp);
        // dV += P^T dO, dK += dS^T Q
        multiply_kept(acc_dv, s, smem.d_o, part);
        multiply_kept(acc_dk, dp, smem.q, part);
      }
      __syncthreads();  // dS is written for the warps that have queries; everyone has left Q and dO, which the next tile fills

      // dQ += dS K, of queries 16 · warp …
#pragma unroll
      for (int column = 0; column < dim; column += 16) {
        float acc[2][4] = {};
        multiply_tile_columns(acc, smem.ds, 16 * warp, smem.k, column);
        add_block<vector>(&dq_sums[(row + 16 * warp) * dim + column / 16 * sums_block], acc[0], acc[1]);
      }
    }
  }
  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  float* flag = rows.flag(shape, batch, kv_head);
  store_rows(dk, batch, kv_head, first_key + 16 * warp, shape.seq_k, shape.scale, acc_dk, flag);
  store_rows(dv, batch, kv_head, first_key + 16 * warp, shape.seq_k, 1.0f, acc_dv, flag);
}

}  // namespace backward
