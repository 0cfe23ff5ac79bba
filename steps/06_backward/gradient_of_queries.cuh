// Step 06, the second kernel of `two_kernels`: dQ, with S and dP once more.
//
// A block has 64 queries and walks over tiles of keys. A warp has 16 of the queries: dS leaves the mma as an accumulator and
// goes on as A, in its registers, as P did in step 05.
#pragma once

#include "steps/06_backward/03_two_kernels.cuh"

namespace backward {

template <class T, int dim>
struct QueriesSmem {
  Tile<T, tile_rows, dim> q;
  Tile<T, tile_rows, dim> d_o;
  Tile<T, tile_keys, dim> k;
  Tile<T, tile_keys, dim> v;
};

// dQ. Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads) gradient_of_queries(AttentionShape shape, Heads<const T> q, Heads<const T> k,
                                                                    Heads<const T> v, Heads<const T> d_o, RowStatistics rows,
                                                                    Heads<T> dq) {  // [batch, heads, seq_q, dim]
  auto& smem = device::shared_storage<QueriesSmem<T, dim>>();
  const int warp = threadIdx.x / 32;
  const int first = blockIdx.x * tile_rows, head = blockIdx.y, batch = blockIdx.z, kv_head = shape.kv_head(head);
  const int last = min(first + tile_rows, shape.seq_q) - 1;
  const float scale_log2 = shape.scale * device::log2_e;

  copy_tile<tile_threads>(smem.q, q, batch, head, first, shape.seq_q);
  copy_tile<tile_threads>(smem.d_o, d_o, batch, head, first, shape.seq_q);
  LaneRows lane;
  look_up(lane, shape, rows, batch, head, first + 16 * warp);
  float acc[dim / 8][4] = {};
  for (int first_key = shape.first_key(first) / tile_keys * tile_keys; first_key < shape.end_key(last);
       first_key += tile_keys) {
    copy_tile<tile_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
    copy_tile<tile_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
    ptx::cp_async_wait_all();
    __syncthreads();  // K and V, and before the first tile Q and dO, have come for everyone

    float s[key_frags][4], dp[key_frags][4];
    make_p_and_ds(s, dp, smem, 16 * warp, lane, first_key, scale_log2);
    // dQ += dS K
#pragma unroll
    for (int step = 0; step < tile_keys / 16; ++step) {
      std::uint32_t a[4];
      as_operand<T>(a, dp, step);
#pragma unroll
      for (int n = 0; n < dim / 8; n += 2) {
        std::uint32_t b[2][2];
        load_b_columns(b, smem.k, 16 * step, 8 * n);
        ptx::mma_m16n8k16<T>(acc[n], a, b[0]);
        ptx::mma_m16n8k16<T>(acc[n + 1], a, b[1]);
      }
    }
    __syncthreads();  // everyone has read K and V before the next tile overwrites them
  }
  ptx::cp_async_wait_all();  // of Q and dO, where they see no key
  store_rows(dq, batch, head, first + 16 * warp, shape.seq_q, shape.scale, acc, rows.flag(shape, batch, kv_head));
}

}  // namespace backward
