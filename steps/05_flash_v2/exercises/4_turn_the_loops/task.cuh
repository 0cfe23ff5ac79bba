// Exercise 4 of step 05: turn the loops of version 1 into those of version 2.
//
// This kernel is right, and has the loops of step 04. The outer loop goes over tiles of 32 keys, the inner loop over queries.
// So O, m and l of every query lie in global memory, and are read and written again for each tile of keys. One block works for
// each head. Rewrite it:
//
//   - a block has a tile of 32 queries. Change grid_of(), too;
//   - Q of the tile is loaded once, into shared memory. O, m and l of its rows stay in registers or in shared memory;
//   - the loop goes over tiles of keys. It ends where no query of the tile sees any further key;
//   - O is divided by l once. O and LSE are stored once, and nothing else is stored to global memory.
//
// You may change all of this file but the parameters of `flash` and the names that it shares with exercise.cu: grid_of, flash,
// threads, max_dim and Smem. Your kernel does not need `ml`.
//
// The grader checks O and LSE, also at ragged and causal shapes. At the default shape it counts the sectors that are stored to
// global memory and those that are loaded from it.
#pragma once

#include "common/device/dialect.h"
#include "common/device/online_softmax.cuh"
#include "common/device/shapes.h"

namespace exercise {

using device::AttentionShape;
using device::Heads;
using device::load;
using device::SoftmaxState;
using device::store;

constexpr int max_dim = 64;
constexpr int tile_keys = 32;  // one for each lane
constexpr int warps = 8, threads = 32 * warps;

struct Smem {
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

// One block for each head and batch entry.
inline dim3 grid_of(const AttentionShape& shape) {
  return {1, static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.batch)};
}

// Grid: y over heads, z over the batch. Blocks of `threads`. dim ≤ max_dim.
__global__ void __launch_bounds__(threads) flash(AttentionShape shape,
                                                 Heads<const float> q,  // [batch, heads, seq_q, dim]
                                                 Heads<const float> k,  // [batch, kv_heads, seq_k, dim]
                                                 Heads<const float> v,  // [batch, kv_heads, seq_k, dim]
                                                 Heads<float> o,        // [batch, heads, seq_q, dim]
                                                 float* lse,            // [batch, heads, seq_q]
                                                 float2* ml) {          // [batch, heads, seq_q]: m, base 2, and l
  auto& smem = device::shared_storage<Smem>();
  const int head = blockIdx.y, batch = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::int64_t first_row = (std::int64_t(batch) * shape.heads + head) * shape.seq_q;
  const float scale_log2 = shape.scale * device::log2_e;  // scores are in base 2

  for (int first_key = 0; first_key < shape.seq_k; first_key += tile_keys) {
    // K, V
    const int keys = min(tile_keys, shape.seq_k - first_key);
    for (int e = threadIdx.x; e < keys * shape.dim; e += threads) {
      const int c = e / shape.dim, t = e % shape.dim;
      smem.k[c][t] = k.row(batch, shape.kv_head(head), first_key + c)[t];
      smem.v[c][t] = v.row(batch, shape.kv_head(head), first_key + c)[t];
    }
    __syncthreads();  // K and V are written before any warp reads them
    for (int i = warp; i < shape.seq_q; i += warps) {
      const float* q_row = q.row(batch, head, i);  // [dim]
      float* o_row = o.row(batch, head, i);        // [dim]
      const int visible = min(keys, shape.visible_keys(i) - first_key);
      if (visible <= 0 && first_key > 0) continue;
      // S = Q K^T, row maximum
      float score = -INFINITY;
      if (lane < visible) {
        float dot = 0.0f;
        for (int t = 0; t < shape.dim; ++t) dot += q_row[t] * smem.k[lane][t];
        score = scale_log2 * dot;
      }
      const float tile_max = warp_maximum(score);
      // P = exp2(S - m), row sum
      const float p = device::exp2_fast(score - device::safe_maximum(tile_max));
      const float tile_sum = warp_sum(p);
      smem.p[warp][lane] = p;
      const float2 known = first_key > 0 ? load(&ml[first_row + i]) : make_float2(-INFINITY, 0.0f);
      const device::MergedSoftmax merged = device::merge({known.x, known.y}, {tile_max, tile_sum});
      const float inverse = device::inverse_sum(merged.state.l);
      __syncwarp();  // the row of P is written, and m and l are read, before other lanes go on
      // O += P V
      for (int t = lane; t < shape.dim; t += 32) {
        float pv = 0.0f;
        for (int c = 0; c < visible; ++c) pv += smem.p[warp][c] * smem.v[c][t];
        const float before = first_key > 0 ? known.y * o_row[t] : 0.0f;
        o_row[t] = (merged.first * before + merged.second * pv) * inverse;
      }
      if (lane == 0) {
        store(&ml[first_row + i], make_float2(merged.state.m, merged.state.l));
        lse[first_row + i] = device::log_sum_exp(merged.state);
      }
      __syncwarp();  // the row of P is read before the next one overwrites it
    }
    __syncthreads();  // everyone has read K and V before the next tile overwrites them
  }
}

}  // namespace exercise
