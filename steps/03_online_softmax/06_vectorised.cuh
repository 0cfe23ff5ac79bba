// Step 03, file 5: 16 bytes an access, and the row stays in registers.
//
// File 4 reads x twice: 3 transfers where 2 would do, unless the second read comes from a cache. A block's registers hold 128
// KB of row and more: so each thread reads its share once, keeps it, and writes y from what it has kept. And a load of 2 bytes
// costs the load-store unit what one of 16 costs; eight loads of 16 bytes, issued before the first is needed, are 128 bytes
// under way a thread.
//
//   group      the threads of a row: 32, 64, …; a block holds one or more groups. Short rows share a block
//   thread     8 chunks of 16 bytes at the most: chunk k · group + thread, so that neighbours read neighbours
//   edges      a row may start between multiples of 16 bytes: what lies before the first and behind the last whole chunk, 14
//              elements at the most, goes to the threads one by one: `edge`
//   maximum    first over the warp, then the sum against it: 10 shuffles, where ⊕ in five rounds takes 10 exponentials more.
//              Warps are still merged by ⊕, each from its own maximum: one barrier, not two
//
// Where y does not start as x does, modulo 16 bytes, no chunk of x is a chunk of y: the step then runs file 4, as it does for
// rows longer than 1024 · 8 chunks.
//
//   Smem   states[warps of the block]   (m, l) of each warp
#pragma once

#include <array>
#include <bit>

#include "steps/03_online_softmax/04_block_per_row.cuh"

namespace online_softmax {

template <class T>
constexpr int chunk = 16 / sizeof(T);  // elements

// How a row lies: `head` elements, whole chunks from a multiple of 16 bytes on, and fewer than a chunk behind them.
struct Pieces {
  int head;
  int chunks;
};

// [doc: pieces]
template <class T>
__device__ inline Pieces pieces_of(const T* row, int cols) {
  const int past = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));  // elements
  const int head = min(cols, (chunk<T> - past) % chunk<T>);
  return {head, (cols - head) / chunk<T>};
}
// [/doc: pieces]

template <class T>
__device__ inline std::array<T, chunk<T>> elements_of(uint4 words) {
  return std::bit_cast<std::array<T, chunk<T>>>(words);
}

// Which chunks of a row a thread has, of those that a group takes together: first … end − 1. And which element at the row's
// edges.
template <class T, int group>
struct Place {
  int start;       // column of chunk 0
  int left;        // chunks from there to the end
  int edge_place;  // column
  bool has_edge;

  // Thread t takes element t of the head, or element t − head of the tail.
  __device__ Place(Pieces row, int cols, int first, int end, bool with_edges, int thread)
      : start(row.head + (first + thread) * chunk<T>),
        left(min(end, row.chunks) - first - thread),
        edge_place(thread < row.head ? thread : thread + row.chunks * chunk<T>),
        has_edge(with_edges && edge_place < cols) {}

  __device__ bool has(int k) const { return k * group < left; }
  __device__ const uint4* chunks_of(const T* x_row) const { return reinterpret_cast<const uint4*>(x_row + start); }
  __device__ uint4* chunks_of(T* y_row) const { return reinterpret_cast<uint4*>(y_row + start); }

  __device__ float load_edge(const T* x_row) const {
    const float loaded = to_float(load_if(has_edge, &x_row[edge_place]));
    return has_edge ? loaded : -INFINITY;
  }
};

// The softmax of some elements of a row, where m and factor are the row's maximum to subtract and 1 over its sum.
template <class T>
__device__ inline uint4 softmax_of(uint4 words, float m, float factor) {
  std::array<T, chunk<T>> elements = elements_of<T>(words);
#pragma unroll
  for (T& element : elements) element = from_float<T>(exp_below<T>(to_float(element), m) * factor);
  return std::bit_cast<uint4>(elements);
}

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
  // [doc: held_state]
  __device__ SoftmaxState warp_state() const {
    float largest = edge;
#pragma unroll
    for (int k = 0; k < most; ++k) {
      if (!place.has(k)) continue;
      float of_chunk = -INFINITY;  // chains of eight, not of 64
#pragma unroll
      for (const T element : elements_of<T>(chunks[k])) of_chunk = fmaxf(of_chunk, to_float(element));
      largest = fmaxf(largest, of_chunk);
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    }
    const float m = maximum_of<T>(largest), subtracted = device::safe_maximum(m);
    float l = exp_below<T>(edge, subtracted);
#pragma unroll
    for (int k = 0; k < most; ++k) {
      if (!place.has(k)) continue;
      float of_chunk = 0.0f;
#pragma unroll
      for (const T element : elements_of<T>(chunks[k])) of_chunk += exp_below<T>(to_float(element), subtracted);
      l += of_chunk;
    }
    for (int distance = 16; distance > 0; distance /= 2) l += __shfl_xor_sync(0xffffffffu, l, distance);
    return {m, l};
  }
  // [/doc: held_state]

  // Writes the softmax of what is held, where `row` is the state of the whole row.
  __device__ void store_row(T* y_row, SoftmaxState row) const {  // [cols]
    const float m = device::safe_maximum(row.m), factor = device::inverse_sum(row.l);
    uint4* y_chunks = place.chunks_of(y_row);
#pragma unroll
    for (int k = 0; k < most; ++k) {
      const uint4 result = softmax_of<T>(chunks[k], m, factor);
      store_if(place.has(k), &y_chunks[k * group], result);
    }
    store_if(place.has_edge, &y_row[place.edge_place], from_float<T>(exp_below<T>(edge, m) * factor));
  }
};

constexpr int held_chunks = 8;  // of a thread, at the most: 32 registers

constexpr int vectorised_block(int group) { return group < 128 ? 128 : group; }

template <int block>
struct WarpStatesSmem {
  SoftmaxState states[block / 32];
};

// The states of a group's warps as one. All threads of the block must make the call.
template <class T, int group, int block>
__device__ SoftmaxState merge_warps(WarpStatesSmem<block>& smem, SoftmaxState warp_state) {
  if constexpr (group == 32) return warp_state;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr int warps = group / 32;
  if (lane == 0) store(&smem.states[warp], warp_state);
  __syncthreads();  // the states of all warps are written before any warp merges its group's
  return merge_lanes<T>(lane < warps ? load(&smem.states[warp / warps * warps + lane]) : SoftmaxState{});
}

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
  const Pieces pieces = pieces_of(x.row(i), cols);
  Held<T, group, most> held({pieces, cols, 0, pieces.chunks, true, static_cast<int>(threadIdx.x % group)});
  held.load_row(x.row(i));
  const SoftmaxState row = merge_warps<T, group, block>(smem, held.warp_state());
  held.store_row(y.row(i), row);
}

}  // namespace online_softmax
