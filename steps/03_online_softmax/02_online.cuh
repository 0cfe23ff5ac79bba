// 03_online_softmax, online: maximum and sum in one pass.
// Predecessor: 01_three_pass.cuh
//
// The second pass of `three_pass` waits for the first because exp(x − m) needs the final m. It need not wait: keep the sum for
// the maximum so far. When a larger score comes, every term of the sum is too large by the same factor, so the sum is
// multiplied by exp(m_old − m_new) once and is right again. (Milakov and Gimelshein 2018, "Online normalizer calculation for
// softmax", algorithm 3.) With m for row_max and l for row_sum:
//
//     m' = max(m, x),   l' = l · exp(m − m') + exp(x − m')
//
// At the start m is −∞, not 0: with 0, a row whose scores all lie below −104 would have only exponentials of 0, and no sum to
// divide by. And m' may still be −∞, while only masked scores (−∞) were seen: then 0 is subtracted instead, so that exp gives
// 0, not NaN.
//
// What to expect: 3 transfers where 4 were, because one of three reads is gone, for one exponential more per element. Nothing
// else changes: one thread per row, exp by expf.
#pragma once

#include "steps/03_online_softmax/01_three_pass.cuh"

namespace online_softmax {

// Grid: over rows. Blocks of row_threads.
template <class T>
__global__ void two_pass_softmax(Shape shape,
                                 Rows<const T> x,  // [rows, cols]
                                 Rows<T> y) {      // [rows, cols]
  const int i = blockIdx.x * row_threads + threadIdx.x;
  if (i >= shape.rows) return;
  const T* x_row = x.row(i);  // [cols]
  T* y_row = y.row(i);        // [cols]

  // [doc: online]
  // row maximum and row sum
  float row_max = -INFINITY, row_sum = 0.0f;
  for (int j = 0; j < shape.cols; ++j) {
    const float score = to_float(load(&x_row[j]));
    const float new_max = fmaxf(row_max, score);
    const float subtracted = device::safe_maximum(new_max);
    row_sum = row_sum * expf(row_max - subtracted) + expf(score - subtracted);
    row_max = new_max;
  }
  // [/doc: online]

  // y = exp(x - m) / l
  row_max = device::safe_maximum(row_max);
  const float factor = device::inverse_sum(row_sum);
  for (int j = 0; j < shape.cols; ++j) store(&y_row[j], from_float<T>(expf(to_float(load(&x_row[j])) - row_max) * factor));
}

}  // namespace online_softmax
