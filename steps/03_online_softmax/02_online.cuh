// Step 03, file 2: maximum and sum in one pass.
//
// File 1's second pass waits for the first because exp(x − m) needs the final m. It does not: keep the sum for the maximum so
// far. When a larger score comes, every term of the sum is too large by the same factor exp(m_old − m_new), so the sum is
// multiplied by it once and is right again. (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax",
// algorithm 3.)
//
//     m' = max(m, x),   l' = l · exp(m − m') + exp(x − m')
//
// This removes one of file 1's three reads: 3 transfers where 4 were. It adds an exponential an element. Nothing else changes:
// one thread per row, exp by expf.
//
// At the start m is −∞, not 0: with 0, a row whose scores all lie below −104 would have only exponentials of 0, and no sum to
// divide by. And m' may still be −∞, while only masked scores (−∞) were seen: then 0 is subtracted instead, so that exp gives
// 0, not NaN.
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
  float m = -INFINITY, l = 0.0f;
  for (int j = 0; j < shape.cols; ++j) {
    const float score = to_float(load(&x_row[j]));
    const float m_new = fmaxf(m, score);
    const float subtracted = device::safe_maximum(m_new);
    l = l * expf(m - subtracted) + expf(score - subtracted);
    m = m_new;
  }
  // [/doc: online]

  m = device::safe_maximum(m);
  const float factor = device::inverse_sum(l);
  for (int j = 0; j < shape.cols; ++j) store(&y_row[j], from_float<T>(expf(to_float(load(&x_row[j])) - m) * factor));
}

}  // namespace online_softmax
