// 03_online_softmax, wide_loads: 16 bytes an access.
// Predecessor: 04_block_per_row.cuh
//
// `block_per_row` is bound by issue slots: it takes about 30 instructions for each load of 2 or 4 bytes, most of them for
// addresses and the loop. The load-store unit moves 16 bytes as cheaply as 2. Here a thread loads chunks of 16 bytes, 8
// elements of fp16 or 4 of fp32, and pays for addresses and the loop once per chunk.
//
//   block    256 threads share a row, as before
//   thread   chunks t, t + 256, … and one element of the row's edges (chunks.cuh)
//   chunk    is a part: its maximum first, and then one rescale for all its elements, where `block_per_row` has one for each
//
//   Smem     states[8]   (m, l) of each warp
//
// y must start as x does, modulo 16 bytes, or no chunk of x is a chunk of y: then the step runs `block_per_row`.
//
// What to expect: 80 µs for 16,384 rows of 4096 fp16 columns, where `block_per_row` takes 208, because an element costs about
// 10 instructions in both passes where it cost 59. x is still read twice: the second pass finds it in L1, if L1 has room for
// the rows of all 8 blocks of an SM.
#pragma once

#include "steps/03_online_softmax/04_block_per_row.cuh"
#include "steps/03_online_softmax/chunks.cuh"
#include "steps/03_online_softmax/merge_warps.cuh"

namespace online_softmax {

// [doc: add_chunk]
// `state` with the elements of one more chunk.
template <class T>
__device__ inline SoftmaxState add_chunk(SoftmaxState state, uint4 words) {
  const std::array<T, chunk<T>> elements = elements_of<T>(words);
  float chunk_max = -INFINITY;
#pragma unroll
  for (const T element : elements) chunk_max = fmaxf(chunk_max, to_float(element));
  const float m = fmaxf(state.m, maximum_of<T>(chunk_max)), subtracted = device::safe_maximum(m);
  float chunk_sum = 0.0f;
#pragma unroll
  for (const T element : elements) chunk_sum += exp_below<T>(to_float(element), subtracted);
  return {m, state.l * device::rescale_factor(state.m, m, unit<T>) + chunk_sum};
}
// [/doc: add_chunk]

// The state of one element.
template <class T>
__device__ SoftmaxState state_of(float element) {
  const float m = maximum_of<T>(element);
  return {m, exp_below<T>(element, device::safe_maximum(m))};
}

// Grid: over rows. Blocks of block_threads. y starts as x does, modulo 16 bytes.
template <class T>
__global__ void __launch_bounds__(block_threads, 2048 / block_threads) wide_loads_softmax(Shape shape,
                                                                                          Rows<const T> x,  // [rows, cols]
                                                                                          Rows<T> y) {      // [rows, cols]
  auto& smem = device::shared_storage<WarpStatesSmem<block_threads>>();
  const int i = blockIdx.x, thread = threadIdx.x;
  const ChunkedRow row = chunked(x.row(i), shape.cols);
  const Place<T, block_threads> place(row, shape.cols, 0, row.chunks, true, thread);
  const uint4* x_chunks = place.chunks_of(x.row(i));
  uint4* y_chunks = place.chunks_of(y.row(i));

  // row maximum and row sum. All threads make the same number of steps: in the last one a thread may have no chunk
  const float edge = place.load_edge(x.row(i));
  SoftmaxState mine = state_of<T>(edge);
  for (int k = 0; k * block_threads < row.chunks; ++k) {
    const uint4 words = load_if(place.has(k), &x_chunks[k * block_threads]);
    if (place.has(k)) mine = add_chunk<T>(mine, words);
  }
  const SoftmaxState state = merge_warps<T, block_threads>(smem, merge_lanes<T>(mine));

  // y = exp(x - m) / l
  const float m = device::safe_maximum(state.m), factor = device::inverse_sum(state.l);
  for (int k = 0; k * block_threads < row.chunks; ++k) {
    const uint4 words = load_if(place.has(k), &x_chunks[k * block_threads]);
    const uint4 result = softmax_of<T>(words, m, factor);
    store_if(place.has(k), &y_chunks[k * block_threads], result);
  }
  store_if(place.has_edge, &y.row(i)[place.edge_column], from_float<T>(exp_below<T>(edge, m) * factor));
}

}  // namespace online_softmax
