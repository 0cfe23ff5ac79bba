// Exercise 3 of step 04: the update of O.
//
// m and l of a row are merged already. What remains is line 12 of Algorithm 1, which brings the row of O to the new maximum and
// adds what this block of keys contributes:
//
//     O ← (l · e^(m − m_new) · O + e^(m̃ − m_new) · P̃ V) / l_new
//
// Yours to write: a warp does it, for one row. O lies in global memory, P̃ and V in shared memory. Scores are in base 2, so e is
// 2 here. The grader wants the right O, and counts: each element of O is loaded once and stored once, neighbouring lanes have
// neighbouring columns, and P̃ and V are read once. PapersUpdate of 01_scalar.cuh is what you write here: do not call it.
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

// Called by all 32 lanes. As handed out, it leaves O at 0.
__device__ inline void update_o(const Row& row, int keys, int dim,
                                const float* p,                      // [keys], 2^(score − m̃), shared
                                const float (*v)[SmallBlocks::dim],  // [keys][dim], shared
                                float* o) {                          // [dim], global
  (void)row, (void)keys, (void)dim, (void)p, (void)v, (void)o;       // yours to write
}

}  // namespace exercise
