// Exercise 3 of step 03: a solution.
#pragma once

#include "steps/03_online_softmax/rows.cuh"

namespace exercise {

using namespace online_softmax;

constexpr int parts = 4, threads = 32 * parts;

struct Part {
  float m;  // the largest score; −∞: none
  float l;  // Σ exp(x − m)
};

struct Smem {
  float m[parts], l[parts];
};

// a ⊕ b. Where both are empty, 0 is subtracted from −∞: exp(−∞) is 0, and −∞ − (−∞) would be NaN.
__device__ inline Part merge(Part a, Part b) {
  const float m = fmaxf(a.m, b.m);
  const float subtracted = m == -INFINITY ? 0.0f : m;
  return {m, a.l * expf(a.m - subtracted) + b.l * expf(b.m - subtracted)};
}

// What to add to every score, and what to multiply its exponential by: y = exp(x + shift) · factor.
struct Finish {
  float shift, factor;
};
__device__ inline Finish finish_row(Part row) { return row.m == -INFINITY ? Finish{0.0f, 0.0f} : Finish{-row.m, 1.0f / row.l}; }

// Grid: over rows. Blocks of `threads`. Part w, a quarter of the columns, goes to warp w; short rows leave parts empty.
__global__ void softmax(Shape shape,
                        Rows<const float> x,  // [rows, cols]
                        Rows<float> y) {      // [rows, cols]
  auto& smem = device::shared_storage<Smem>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float* x_row = x.row(blockIdx.x);  // [cols]
  float* y_row = y.row(blockIdx.x);        // [cols]
  const int length = ceil_div(shape.cols, parts);
  const int begin = min(warp * length, shape.cols), end = min(begin + length, shape.cols);

  Part mine = {-INFINITY, 0.0f};
  for (int j = begin + lane; j < end; j += 32) mine = merge(mine, {x_row[j], 1.0f});
  for (int distance = 16; distance > 0; distance /= 2) {
    const float m = __shfl_xor_sync(0xffffffffu, mine.m, distance), l = __shfl_xor_sync(0xffffffffu, mine.l, distance);
    mine = merge(mine, {m, l});
  }
  if (lane == 0) {
    smem.m[warp] = mine.m;
    smem.l[warp] = mine.l;
  }
  __syncthreads();  // all parts are written before any warp merges them
  Part row = {-INFINITY, 0.0f};
  for (int p = parts - 1; p >= 0; --p) row = merge({smem.m[p], smem.l[p]}, row);

  const Finish finish = finish_row(row);
  for (int j = begin + lane; j < end; j += 32) {
    y_row[j] = expf(x_row[j] + finish.shift) * finish.factor;
  }
}

}  // namespace exercise
