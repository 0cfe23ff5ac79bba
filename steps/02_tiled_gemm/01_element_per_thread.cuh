// 02_tiled_gemm, element_per_thread: one thread per element of C.
//
// Step 01's linear layer again, in half precision. Each thread walks along a row of A and a row of B. Neighbouring lanes take
// neighbouring columns of C: they share the row of A (one sector for the warp) and read 32 different rows of B (32 sectors of
// 32 bytes, of which each lane uses 2 bytes).
//
//   block    32 × 8 threads, 8 rows × 32 columns of C: a warp for each row
//   Smem     none
//
// What to expect: 0.51 TFLOP/s, because each multiply-add of a warp needs 33 sectors, and L1 serves one of them per cycle. At
// 4096³ the 2 · m · n · k operations need 2 · m · n · k loads: 275 GB, where A and B have 67 MB. The tensor cores could do 1365
// multiply-adds per cycle on each SM, and stand idle. Every rung after this one loads less.
#pragma once

#include "steps/02_tiled_gemm/matrix.cuh"

namespace tiled_gemm {

constexpr int element_rows = 8;  // of a block's tile; 32 columns: a warp for each row

// Grid: x over tiles, y over the batch. Blocks of 32 × element_rows threads.
template <class T>
__global__ void element_per_thread(Shape shape,
                                   Matrix<const T> a,  // [batch, m, k]
                                   Matrix<const T> b,  // [batch, n, k]
                                   Matrix<T> c) {      // [batch, m, n]
  const TileOrigin tile = tile_origin(shape, element_rows, 32);
  const int i = tile.row + threadIdx.y;
  const int j = tile.column + threadIdx.x;
  const int batch = blockIdx.y;
  if (i >= shape.m || j >= shape.n) return;

  // [doc: element_dot]
  const T* a_row = a.row(batch, i);  // [k]
  const T* b_row = b.row(batch, j);  // [k]
  float sum = 0.0f;
  for (int t = 0; t < shape.k; ++t) sum += to_float(load(&a_row[t])) * to_float(load(&b_row[t]));
  store(&c.row(batch, i)[j], from_float<T>(sum));
  // [/doc: element_dot]
}

}  // namespace tiled_gemm
