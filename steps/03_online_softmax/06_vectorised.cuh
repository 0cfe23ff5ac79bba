// 03_online_softmax, vectorised: the row stays in registers, and x is read once.
// Predecessor: 05_wide_loads.cuh
//
// `wide_loads` reads x twice: 3 transfers where 2 would do, unless the second read comes from a cache. A block's registers hold
// 128 KB of row and more: so each thread reads its share once, keeps it, and writes y from what it has kept. Its eight loads of
// 16 bytes are issued before the first is needed: 128 bytes in flight a thread.
//
//   group      the threads of a row: 32, 64, …, 1024; a block holds one or more groups. Short rows share a block
//   thread     8 chunks of 16 bytes at the most, and one element of the row's edges (chunks.cuh)
//   maximum    first over the warp, then the sum against it: 10 shuffles, where ⊕ in five steps takes 10 exponentials more.
//              Warps are still merged by ⊕, each from its own maximum: one barrier, not two
//
//   Smem   states[warps of the block]   (m, l) of each warp
//
// The step runs `block_per_row` for rows longer than 1024 · 8 chunks, and where y does not start as x does, modulo 16 bytes.
//
// What to expect: 0.92 of a copy's speed or more, because x and y cross the bus only once. Rows of 128 KB reach 0.7 to 0.8:
// only one such block fits on an SM, and while this block computes, no load is in flight on the SM.
#pragma once

#include "steps/03_online_softmax/05_wide_loads.cuh"

namespace online_softmax {

// What a thread keeps of a row.
template <class T, int group, int most>
struct Held {
  Place<T, group> place;
  uint4 chunks[most];
  float edge;

  __device__ explicit Held(Place<T, group> of_thread) : place(of_thread) {}

  // [doc: held_load]
  __device__ void load_row(const T* x_row) {  // [cols]
    edge = place.load_edge(x_row);
    const uint4* x_chunks = place.chunks_of(x_row);
#pragma unroll
    for (int k = 0; k < most; ++k) chunks[k] = load_if(place.has(k), &x_chunks[k * group]);
  }
  // [/doc: held_load]

  // The state of what the warp holds. All lanes must make the call.
  __device__ SoftmaxState warp_state() const {
    // maximum
    float warp_max = edge;
#pragma unroll
    for (int k = 0; k < most; ++k) {
      if (!place.has(k)) continue;
      float chunk_max = -INFINITY;  // chains of eight, not of 64
#pragma unroll
      for (const T element : elements_of<T>(chunks[k])) chunk_max = fmaxf(chunk_max, to_float(element));
      warp_max = fmaxf(warp_max, chunk_max);
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      warp_max = fmaxf(warp_max, __shfl_xor_sync(0xffffffffu, warp_max, distance));
    }

    // [doc: held_sum]
    // sum, against the warp's maximum
    const float m = maximum_of<T>(warp_max), subtracted = device::safe_maximum(m);
    float warp_sum = exp_below<T>(edge, subtracted);
#pragma unroll
    for (int k = 0; k < most; ++k) {
      if (!place.has(k)) continue;
      float chunk_sum = 0.0f;
#pragma unroll
      for (const T element : elements_of<T>(chunks[k])) chunk_sum += exp_below<T>(to_float(element), subtracted);
      warp_sum += chunk_sum;
    }
    for (int distance = 16; distance > 0; distance /= 2) warp_sum += __shfl_xor_sync(0xffffffffu, warp_sum, distance);
    return {m, warp_sum};
    // [/doc: held_sum]
  }

  // Writes the softmax of what is held, where `row` is the state of the whole row.
  __device__ void store_row(T* y_row, SoftmaxState row) const {  // [cols]
    const float m = device::safe_maximum(row.m), factor = device::inverse_sum(row.l);
    uint4* y_chunks = place.chunks_of(y_row);
#pragma unroll
    for (int k = 0; k < most; ++k) {
      const uint4 result = softmax_of<T>(chunks[k], m, factor);
      store_if(place.has(k), &y_chunks[k * group], result);
    }
    store_if(place.has_edge, &y_row[place.edge_column], from_float<T>(exp_below<T>(edge, m) * factor));
  }
};

constexpr int held_chunks = 8;  // of a thread, at the most: 32 registers

constexpr int vectorised_block(int group) { return group < 128 ? 128 : group; }

// Grid: over rows, block / group to a block. Rows have at most group · most chunks, and y starts as x does, modulo 16 bytes.
template <class T, int group, int most>
__global__ void __launch_bounds__(vectorised_block(group), 1024 / vectorised_block(group))
    vectorised_softmax(Shape shape,
                       Rows<const T> x,  // [rows, cols]
                       Rows<T> y) {      // [rows, cols]
  constexpr int block = vectorised_block(group);
  auto& smem = device::shared_storage<WarpStatesSmem<block>>();
  const int i = blockIdx.x * (block / group) + threadIdx.x / group;
  const int cols = i < shape.rows ? shape.cols : 0;  // a row that is not there is empty, but its threads come to the barrier
  const ChunkedRow row_chunks = chunked(x.row(i), cols);
  Held<T, group, most> held({row_chunks, cols, 0, row_chunks.chunks, true, static_cast<int>(threadIdx.x % group)});
  held.load_row(x.row(i));
  const SoftmaxState row = merge_warps<T, group, block>(smem, held.warp_state());
  held.store_row(y.row(i), row);
}

}  // namespace online_softmax
