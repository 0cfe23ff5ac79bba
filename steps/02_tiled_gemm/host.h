// Step 02, host side: operands, grids, and the launch of a kernel that computes a tile of C with each block. Shared by step.cu,
// the exercises and the tests.
#pragma once

#include "common/run/family/gemm.h"
#include "common/runtime/launch.h"
#include "steps/02_tiled_gemm/matrix.cuh"

namespace tiled_gemm {

template <class T>
struct Operands {
  Matrix<const T> a, b;
  Matrix<T> c;
};

template <class T>
Operands<T> operands(const run::GemmLaunch& l) {
  return {{static_cast<const T*>(l.a), l.a_batch_stride, l.shape.lda},
          {static_cast<const T*>(l.b), l.b_batch_stride, l.shape.ldb},
          {static_cast<T*>(l.c), l.c_batch_stride, l.shape.ldc}};
}

// A block for each tile of C, and each entry of the batch.
inline dim3 grid_of_tiles(const problem::Gemm& g, int rows, int columns) {
  const std::int64_t tiles = std::int64_t{ceil_div(g.m, rows)} * ceil_div(g.n, columns);
  return {static_cast<unsigned>(tiles), static_cast<unsigned>(g.batch)};
}

inline Shape shape_of(const problem::Gemm& g) { return {g.m, g.n, g.k}; }

// One launch of a kernel whose tiles have these extents. `more` are its parameters behind the operands.
template <class T, class... More>
void launch_tiles(const run::GemmLaunch& l, void (*kernel)(Shape, Matrix<const T>, Matrix<const T>, Matrix<T>, More...),
                  int rows, int columns, dim3 block, std::size_t shared_bytes, More... more) {
  const Operands<T> o = operands<T>(l);
  runtime::launch(kernel, {.grid = grid_of_tiles(l.shape, rows, columns), .block = block, .shared_bytes = shared_bytes},
                  shape_of(l.shape), o.a, o.b, o.c, more...);
}

}  // namespace tiled_gemm
