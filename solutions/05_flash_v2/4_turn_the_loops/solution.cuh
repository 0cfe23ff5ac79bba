// Exercise 4 of step 05, solved: a block keeps its 32 queries until they have met all of their keys.
#pragma once

#include "common/device/dialect.h"
#include "common/device/online_softmax.cuh"
#include "common/device/shapes.h"

namespace exercise {

using device::AttentionShape;
using device::Heads;
using device::SoftmaxState;
using device::store_if;

constexpr int max_dim = 64;
constexpr int tile_keys = 32;  // one for each lane
constexpr int warps = 8, threads = 32 * warps;
constexpr int rows_of_warp = 4, rows = rows_of_warp * warps;  // queries of a block

struct Smem {
  float q[rows][max_dim];
  float k[tile_keys][max_dim + 1];  // a column of it lies in 32 banks
  float v[tile_keys][max_dim];
  float p[warps][tile_keys];  // of a warp's row
};

__device__ inline float warp_maximum(float x) {
  for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}
__device__ inline float warp_sum(float x) {
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

// One block for each tile of queries of each head and batch entry.
inline dim3 grid_of(const AttentionShape& shape) {
  return {static_cast<unsigned>(device::ceil_div(shape.seq_q, rows)), static_cast<unsigned>(shape.heads),
          static_cast<unsigned>(shape.batch)};
}

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of `threads`. dim ≤ max_dim.
__global__ void __launch_bounds__(threads) flash(AttentionShape shape,
                                                 Heads<const float> q,  // [batch, heads, seq_q, dim]
                                                 Heads<const float> k,  // [batch, kv_heads, seq_k, dim]
                                                 Heads<const float> v,  // [batch, kv_heads, seq_k, dim]
                                                 Heads<float> o,        // [batch, heads, seq_q, dim]
                                                 float* lse,            // [batch, heads, seq_q]
                                                 float2*) {             // m and l are not in global memory
  auto& smem = device::shared_storage<Smem>();
  const int head = blockIdx.y, batch = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = blockIdx.x * rows, end_row = min(first_row + rows, shape.seq_q);
  const int end_key = shape.visible_keys(end_row - 1);    // the last query sees the most keys
  const float scale_log2 = shape.scale * device::log2_e;  // scores are in base 2

  // Q
  for (int e = threadIdx.x; e < (end_row - first_row) * shape.dim; e += threads) {
    smem.q[e / shape.dim][e % shape.dim] = q.row(batch, head, first_row + e / shape.dim)[e % shape.dim];
  }
  SoftmaxState states[rows_of_warp];           // of the warp's rows: warp, warp + warps, …
  float acc[rows_of_warp][max_dim / 32] = {};  // O, not yet divided: elements lane and lane + 32
  for (int first_key = 0; first_key < end_key; first_key += tile_keys) {
    // K, V
    const int keys = min(tile_keys, end_key - first_key);
    for (int e = threadIdx.x; e < keys * shape.dim; e += threads) {
      const int c = e / shape.dim, t = e % shape.dim;
      smem.k[c][t] = k.row(batch, shape.kv_head(head), first_key + c)[t];
      smem.v[c][t] = v.row(batch, shape.kv_head(head), first_key + c)[t];
    }
    __syncthreads();  // K and V, and before the first tile Q, are written before any warp reads them
#pragma unroll
    for (int r = 0; r < rows_of_warp; ++r) {
      const int row = warp + r * warps;  // within the tile
      const int visible = first_row + row < end_row ? min(keys, shape.visible_keys(first_row + row) - first_key) : 0;
      if (visible <= 0) continue;
      // S = Q K^T, row maximum
      float score = -INFINITY;
      if (lane < visible) {
        float dot = 0.0f;
        for (int t = 0; t < shape.dim; ++t) dot += smem.q[row][t] * smem.k[lane][t];
        score = scale_log2 * dot;
      }
      const float m = fmaxf(states[r].m, warp_maximum(score));
      const float factor = device::rescale_factor(states[r].m, m);
      // P = exp2(S - m), row sum
      const float p = device::exp2_fast(score - m);
      states[r] = {m, factor * states[r].l + warp_sum(p)};
      smem.p[warp][lane] = p;
      __syncwarp();  // the row of P is written before any lane reads it
                     // O += P V
#pragma unroll
      for (int n = 0; n < max_dim / 32; ++n) {
        const int t = 32 * n + lane;
        float pv = 0.0f;
        for (int c = 0; c < visible && t < shape.dim; ++c) pv += smem.p[warp][c] * smem.v[c][t];
        acc[r][n] = factor * acc[r][n] + pv;
      }
      __syncwarp();  // the row of P is read before the next one overwrites it
    }
    __syncthreads();  // everyone has read K and V before the next tile overwrites them
  }
  // O, LSE
#pragma unroll
  for (int r = 0; r < rows_of_warp; ++r) {
    const int i = first_row + warp + r * warps;
    if (i >= end_row) continue;
    const float inverse = device::inverse_sum(states[r].l);
#pragma unroll
    for (int n = 0; n < max_dim / 32; ++n) {
      const int t = 32 * n + lane;
      if (t < shape.dim) o.row(batch, head, i)[t] = acc[r][n] * inverse;
    }
    const std::int64_t row = (std::int64_t(batch) * shape.heads + head) * shape.seq_q + i;
    store_if(lane == 0, &lse[row], device::log_sum_exp(states[r]));
  }
}

}  // namespace exercise
