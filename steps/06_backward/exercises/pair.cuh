// Step 06: a pair of a query and a key, for exercises that make the products pair by pair.
#pragma once

#include "common/device/backward/scalar_tile.cuh"

namespace exercise {

using namespace backward;

// P and dS of a query and a key, the same in all lanes of a warp.
template <class T>
struct Pair {
  float p, ds;
  __device__ Pair(const AttentionShape& shape, const T* q, const T* k, const T* v, const T* d_o, float lse2,
                  float minus_delta) {
    float s = 0.0f, dp = 0.0f;
    for (int t = threadIdx.x % 32; t < shape.dim; t += 32) {
      s += to_float(load(&q[t])) * to_float(load(&k[t]));
      dp += to_float(load(&d_o[t])) * to_float(load(&v[t]));
    }
    p = device::exp2_fast(warp_sum(s) * (shape.scale * device::log2_e) - lse2);
    ds = p * (warp_sum(dp) + minus_delta);
  }
};

}  // namespace exercise
