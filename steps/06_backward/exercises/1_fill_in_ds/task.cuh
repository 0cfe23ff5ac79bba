// Exercise 1 of step 06: what one pair of a query and a key adds to dQ, dK and dV.
//
// Write shares. exercise.cu walks over all pairs of a head, those that a mask takes out as well, and sums
//
//     dQ_i += dq · K_j     dK_j += dk · Q_i     dV_j += dv · dO_i
//
// It multiplies by nothing else, before or after. The scale stands in shape.scale.
#pragma once

#include "common/device/backward/rows.cuh"

namespace exercise {

struct Shares {
  float dq, dk, dv;
};

// Of query i and key j. q_k, do_v and do_o are the dot products Q_i · K_j, dO_i · V_j and dO_i · O_i. lse: LSE_i as the forward
// pass gives it, a natural logarithm; −∞ for a query that sees no key. Query i sees the keys shape.first_key(i) …
// shape.end_key(i) − 1.
__device__ inline Shares shares(const device::AttentionShape& shape, int i, int j, float q_k, float do_v, float do_o,
                                float lse) {
  (void)shape, (void)i, (void)j, (void)q_k, (void)do_v, (void)do_o, (void)lse;
  return {0.0f, 0.0f, 0.0f};
}

}  // namespace exercise
