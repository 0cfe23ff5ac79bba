// Step 06: the products of a warp that has several slices of 16 rows. A fragment of B, once loaded, feeds an mma of each slice.
#pragma once

#include "common/device/backward/tensor_tile.cuh"
#include "common/device/kept_pairs.cuh"

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

// store_rows of all slices.
template <class T, int slices, int frags>
__device__ void store_rows(const Heads<T>& to, int batch, int head, int row, int end, float factor,
                           const float (&acc)[slices][frags][4], float* flag) {
#pragma unroll
  for (int s = 0; s < slices; ++s) store_rows(to, batch, head, row + 16 * s, end, factor, acc[s], flag);
}

// Accumulators of rows row … and columns column … of a tile, to dQ's sums of that tile.
template <bool vector, int dim, int slices, int frags>
__device__ void add_slices(float* dq_sums, int row, int column, const float (&acc)[slices][frags][4]) {
  float* first = dq_sums + row * dim + column / 16 * sums_block + lane_in_block();
#pragma unroll
  for (int s = 0; s < slices; ++s) {
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      add_lane<vector>(first + (16 * s * dim + n / 2 * sums_block), acc[s][n], acc[s][n + 1]);
    }
  }
}

// The first mma of a chain: accumulators begin at −D of their queries.
template <class T, int slices, int frags>
__device__ void mma_slices_from(float (&acc)[slices][frags][4], int n, const std::uint32_t (&a)[slices][4],
                                const std::uint32_t (&b)[2][2], const float* minus_delta) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const float2 of_rows = load(reinterpret_cast<const float2*>(&minus_delta[8 * (n + side) + threadIdx.x % 4 * 2]));
    const float begin[4] = {of_rows.x, of_rows.y, of_rows.x, of_rows.y};
#pragma unroll
    for (int s = 0; s < slices; ++s) ptx::mma_m16n8k16<T>(acc[s][n + side], a[s], b[side], begin);
  }
}

// acc += A Bᵀ, as multiply_rows. Where there is a −D of each row of B, acc begins there. between(step) is called behind each
// step of 16 columns.
template <class T, int a_rows, int b_rows, int dim, int slices, int frags, class Between>
__device__ void multiply_rows(float (&acc)[slices][frags][4], const Tile<T, a_rows, dim>& a_tile, int row,
                              const Tile<T, b_rows, dim>& b_tile, int b_row, const float* minus_delta, const Between& between) {
#pragma unroll
  for (int step = 0; step < dim / 16; ++step) {
    std::uint32_t a[slices][4];
#pragma unroll
    for (int s = 0; s < slices; ++s) load_a(a[s], a_tile, row + 16 * s, 16 * step);
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      std::uint32_t b[2][2];
      load_b(b, b_tile, b_row + 8 * n, 16 * step);
      if (step == 0 && minus_delta != nullptr) {
        mma_slices_from<T>(acc, n, a, b, minus_delta + b_row);
      } else {
        mma_slices<T>(acc, n, a, b);
      }
    }
    between(step);
  }
}

// Fragments of A to rows row … and columns column … of a tile, where load_a and load_a_columns find them. For 9.0: stmatrix.
template <class T, int rows, int columns, int steps, int slices>
__device__ void store_slices(Tile<T, rows, columns>& tile, int row, int column, const std::uint32_t (&a)[steps][slices][4]) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) ptx::stmatrix_x4(tile.down(row + 16 * s, column + 16 * step), a[step][s]);
  }
}

// ---- dropout in the tuned rungs ----

// P of a pair that is left out is −P from the exponential on: dV takes the positive part, dS asks for the sign. So the random
// bits are made once for a pair, and no register holds them.

template <int slices, int frags>
__device__ void zero(float (&acc)[slices][frags][4]) {
#pragma unroll
  for (int s = 0; s < slices; ++s) {
#pragma unroll
    for (int e = 0; e < 4 * frags; ++e) acc[s][e / 4][e % 4] = 0.0f;
  }
}

// P of pairs that are left out becomes −P: Pᵀ of 16 · slices keys from `key` on × 32 queries from `query` on.
template <class Shape, int slices, int octets>
__device__ void drop(float (&p)[slices][octets][4], const Shape& shape, int batch, int head, int query, int key) {
  if constexpr (device::drops<Shape>) {
    device::KeptTransposed kept[(slices + 1) / 2];  // of 32 keys each
    device::look_up(kept, shape.dropout, batch, head, query, slices == 1 ? key / 32 * 32 : key);
    device::negate_dropped(p, kept, slices == 1 ? key % 32 / 8 : 0);
  }
}

// Operands of dV: 0 in place of −P. NaN stays.
template <class T, int steps, int slices>
__device__ void keep_positive(std::uint32_t (&p)[steps][slices][4]) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) {
#pragma unroll
      for (int w = 0; w < 4; ++w) p[step][s][w] = ptx::max_nan_x2<T>(p[step][s][w], 0);
    }
  }
}

// dO Vᵀ becomes dS. acc[s][n][e] belongs to query 8 n + 2 t + e % 2 of those whose −D these are.
template <int slices, int frags>
__device__ void times_with_dropout(float (&acc)[slices][frags][4], const float (&p)[slices][frags][4], const float* minus_delta,
                                   float factor) {
#pragma unroll
  for (int n = 0; n < frags; ++n) {
    const float2 of_rows = load(reinterpret_cast<const float2*>(&minus_delta[8 * n + threadIdx.x % 4 * 2]));
#pragma unroll
    for (int s = 0; s < slices; ++s) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        acc[s][n][e] = device::gradient_with_dropout(p[s][n][e], acc[s][n][e], factor, e % 2 == 0 ? of_rows.x : of_rows.y);
      }
    }
  }
}

}  // namespace backward
