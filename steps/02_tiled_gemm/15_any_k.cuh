// 02_tiled_gemm, any_k: rows padded to a multiple of 16 bytes.
// Predecessor: 14_edges.cuh (option: any k)
//
// cp.async moves 4, 8 or 16 bytes between addresses that are multiples of that. If a row has an odd number of elements, every
// other row begins at an odd multiple of two bytes, and no cp.async can read it. So such matrices are copied once, to rows of a
// multiple of 8 elements, with zeros behind the last one; then the kernels of `edges` take them.
//
//   block    256 threads, one row; 8 elements in flight for each thread
//   Smem     none
//
// What to expect: 32 µs at 4095³, because 2 · 33.5 MB are read and written, 134 MB at an H200's copy bandwidth of 4.25 TB/s;
// `edges` takes about 265 µs.
#pragma once

#include "steps/02_tiled_gemm/matrix.cuh"

namespace tiled_gemm {

constexpr int pad_loads = 8;  // in flight at the same time, for each thread

// to[i][t] = from[i][t], and zero for columns ≤ t < padded columns. Grid: x over rows, y over the batch.
template <class T>
__global__ void pad_rows(int columns, int padded_columns,
                         Matrix<const T> from,  // [batch, rows, columns]
                         Matrix<T> to) {        // [batch, rows, padded_columns]
  const T* from_row = from.row(blockIdx.y, blockIdx.x);
  T* to_row = to.row(blockIdx.y, blockIdx.x);
  for (int first = threadIdx.x; first < padded_columns; first += pad_loads * blockDim.x) {
    T values[pad_loads];
#pragma unroll
    for (int i = 0; i < pad_loads; ++i) {
      const int t = first + i * blockDim.x;
      values[i] = t < columns ? load(&from_row[t]) : from_float<T>(0.0f);
    }
#pragma unroll
    for (int i = 0; i < pad_loads; ++i) {
      const int t = first + i * blockDim.x;
      if (t < padded_columns) store(&to_row[t], values[i]);
    }
  }
}

}  // namespace tiled_gemm
