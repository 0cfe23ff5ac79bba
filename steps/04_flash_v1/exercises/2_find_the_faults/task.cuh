// Exercise 2 of step 04: Algorithm 1 with two faults. One shows at the default shape; the other only at some lengths.
#pragma once

#include "steps/04_flash_v1/exercises/exercise.h"

namespace exercise {

using namespace flash_v1;

// Grid: x over heads, y over the batch. Blocks of scalar_threads.
__global__ void mended_algorithm_1(AttentionShape shape,
                                   Heads<const float> q,  // [batch, heads, seq_q, dim]
                                   Heads<const float> k,  // [batch, kv_heads, seq_k, dim]
                                   Heads<const float> v,  // [batch, kv_heads, seq_k, dim]
                                   RowState state) {
  constexpr int Br = SmallBlocks::rows, Bc = SmallBlocks::keys;
  auto& smem = device::shared_storage<SmallSmem>();
  const int head = blockIdx.x;
  const int batch = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const float scale_log2 = shape.scale * device::log2_e;

  for (int j = 0; j < shape.seq_k / Bc; ++j) {
    const int first_key = j * Bc;
    const int keys = min(Bc, shape.seq_k - first_key);
    for (int e = threadIdx.x; e < keys * shape.dim; e += scalar_threads) {
      const int c = e / shape.dim, t = e % shape.dim;
      smem.k[c][t] = k.row(batch, shape.kv_head(head), first_key + c)[t];
      smem.v[c][t] = v.row(batch, shape.kv_head(head), first_key + c)[t];
    }
    __syncthreads();  // K_j and V_j are written before any warp reads them
    for (int i = warp; i < shape.seq_q; i += scalar_warps) {
      const int r = i % Br;  // of the warp's own rows of q and s: r % scalar_warps = warp
      const std::int64_t row = state_row(shape, batch, head, i);
      const int visible = min(keys, shape.visible_keys(i) - first_key);
      if (visible <= 0) continue;
      __syncwarp();  // the row before has been read before this one overwrites it
      for (int t = lane; t < shape.dim; t += 32) smem.q[r][t] = q.row(batch, head, i)[t];
      __syncwarp();  // the row of Q is written before any lane reads it
      float score = -INFINITY;
      if (lane < visible) {
        float dot = 0.0f;
        for (int t = 0; t < shape.dim; ++t) dot += smem.q[r][t] * smem.k[lane][t];
        score = scale_log2 * dot;
      }
      const float m_tile = warp_maximum(score);
      const float p = device::exp2_fast(score - device::safe_maximum(m_tile));
      const float l_tile = warp_sum(p);
      smem.s[r][lane] = p;
      const float2 ml = load(&state.ml[row]);
      const float m = ml.x, l = ml.y;
      __syncwarp();  // the row of P is written, and m and l are read, before other lanes go on
      const float m_new = fmaxf(m, m_tile);
      const float old_factor = device::rescale_factor(m, m_new);
      const float new_factor = device::rescale_factor(m_tile, m_new);
      const float l_new = old_factor * l + new_factor * l_tile;
      for (int t = lane; t < shape.dim; t += 32) {
        float pv = 0.0f;
        for (int c = 0; c < visible; ++c) pv += smem.s[r][c] * smem.v[c][t];
        float& o = state.o[row * shape.dim + t];
        o = (old_factor * l * o + pv) / l_new;
      }
      if (lane == 0) store(&state.ml[row], make_float2(m_new, l_new));
    }
    __syncthreads();  // everyone has read K_j and V_j before they are overwritten
  }
}

}  // namespace exercise
