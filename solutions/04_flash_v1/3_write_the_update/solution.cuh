// Exercise 3 of step 04, solved. A lane has the columns t, t + 32, …: it sums P̃ V of one in a register, and reads and writes
// that element of O once. Both factors are the same for all columns. In the row's first block l is 0, and so is 2^(−∞ − m_new).
#pragma once

#include "steps/04_flash_v1/exercises/exercise.h"

namespace exercise {

using flash_v1::SmallBlocks;  // of 32 keys, for dim ≤ 64

// What is known of a row when a block of keys has been multiplied with it. Scores are in base 2.
struct Row {
  float m, l;          // of the keys before: −∞ and 0 if there are none
  float m_tile;        // m̃: the largest score of this block
  float m_new, l_new;  // of both together
};

__device__ inline void update_o(const Row& row, int keys, int dim,
                                const float* p,                      // [keys], 2^(score − m̃), shared
                                const float (*v)[SmallBlocks::dim],  // [keys][dim], shared
                                float* o) {                          // [dim], global
  const float keep = row.l * device::rescale_factor(row.m, row.m_new);
  const float add = device::rescale_factor(row.m_tile, row.m_new);
  for (int t = threadIdx.x % 32; t < dim; t += 32) {
    float pv = 0.0f;
    for (int c = 0; c < keys; ++c) pv += p[c] * v[c][t];
    o[t] = (keep * o[t] + add * pv) / row.l_new;
  }
}

}  // namespace exercise
