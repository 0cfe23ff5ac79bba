// What all files of step 02 share: matrices, and the tiles of C.
//
//     C[m, n] = A[m, k] · B[n, k]ᵀ
//
// A and B are stored alike, with k contiguous: a row of A and a row of B are what a dot product needs. Elements are fp16 or
// bf16, accumulators are fp32.
#pragma once

#include "common/device/dialect.h"

namespace tiled_gemm {

using device::ceil_div;
using device::from_float;
using device::load;
using device::load_if;
using device::packed;
using device::store;
using device::store_if;
using device::to_float;

// A [batch, rows, columns] array; the columns are contiguous.
template <class T>
struct Matrix {
  T* data;
  std::int64_t batch_stride;  // in elements; 0 where the whole batch shares one matrix
  std::int64_t row_stride;

  __host__ __device__ T* row(int batch, int row) const { return data + batch * batch_stride + row * row_stride; }
};

struct Shape {
  int m, n, k;
};

// Block x of a grid computes the tile at this row and column of C, row of tiles by row of tiles; block y is the batch entry.
struct TileOrigin {
  int row, column;
};
__device__ inline TileOrigin tile_origin(const Shape& shape, int tile_rows, int tile_columns) {
  const int tiles = ceil_div(shape.n, tile_columns);  // in a row of tiles
  const int tile = blockIdx.x;
  return {tile / tiles * tile_rows, tile % tiles * tile_columns};
}

}  // namespace tiled_gemm
