// Exercise 1 of step 06, solved. P takes the scale and the natural LSE. dS takes P, dP and D. dQ and dK take dS and the scale,
// because S = scale · Q Kᵀ; dV takes P alone.
#pragma once

#include "common/device/backward/rows.cuh"

namespace exercise {

struct Shares {
  float dq, dk, dv;
};

__device__ inline Shares shares(const device::AttentionShape& shape, int i, int j, float q_k, float do_v, float do_o,
                                float lse) {
  if (j < shape.first_key(i) || j >= shape.end_key(i)) return {0.0f, 0.0f, 0.0f};
  const float p = expf(shape.scale * q_k - lse);
  const float ds = p * (do_v - do_o);
  return {shape.scale * ds, shape.scale * ds, p};
}

}  // namespace exercise
