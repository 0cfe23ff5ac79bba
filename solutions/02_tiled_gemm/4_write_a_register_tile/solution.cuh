// Exercise 4 of step 02, solved: 12 words from shared memory serve 32 multiply-adds.
#pragma once

#include "steps/02_tiled_gemm/02_shared_tile.cuh"

namespace exercise {

using namespace tiled_gemm;

constexpr int block_rows = 64, block_columns = 64;  // of C, of a block
constexpr int thread_rows = 8, thread_columns = 4;  // of a thread
constexpr int tile_k = 16;                          // columns of a k-tile
constexpr int threads = 128;

struct Smem {
  alignas(16) float a[tile_k][block_rows + 4];  // along a row, the rows of A: what a thread needs at one t lies side by side
  alignas(16) float b[tile_k][block_columns + 4];
};

// Four neighbouring floats, in one access. `from` is a multiple of 16 bytes.
__device__ inline void load4(const float* from, float* to) {
  const float4 words = load(reinterpret_cast<const float4*>(from));
  to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
}

// Grid: x over tiles, y over the batch. Blocks of `threads`.
__global__ void __launch_bounds__(threads) gemm(Shape shape,
                                                Matrix<const float> a,  // [batch, m, k]
                                                Matrix<const float> b,  // [batch, n, k]
                                                Matrix<float> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<Smem>();
  const TileOrigin tile = tile_origin(shape, block_rows, block_columns);
  const int thread = threadIdx.x;
  const int row = thread / 16 * thread_rows, column = thread % 16 * thread_columns;  // the thread's first, in the block's tile
  const int batch = blockIdx.y;

  float acc[thread_rows][thread_columns] = {};
  for (int first = 0; first < shape.k; first += tile_k) {
    const int t = thread % tile_k;  // 16 lanes along k: coalesced
    for (int i = thread / tile_k; i < block_rows; i += threads / tile_k) {
      smem.a[t][i] = element_or_zero(a, batch, tile.row + i, first + t, shape.m, shape.k);
      smem.b[t][i] = element_or_zero(b, batch, tile.column + i, first + t, shape.n, shape.k);
    }
    __syncthreads();  // both tiles are written before anyone reads them
    for (int step = 0; step < tile_k; ++step) {
      float a_frag[thread_rows], b_frag[thread_columns];
      load4(&smem.a[step][row], &a_frag[0]);
      load4(&smem.a[step][row + 4], &a_frag[4]);
      load4(&smem.b[step][column], &b_frag[0]);
#pragma unroll
      for (int i = 0; i < thread_rows; ++i) {
#pragma unroll
        for (int j = 0; j < thread_columns; ++j) acc[i][j] += a_frag[i] * b_frag[j];
      }
    }
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }

  // the thread's elements of C
#pragma unroll
  for (int i = 0; i < thread_rows; ++i) {
#pragma unroll
    for (int j = 0; j < thread_columns; ++j) {
      const int c_row = tile.row + row + i, c_column = tile.column + column + j;
      store_if(c_row < shape.m && c_column < shape.n, &c.row(batch, c_row)[c_column], acc[i][j]);
    }
  }
}

}  // namespace exercise
