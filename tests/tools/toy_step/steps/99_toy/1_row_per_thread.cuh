// 99_toy, row_per_thread: a row softmax, one thread a row.
//
// This step is here to be copied: tests/tools/test_toy_step.py adds this folder to a copy of the project, and changes no other
// file.
//
//   thread   one row: its maximum, its sum, its result
#pragma once

#include "common/device/dialect.h"

namespace toy {

constexpr int threads = 64;  // of a block

// Grid: x over rows.
__global__ void row_per_thread(int rows, int cols, const float* x, int ldx,  // [rows, cols], ldx elements from row to row
                               float* y, int ldy) {                          // [rows, cols]
  const int row = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (row >= rows) return;
  const float* from = x + std::int64_t{row} * ldx;
  float* to = y + std::int64_t{row} * ldy;
  float maximum = -INFINITY;
  for (int j = 0; j < cols; ++j) {
    maximum = from[j] != from[j] || maximum != maximum ? NAN : fmaxf(maximum, from[j]);
  }
  const float subtracted = maximum == -INFINITY ? 0.0f : maximum;  // −∞ − −∞ would be NaN
  float sum = 0.0f;
  for (int j = 0; j < cols; ++j) sum += expf(from[j] - subtracted);
  const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int j = 0; j < cols; ++j) to[j] = expf(from[j] - subtracted) * factor;
}

}  // namespace toy
