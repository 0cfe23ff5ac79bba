// Step 03, file 1: safe softmax as the textbook has it.
//
// exp(x) overflows fp32 from x = 89 on, and fp16 scores go to 65504. Softmax does not change when a constant is taken from all
// scores of a row, so the row's maximum is taken: then no exponent is above 0. That needs the maximum first. The row is read
// three times: for the maximum, for the sum, and to write y.
//
// One thread per row, as step 01's first softmax. Lane l of a warp reads x[row + l][j]: 32 lanes, 32 rows, 32 sectors of 32
// bytes for 32 elements. (A sector serves the next columns too, if L1 still has it when they come.)
//
// What to expect: 4 transfers of a row where 2 are needed, x once and y once; and with 16,384 rows only 16,384 threads, 124 for
// each of 132 multiprocessors that could hold 2048.
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
  float m = -INFINITY;
  for (int j = 0; j < shape.cols; ++j) m = fmaxf(m, to_float(load(&x_row[j])));
  if (m == -INFINITY) m = 0.0f;  // a row of −∞: −∞ − (−∞) would be NaN

  float l = 0.0f;
  for (int j = 0; j < shape.cols; ++j) l += expf(to_float(load(&x_row[j])) - m);

  const float factor = device::inverse_sum(l);
  for (int j = 0; j < shape.cols; ++j) store(&y_row[j], from_float<T>(expf(to_float(load(&x_row[j])) - m) * factor));
  // [/doc: three_pass]
}

}  // namespace online_softmax
