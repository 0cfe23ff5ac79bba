// 06_backward, one_kernel: five products; dQ is added up in global memory.
// Predecessor: 03_two_kernels.cuh
//
// `two_kernels` computes S and dP twice, because dQ sums over keys and dK over queries. Here the block of keys makes dQ's part
// of its keys, too, from the dS that a warp has in registers, and adds it to fp32 sums in global memory: one `red` for each
// element. Five products instead of seven, and dim · 4 bytes of additions a query and tile of keys.
//
//   warp   as in `gradient_of_keys`; between the barriers also dQ of its 16 queries, 16 columns at a time
//
// What to expect: 2.8 wavefronts for an mma instead of 4.0. But the 32 `red` of a warp and tile touch 8 rows each and use half
// of each sector: 1.25 times `two_kernels`, not 1.4.
#pragma once

#include "common/device/ptx/red.cuh"
#include "steps/06_backward/03_two_kernels.cuh"

namespace backward {

// acc += dS K: 16 queries, whose dS a warp has in its registers, and 16 columns of K.
template <class T, int dim>
__device__ void multiply_ds(float (&acc)[2][4], const float (&ds)[key_frags][4], const Tile<T, tile_keys, dim>& k_tile,
                            int column) {
#pragma unroll
  for (int step = 0; step < tile_keys / 16; ++step) {
    std::uint32_t a[4], b[2][2];
    as_operand<T>(a, ds, step);
    load_b_columns(b, k_tile, 16 * step, column);
    ptx::mma_m16n8k16<T>(acc[0], a, b[0]);
    ptx::mma_m16n8k16<T>(acc[1], a, b[1]);
  }
}

// dQ's sums in global memory, [batch, heads, padded, dim], in the order of a matrix.
struct SumsByRow {
  // dQ += dS K, of a warp's 16 queries, 16 columns at a time; `dq_sums` are those of its first query.
  template <class T, int dim>
  __device__ static void add(float* dq_sums, const float (&ds)[key_frags][4], const Tile<T, tile_keys, dim>& k_tile) {
#pragma unroll
    for (int column = 0; column < dim; column += 16) {
      float acc[2][4] = {};
      multiply_ds(acc, ds, k_tile, column);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int i = threadIdx.x % 32 / 4 + e / 2 % 2 * 8, t = column + e / 4 * 8 + threadIdx.x % 4 * 2 + e % 2;
        ptx::red_add_f32(&dq_sums[i * dim + t], acc[e / 4][e % 4]);
      }
    }
  }
};

// Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of tile_threads.
template <class T, int dim, class DqSums>
__global__ void __launch_bounds__(tile_threads) backward_one_kernel(AttentionShape shape,
                                                                    Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                    Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                    Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                    Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                    RowStatistics rows,
                                                                    float* dq_sums,  // [batch, heads, padded, dim]
                                                                    Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                                                                    Heads<T> dv) {   // [batch, kv_heads, seq_k, dim]
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

      // dV += P^T dO, dK += dS^T Q, dQ += dS K
      multiply_columns(acc_dv, smem.p, 16 * warp, smem.d_o);
      multiply_columns(acc_dk, smem.ds, 16 * warp, smem.q);
      DqSums::add(&dq_sums[rows.at(shape, batch, head, first + 16 * warp) * dim], dp, smem.k);
      __syncthreads();  // everyone has read Q, dO, P and dS before the next tile overwrites them
    }
  }
  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  float* flag = rows.flag(shape, batch, kv_head);
  store_rows(dk, batch, kv_head, first_key + 16 * warp, shape.seq_k, shape.scale, acc_dk, flag);
  store_rows(dv, batch, kv_head, first_key + 16 * warp, shape.seq_k, 1.0f, acc_dv, flag);
}

}  // namespace backward
