// Exercise 4 of step 07: long rows in parts.
//
// Write both functions. exercise.cu makes the lists, cuts each row's list into as many parts as parts_of says, all of equal
// length but the last, and gives each part to a block. A block counts the tiles that it visits. Then `merge` makes the rows of
// their parts. The grader wants
//
//     no block that visits more tiles than four times the mean of the rows, rounded up, and at least one
//     a row within this limit whole, and of a longer one no part more than needed
//     the right O and LSE
#pragma once

#include "common/device/online_softmax.cuh"

namespace exercise {

using device::SoftmaxState;

// Into how many parts a row is cut: 1 or more. The row has `count` tiles, and all `rows` rows together have `tiles`.
__device__ inline int parts_of(int count, int tiles, int rows) {
  (void)count, (void)tiles, (void)rows;
  return 1;
}

struct Merged {
  float o, lse;  // one element of O, and LSE, which is a natural logarithm
};

// Of a query's parts. Part p has found the state states[p · state_stride], to the base 2, and the element o[p · o_stride],
// which is not divided by l.
__device__ inline Merged merge(int parts, const SoftmaxState* states, int state_stride, const float* o, int o_stride) {
  (void)parts, (void)states, (void)state_stride, (void)o, (void)o_stride;
  return {0.0f, 0.0f};
}

}  // namespace exercise
