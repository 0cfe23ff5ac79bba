// 03_online_softmax, warp_per_row: a warp per row, merged by shuffles.
// Predecessor: 02_online.cuh
//
// The lanes of `online` read 32 rows at once, a sector each. Here the 32 lanes of a warp share one row: each lane takes every
// 32nd column, so a request of fp32 is 4 sectors of 32 bytes, all used. And there are 32 times as many threads, so more loads
// are in flight.
//
// Each lane runs the loop of `online` over its own columns and ends with a state (m, l) of its own. Two states make one, by ⊕
// (online_softmax.cuh); five steps of shuffles merge 32. ⊕ is what `online` did with one score: a score x is the state (x, 1).
//
// From here on in base 2. The hardware's exponential is 2^x; expf multiplies by log2(e) first, and handles cases that cannot
// come here. Folding log2(e) into the maximum leaves one multiply-add and one ex2 for each exponential of an fp16 score
// (rows.cuh says what fp32 does instead).
//
// No shared memory, no barrier: the lanes of a warp meet in the shuffles.
//
// What to expect: 95 µs and more for 16,384 rows of 4096 fp16 columns, because bytes are the bound now: the 3 transfers of
// `online`, without its wasted sectors.
#pragma once

#include "steps/03_online_softmax/rows.cuh"

namespace online_softmax {

constexpr int warps_per_block = 4;

// [doc: merge_lanes]
// The states of a warp's lanes as one, which every lane gets. All lanes must make the call.
template <class T>
__device__ SoftmaxState merge_lanes(SoftmaxState state) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const float m = __shfl_xor_sync(0xffffffffu, state.m, distance);
    const float l = __shfl_xor_sync(0xffffffffu, state.l, distance);
    state = device::merge(state, {m, l}, unit<T>).state;
  }
  return state;
}
// [/doc: merge_lanes]

// The state of the columns thread, thread + threads, … of a row that `threads` threads share. All threads make the same number
// of steps: in the last step a thread may have no column, and then its score is −∞.
template <class T>
__device__ SoftmaxState state_of_columns(const T* x_row,  // [cols]
                                         int cols, int thread, int threads) {
  SoftmaxState state;
  for (int j = thread; j - thread < cols; j += threads) {
    const float loaded = to_float(load_if(j < cols, &x_row[j]));
    const float score = j < cols ? loaded : -INFINITY;
    const float m = fmaxf(state.m, maximum_of<T>(score));
    state.l = state.l * device::rescale_factor(state.m, m, unit<T>) + exp_below<T>(score, device::safe_maximum(m));
    state.m = m;
  }
  return state;
}

// Writes those columns of y, where `state` is that of the whole row.
template <class T>
__device__ void write_columns(const T* x_row,  // [cols]
                              T* y_row,        // [cols]
                              int cols, int thread, int threads, SoftmaxState state) {
  const float m = device::safe_maximum(state.m), factor = device::inverse_sum(state.l);
  for (int j = thread; j - thread < cols; j += threads) {
    const float score = to_float(load_if(j < cols, &x_row[j]));
    store_if(j < cols, &y_row[j], from_float<T>(exp_below<T>(score, m) * factor));
  }
}

// Grid: over rows. Blocks of 32 · warps_per_block threads.
template <class T>
__global__ void warp_per_row_softmax(Shape shape,
                                     Rows<const T> x,  // [rows, cols]
                                     Rows<T> y) {      // [rows, cols]
  const int i = blockIdx.x * warps_per_block + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (i >= shape.rows) return;  // whole warps
  const SoftmaxState row = merge_lanes<T>(state_of_columns(x.row(i), shape.cols, lane, 32));
  write_columns(x.row(i), y.row(i), shape.cols, lane, 32, row);
}

}  // namespace online_softmax
