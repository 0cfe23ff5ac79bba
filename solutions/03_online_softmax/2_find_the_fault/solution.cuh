// Exercise 2 of step 03, mended. The three faults were:
//   - no barrier between the store of the warps' states and the loads of them
//   - the sums of the warps were added, each for its own maximum: they must be merged, as the lanes' are
//   - merge_states() took −∞ from −∞ where both parts were empty, as those of lanes 8 and 9 are in a row of 5: NaN
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
  const float subtracted = device::safe_maximum(m);
  return {m, a.l * expf(a.m - subtracted) + b.l * expf(b.m - subtracted)};
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
  __syncthreads();  // the states of all warps are written before any warp merges them
  row = load(&smem.states[0]);
  for (int w = 1; w < warps; ++w) row = merge_states(row, load(&smem.states[w]));

  const float m = device::safe_maximum(row.m), factor = device::inverse_sum(row.l);
  for (int j = thread; j < shape.cols; j += threads) y_row[j] = expf(x_row[j] - m) * factor;
}

}  // namespace exercise
