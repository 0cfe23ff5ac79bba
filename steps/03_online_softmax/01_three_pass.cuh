// 03_online_softmax, three_pass: safe softmax as the textbook has it.
//
// exp(x) overflows fp32 from x = 89 on, and fp16 scores go to 65504. Softmax does not change when a constant is subtracted from
// all scores of a row. So the row's maximum is subtracted: then no exponent is above 0. That needs the maximum first. The row
// is read three times: for the maximum, for the sum, and to write y.
//
// One thread per row, as step 01's first softmax. Lane 0 of a warp reads x[row][j], lane 1 reads x[row + 1][j]: 32 lanes, 32
// rows, 32 sectors of 32 bytes for 32 elements. (A sector serves the next columns too, if L1 still has it when they come.)
//
// What to expect: 4 transfers of a row where 2 are needed, because x is read three times and y is written once. And 16,384 rows
// give only 16,384 threads: 124 for each of 132 SMs, which could hold 2048.
#pragma once

#include "steps/03_online_softmax/rows.cuh"

namespace online_softmax {

constexpr int row_threads = 128;  // of a block: a thread per row

// Grid: over rows. Blocks of row_threads.
template <class T>
__global__ void three_pass_softmax(Shape shape,
                                   Rows<const T> x,  // [rows, cols]
                                   Rows<T> y) {      // [rows, cols]
  const int i = blockIdx.x * row_threads + threadIdx.x;
  if (i >= shape.rows) return;
  const T* x_row = x.row(i);  // [cols]
  T* y_row = y.row(i);        // [cols]

  // [doc: three_pass]
  // row maximum
  float row_max = -INFINITY;
  for (int j = 0; j < shape.cols; ++j) row_max = fmaxf(row_max, to_float(load(&x_row[j])));
  if (row_max == -INFINITY) row_max = 0.0f;  // a row of −∞: −∞ − (−∞) would be NaN

  // row sum
  float row_sum = 0.0f;
  for (int j = 0; j < shape.cols; ++j) row_sum += expf(to_float(load(&x_row[j])) - row_max);

  // y = exp(x - m) / l
  const float factor = device::inverse_sum(row_sum);
  for (int j = 0; j < shape.cols; ++j) store(&y_row[j], from_float<T>(expf(to_float(load(&x_row[j])) - row_max) * factor));
  // [/doc: three_pass]
}

}  // namespace online_softmax
