// What all files of step 02 share: matrices, element types, and the tiles of C.
//
//     C[m, n] = A[m, k] · B[n, k]ᵀ
//
// A and B are stored alike, with k contiguous: a row of A and a row of B are what a dot product needs. Elements are fp16 or
// bf16, sums are fp32.
#pragma once

#include "common/device/launch.h"
#include "common/device/memory.cuh"

namespace tiled_gemm {

using device::ceil_div;
using device::load;
using device::load_if;
using device::store;
using device::store_if;

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

__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half(x);
  } else {
    return __float2bfloat16(x);
  }
}

// Two neighbouring elements, as one 32-bit word; the first in the low half.
template <class T>
__device__ inline std::uint32_t packed(float first, float second) {
  const T pair[2] = {from_float<T>(first), from_float<T>(second)};
  std::uint32_t word;
  memcpy(&word, pair, sizeof(word));
  return word;
}

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
