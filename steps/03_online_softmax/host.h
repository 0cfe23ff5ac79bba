// 03_online_softmax, host side: what kernels take, and how rows are cut. Shared by step.cu, the exercises and the tests.
#pragma once

#include <algorithm>

#include "common/run/family/softmax.h"
#include "common/runtime/launch.h"
#include "steps/03_online_softmax/12_in_turns.cuh"

namespace online_softmax {

using problem::Softmax;

inline Shape shape_of(const Softmax& s) { return {s.rows, s.cols}; }

template <class T>
Rows<const T> x_of(const run::SoftmaxLaunch& l) {
  return {static_cast<const T*>(l.x), l.shape.ldx};
}
template <class T>
Rows<T> y_of(const run::SoftmaxLaunch& l) {
  return {static_cast<T*>(l.y), l.shape.ldy};
}

// Calls f(T{}) with the element type of the problem.
template <class F>
void with_type(problem::Dtype dtype, F f) {
  if (dtype == problem::Dtype::fp32) {
    f(float{});
  } else {
    f(__half{});
  }
}

// A kernel of a block for so many rows.
template <class T>
void launch_rows(const run::SoftmaxLaunch& l, void (*kernel)(Shape, Rows<const T>, Rows<T>), int rows_per_block, int threads,
                 std::size_t shared_bytes) {
  const dim3 grid(static_cast<unsigned>(ceil_div(l.shape.rows, rows_per_block)));
  runtime::launch(kernel, {.grid = grid, .block = static_cast<unsigned>(threads), .shared_bytes = shared_bytes},
                  shape_of(l.shape), x_of<T>(l), y_of<T>(l));
}

template <class T, int group, int most>
void launch_vectorised(const run::SoftmaxLaunch& l) {
  constexpr int block = vectorised_block(group);
  launch_rows<T>(l, vectorised_softmax<T, group, most>, block / group, block, sizeof(WarpStatesSmem<block>));
}

// The most whole chunks of 16 bytes that a row may have, wherever it starts.
inline int chunks_of(const Softmax& s) { return static_cast<int>(s.cols * problem::bytes(s.dtype) / 16); }

// Every row of y starts as that of x does, modulo 16 bytes.
inline bool aligned_alike(const Softmax& s) {
  return s.rows == 1 || (std::int64_t{s.ldx} - s.ldy) * static_cast<std::int64_t>(problem::bytes(s.dtype)) % 16 == 0;
}

// Parts of nearly one length; each but the first starts at the row's first whole chunk and a multiple of 512 bytes.
inline Split split_of(const Softmax& s) {
  const int parts = std::max(1, ceil_div(chunks_of(s), most_part_chunks));
  const int chunks = std::max(1, ceil_div(ceil_div(chunks_of(s), parts), 32)) * 32;
  return {std::max(1, ceil_div(chunks_of(s), chunks)), chunks};
}

}  // namespace online_softmax
