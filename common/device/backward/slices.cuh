// Step 06: the products of a warp that has several slices of 16 rows. A fragment of B, once loaded, feeds an mma of each slice.
#pragma once

#include "common/device/backward/sums_by_lane.cuh"
#include "common/device/backward/tensor_tile.cuh"

namespace backward {

// acc[s][n], acc[s][n + 1] += A[s] B.
template <class T, int slices, int frags>
__device__ void mma_slices(float (&acc)[slices][frags][4], int n, const std::uint32_t (&a)[slices][4],
                           const std::uint32_t (&b)[2][2]) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
#pragma unroll
    for (int s = 0; s < slices; ++s) ptx::mma_m16n8k16<T>(acc[s][n + side], a[s], b[side]);
  }
}

// acc += A Bᵀ, as multiply_rows.
template <class T, int a_rows, int b_rows, int dim, int slices, int frags>
__device__ void multiply_rows(float (&acc)[slices][frags][4], const Tile<T, a_rows, dim>& a_tile, int row,
                              const Tile<T, b_rows, dim>& b_tile, int b_row) {
#pragma unroll
  for (int column = 0; column < dim; column += 16) {
    std::uint32_t a[slices][4];
#pragma unroll
    for (int s = 0; s < slices; ++s) load_a(a[s], a_tile, row + 16 * s, column);
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      std::uint32_t b[2][2];
      load_b(b, b_tile, b_row + 8 * n, column);
      mma_slices<T>(acc, n, a, b);
    }
  }
}

// acc += A B, as multiply_kept; A is packed already: operands of 16 columns each. Columns first_column … of B.
template <class T, int rows, int dim, int steps, int slices, int frags>
__device__ void multiply_kept(float (&acc)[slices][frags][4], const std::uint32_t (&a)[steps][slices][4],
                              const Tile<T, rows, dim>& b_tile, int row, int first_column = 0) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      std::uint32_t b[2][2];
      load_b_columns(b, b_tile, row + 16 * step, first_column + 8 * n);
      mma_slices<T>(acc, n, a[step], b);
    }
  }
}

// acc += Aᵀ B: columns a_column … of A, 16 for each slice, column … of B, over the rows of both.
template <class T, int rows, int a_columns, int dim, int slices, int frags>
__device__ void multiply_tile_columns(float (&acc)[slices][frags][4], const Tile<T, rows, a_columns>& a_tile, int a_column,
                                      const Tile<T, rows, dim>& b_tile, int column) {
#pragma unroll
  for (int row = 0; row < rows; row += 16) {
    std::uint32_t a[slices][4];
#pragma unroll
    for (int s = 0; s < slices; ++s) load_a_columns(a[s], a_tile, row, a_column + 16 * s);
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      std::uint32_t b[2][2];
      load_b_columns(b, b_tile, row, column + 8 * n);
      mma_slices<T>(acc, n, a, b);
    }
  }
}

// acc = acc ∘ factor.
template <int slices, int frags>
__device__ void times(float (&acc)[slices][frags][4], const float (&factor)[slices][frags][4]) {
#pragma unroll
  for (int s = 0; s < slices; ++s) {
#pragma unroll
    for (int e = 0; e < 4 * frags; ++e) acc[s][e / 4][e % 4] *= factor[s][e / 4][e % 4];
  }
}

// Accumulators as operands of 16 columns each.
template <class T, int slices, int frags>
__device__ void pack_slices(std::uint32_t (&a)[frags / 2][slices][4], const float (&acc)[slices][frags][4]) {
#pragma unroll
  for (int step = 0; step < frags / 2; ++step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) as_operand<T>(a[step][s], acc[s], step);
  }
}

// Accumulators of rows row … and columns column … of a tile, to dQ's sums of that tile.
template <bool vector, int dim, int slices, int frags>
__device__ void add_slices(float* sums, int row, int column, const float (&acc)[slices][frags][4]) {
  float* first = sums + row * dim + column / 16 * sums_block + lane_in_block();
#pragma unroll
  for (int s = 0; s < slices; ++s) {
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      add_lane<vector>(first + (16 * s * dim + n / 2 * sums_block), acc[s][n], acc[s][n + 1]);
    }
  }
}

}  // namespace backward
