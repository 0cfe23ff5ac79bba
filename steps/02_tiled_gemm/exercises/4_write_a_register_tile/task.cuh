// Exercise 4 of step 02: a register tile, from scratch.
//
// C = A · Bᵀ in fp32, on the CUDA cores. A block computes 64 × 64 elements of C. Each of its 128 threads has a tile of 8 × 4 of
// them in registers: rows 8 (thread / 16) … and columns 4 (thread % 16) … of the block's tile. Given are the places of the
// tiles in shared memory, load4(), and the stores of C. You write the main loop, which for each k-tile
//
//   - copies it from global memory to shared memory. element_or_zero() reads A and B, also outside of the matrices;
//   - waits where the block must wait;
//   - for each of its 16 columns t, loads 8 elements of A and 4 of B into registers, and does 32 multiply-adds with them.
//
// A thread without a register tile loads two words from shared memory for each multiply-add. Yours must load 12 words for 32,
// in three accesses of 16 bytes. The grader checks C, also at ragged shapes. At the default shape it counts, too: the
// wavefronts of the loads from shared memory, and the sectors that are read from global memory. Run the executable with
// --counters to see both.
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
  // Yours to write: the main loop.
  (void)smem, (void)a, (void)b;

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
