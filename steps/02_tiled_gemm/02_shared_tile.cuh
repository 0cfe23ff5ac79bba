// 02_tiled_gemm, shared_tile: tiles in shared memory.
// Predecessor: 01_element_per_thread.cuh
//
// The profile of `element_per_thread` shows L1 busy all the time: the kernel loads each element of A n times, and each of B m
// times. Here a block of 32 × 32 threads computes a tile of 32 × 32 elements of C, and walks along k in k-tiles of 32: its
// threads together load one tile of A and one of B into shared memory, and use every element 32 times from there.
//
//   thread   element (y, x) of the tile of C; when loading, row y and column x of both tiles
//   Smem     a[32][33]   rows of A, columns k … k + 31, as fp32
//            b[32][33]   rows of B, the same; the 33rd column keeps the 32 rows that a warp reads on 32 banks
//
// What to expect: a 32nd of the loads from global memory, and coalesced ones, because 32 threads share each element. The speed
// is at most 8.4 TFLOP/s, because each multiply-add of a warp now takes two loads from shared memory: at one wavefront per
// cycle that is one multiply-add in two cycles, and an SM could do four per cycle. The bound has moved to shared memory.
#pragma once

#include "steps/02_tiled_gemm/matrix.cuh"

namespace tiled_gemm {

constexpr int shared_tile = 32;

struct SharedTileSmem {
  float a[shared_tile][shared_tile + 1];
  float b[shared_tile][shared_tile + 1];
};

// Element [i][t] of a matrix; zero outside of it, so that tiles at the edge add nothing.
template <class T>
__device__ float element_or_zero(Matrix<const T> matrix, int batch, int i, int t, int rows, int columns) {
  return i < rows && t < columns ? to_float(load(&matrix.row(batch, i)[t])) : 0.0f;
}

// Grid: x over tiles, y over the batch. Blocks of 32 × 32 threads.
template <class T>
__global__ void shared_tile_gemm(Shape shape,
                                 Matrix<const T> a,  // [batch, m, k]
                                 Matrix<const T> b,  // [batch, n, k]
                                 Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<SharedTileSmem>();
  const TileOrigin tile = tile_origin(shape, shared_tile, shared_tile);
  const int x = threadIdx.x;  // the thread's column of C; when loading, its place along k
  const int y = threadIdx.y;  // its row
  const int batch = blockIdx.y;

  // [doc: shared_loop]
  float sum = 0.0f;
  for (int first = 0; first < shape.k; first += shared_tile) {
    smem.a[y][x] = element_or_zero(a, batch, tile.row + y, first + x, shape.m, shape.k);
    smem.b[y][x] = element_or_zero(b, batch, tile.column + y, first + x, shape.n, shape.k);
    __syncthreads();  // both tiles are written before anyone reads them
    for (int t = 0; t < shared_tile; ++t) sum += smem.a[y][t] * smem.b[x][t];
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }
  // [/doc: shared_loop]
  if (tile.row + y < shape.m && tile.column + x < shape.n) {
    store(&c.row(batch, tile.row + y)[tile.column + x], from_float<T>(sum));
  }
}

}  // namespace tiled_gemm
