// 06_backward, two_kernels: all products by mma.sync; dQ has a kernel of its own.
// Predecessor: 02_recompute.cuh
//
// `recompute` takes more than one load from shared memory for each multiply-add. mma.sync does 2048 of them with six registers
// of operands. A block has 64 keys and walks over tiles of 64 queries: dV and dK stay in registers. dQ sums over keys, so a
// second kernel has 64 queries and walks over tiles of keys. It computes S and dP once more: seven products instead of five. In
// return nobody adds in global memory, and two runs give the same bits.
//
//   gradient_of_keys      warp  S, dP, P, dS of 16 queries × 64 keys; then dV and dK of 16 keys × dim
//                         Smem  k, v, q, d_o[64][dim], p, ds[64][64]: from the warps that have queries to those that have keys
//   gradient_of_queries   warp  S, dP, dS of 16 queries × 64 keys, and dQ of these queries: dS goes on as A, in its registers
//                         Smem  q, d_o, k, v[64][dim]
//
// What to expect: 7 · dim / 2 mma for a warp and a pair of 64 × 64 tiles, 224 at dim 64, of which 160 count. 4.0 wavefronts for
// each of these: at most 0.38 of the roof. Half of that, 120 TFLOP/s, because copies, products and softmax wait for each other
// at barriers.
#pragma once

#include "common/device/backward/tensor_tile.cuh"

namespace backward {

template <class T, int dim>
struct KeysSmem {
  Tile<T, tile_keys, dim> k;
  Tile<T, tile_keys, dim> v;
  Tile<T, tile_rows, dim> q;
  Tile<T, tile_rows, dim> d_o;
  Tile<T, tile_rows, tile_keys> p;
  Tile<T, tile_rows, tile_keys> ds;
};

// S = Q K^T, dP = dO V^T, P = exp2(S - LSE) and dS = P (dP - D) of a warp's 16 queries and a tile of keys: s becomes P, dp dS.
template <class Smem>
__device__ void make_p_and_ds(float (&s)[key_frags][4], float (&dp)[key_frags][4], const Smem& smem, int warp_row,
                              const LaneRows& lane, int first_key, float scale_log2) {
#pragma unroll
  for (int n = 0; n < key_frags; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = 0.0f, dp[n][e] = lane.minus_delta[e / 2];
  }
  multiply_rows(s, smem.q, warp_row, smem.k);
  multiply_rows(dp, smem.d_o, warp_row, smem.v);
  softmax_gradient(s, dp, lane, first_key, scale_log2);
}

// dK and dV. Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads) gradient_of_keys(AttentionShape shape,
                                                                 Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                 Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                 Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                 Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                 RowStatistics rows,
                                                                 Heads<T> dk,    // [batch, kv_heads, seq_k, dim]
                                                                 Heads<T> dv) {  // [batch, kv_heads, seq_k, dim]
  auto& smem = device::shared_storage<KeysSmem<T, dim>>();
  const int warp = threadIdx.x / 32;
  const int first_key = blockIdx.x * tile_keys, kv_head = blockIdx.y, batch = blockIdx.z;
  const int group = shape.heads / shape.kv_heads;
  const int last_key = min(first_key + tile_keys, shape.seq_k) - 1;
  const float scale_log2 = shape.scale * device::log2_e;

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

      float s[key_frags][4], dp[key_frags][4];
      LaneRows lane;
      look_up(lane, shape, rows, batch, head, first + 16 * warp);
      make_p_and_ds(s, dp, smem, 16 * warp, lane, first_key, scale_log2);
      store_tile(smem.p, 16 * warp, 0, s);
      store_tile(smem.ds, 16 * warp, 0, dp);
      __syncthreads();  // P and dS are written before the warps that have keys read them

      // dV += P^T dO, dK += dS^T Q
      multiply_columns(acc_dv, smem.p, 16 * warp, smem.d_o);
      multiply_columns(acc_dk, smem.ds, 16 * warp, smem.q);
      __syncthreads();  // everyone has read Q, dO, P and dS before the next tile overwrites them
    }
  }
  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  float* flag = rows.flag(shape, batch, kv_head);
  store_rows(dk, batch, kv_head, first_key + 16 * warp, shape.seq_k, shape.scale, acc_dk, flag);
  store_rows(dv, batch, kv_head, first_key + 16 * warp, shape.seq_k, 1.0f, acc_dv, flag);
}

}  // namespace backward
