// Step 06, dropout in the tuned rungs. P of a pair that is left out is −P from the exponential on: dV takes the positive part,
// dS asks for the sign. So the random bits are made once for a pair, and no register holds them.
#pragma once

#include "common/device/backward/slices.cuh"
#include "common/device/kept_pairs.cuh"
#include "common/device/ptx/max_nan.cuh"

namespace backward {

template <int slices, int frags>
__device__ void zero(float (&acc)[slices][frags][4]) {
#pragma unroll
  for (int s = 0; s < slices; ++s) {
#pragma unroll
    for (int e = 0; e < 4 * frags; ++e) acc[s][e / 4][e % 4] = 0.0f;
  }
}

// P of pairs that are left out becomes −P: Pᵀ of 16 · slices keys from `key` on × 32 queries from `query` on.
template <class Shape, int slices, int octets>
__device__ void drop(float (&p)[slices][octets][4], const Shape& shape, int batch, int head, int query, int key) {
  if constexpr (device::drops<Shape>) {
    device::KeptTransposed kept[(slices + 1) / 2];  // of 32 keys each
    device::look_up(kept, shape.dropout, batch, head, query, slices == 1 ? key / 32 * 32 : key);
    device::negate_dropped(p, kept, slices == 1 ? key % 32 / 8 : 0);
  }
}

// Operands of dV: 0 in place of −P. NaN stays.
template <class T, int steps, int slices>
__device__ void keep_positive(std::uint32_t (&p)[steps][slices][4]) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) {
#pragma unroll
      for (int w = 0; w < 4; ++w) p[step][s][w] = ptx::max_nan_x2<T>(p[step][s][w], 0);
    }
  }
}

// dO Vᵀ becomes dS. acc[s][n][e] belongs to query 8 n + 2 t + e % 2 of those whose −D these are.
template <int slices, int frags>
__device__ void times_with_dropout(float (&acc)[slices][frags][4], const float (&p)[slices][frags][4], const float* minus_delta,
                                   float factor) {
#pragma unroll
  for (int n = 0; n < frags; ++n) {
    const float2 of_rows = load(reinterpret_cast<const float2*>(&minus_delta[8 * n + threadIdx.x % 4 * 2]));
#pragma unroll
    for (int s = 0; s < slices; ++s) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        acc[s][n][e] = device::gradient_with_dropout(p[s][n][e], acc[s][n][e], factor, e % 2 == 0 ? of_rows.x : of_rows.y);
      }
    }
  }
}

}  // namespace backward
