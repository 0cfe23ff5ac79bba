// Exercise 2 of step 03: a softmax with a block per row, and three faults. The simulator reports one of them; the checker sees
// the second, once that is mended; the third shows at some shapes only. A row may consist of −∞ alone; then y is 0.
#pragma once

#include "steps/03_online_softmax/rows.cuh"

namespace exercise {

using namespace online_softmax;

constexpr int warps = 4, threads = 32 * warps;

struct Smem {
  SoftmaxState states[warps];
};

// As `online`, in base e.
__device__ inline SoftmaxState merge_states(SoftmaxState a, SoftmaxState b) {
  const float m = fmaxf(a.m, b.m);
  return {m, a.l * expf(a.m - m) + b.l * expf(b.m - m)};
}

// Grid: over rows. Blocks of `threads`.
__global__ void softmax(Shape shape,
                        Rows<const float> x,  // [rows, cols]
                        Rows<float> y) {      // [rows, cols]
  auto& smem = device::shared_storage<Smem>();
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const float* x_row = x.row(blockIdx.x);  // [cols]
  float* y_row = y.row(blockIdx.x);        // [cols]

  SoftmaxState row;
  for (int j = thread; j < shape.cols; j += threads) row = merge_states(row, {x_row[j], 1.0f});
  for (int distance = 16; distance > 0; distance /= 2) {
    const float m = __shfl_xor_sync(0xffffffffu, row.m, distance), l = __shfl_xor_sync(0xffffffffu, row.l, distance);
    row = merge_states(row, {m, l});
  }
  if (lane == 0) store(&smem.states[warp], row);
  row = load(&smem.states[0]);
  for (int w = 1; w < warps; ++w) {
    const SoftmaxState other = load(&smem.states[w]);
    row = {fmaxf(row.m, other.m), row.l + other.l};
  }

  const float m = device::safe_maximum(row.m), factor = device::inverse_sum(row.l);
  for (int j = thread; j < shape.cols; j += threads) y_row[j] = expf(x_row[j] - m) * factor;
}

}  // namespace exercise
