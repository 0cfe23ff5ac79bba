// Exercise 4 of step 07, solved: the limit follows from the mean, and the number of parts from the limit. Both are rounded up.
// Each part's l and O are brought to the largest m of all before they are added, and the sum is divided once.
#pragma once

#include "common/device/dialect.h"
#include "common/device/online_softmax.cuh"

namespace exercise {

using device::SoftmaxState;

__device__ inline int parts_of(int count, int tiles, int rows) {
  const int limit = max(1, device::ceil_div(4 * tiles, rows));
  return max(1, device::ceil_div(count, limit));
}

struct Merged {
  float o, lse;  // one element of O, and LSE, which is a natural logarithm
};

__device__ inline Merged merge(int parts, const SoftmaxState* states, int state_stride, const float* o, int o_stride) {
  SoftmaxState row;
  float sum = 0.0f;
  for (int p = 0; p < parts; ++p) {
    const float2 part = device::load(reinterpret_cast<const float2*>(&states[p * state_stride]));
    const device::MergedSoftmax merged = device::merge(row, {part.x, part.y});
    row = merged.state;
    sum = merged.first * sum + merged.second * o[p * o_stride];
  }
  return {sum * device::inverse_sum(row.l), device::log_sum_exp(row)};
}

}  // namespace exercise
