// 03_online_softmax: how a row lies in chunks of 16 bytes, and which of them a thread has.
//
// A row may start at any element. Whole chunks begin at the first multiple of 16 bytes; before and behind them are the edges,
// 14 elements at the most, which go to the threads one by one.
//
//     row      | head | chunk 0 | chunk 1 | …… | chunk n − 1 | tail |
//     thread t takes chunks t, t + group, t + 2 · group, …, so that neighbours read neighbours, and one element of the edges
#pragma once

#include <array>
#include <bit>

#include "steps/03_online_softmax/rows.cuh"

namespace online_softmax {

template <class T>
constexpr int chunk = 16 / sizeof(T);  // elements

// How a row lies: `head` elements, whole chunks from a multiple of 16 bytes on, and fewer than a chunk behind them.
struct ChunkedRow {
  int head;
  int chunks;
};

// [doc: chunked]
template <class T>
__device__ inline ChunkedRow chunked(const T* row, int cols) {
  const int past = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));  // elements
  const int head = min(cols, (chunk<T> - past) % chunk<T>);
  return {head, (cols - head) / chunk<T>};
}
// [/doc: chunked]

template <class T>
__device__ inline std::array<T, chunk<T>> elements_of(uint4 words) {
  return std::bit_cast<std::array<T, chunk<T>>>(words);
}

// Which chunks of a row a thread has, of those that a group of threads takes together: first … end − 1. And which element at
// the row's edges.
template <class T, int group>
struct Place {
  int start;  // column of chunk 0
  int left;   // chunks from there to the end
  int edge_column;
  bool has_edge;

  // Thread t takes element t of the head, or element t − head of the tail.
  __device__ Place(ChunkedRow row, int cols, int first, int end, bool with_edges, int thread)
      : start(row.head + (first + thread) * chunk<T>),
        left(min(end, row.chunks) - first - thread),
        edge_column(thread < row.head ? thread : thread + row.chunks * chunk<T>),
        has_edge(with_edges && edge_column < cols) {}

  __device__ bool has(int k) const { return k * group < left; }
  __device__ const uint4* chunks_of(const T* x_row) const { return reinterpret_cast<const uint4*>(x_row + start); }
  __device__ uint4* chunks_of(T* y_row) const { return reinterpret_cast<uint4*>(y_row + start); }

  __device__ float load_edge(const T* x_row) const {
    const float loaded = to_float(load_if(has_edge, &x_row[edge_column]));
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

}  // namespace online_softmax
