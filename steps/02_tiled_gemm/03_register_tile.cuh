// 02_tiled_gemm, register_tile: tiles in registers.
// Predecessor: 02_shared_tile.cuh
//
// The profile of `shared_tile` shows shared memory busy with a wavefront in every cycle: two loads for one multiply-add. Here a
// thread computes 8 × 8 elements of C: for each t it loads 8 elements of A and 8 of B, as four vectors of 16 bytes, and does 64
// multiply-adds with them. That is one load for 16 multiply-adds.
//
//   block    256 threads, 128 × 128 elements of C
//   thread   rows 8 (thread / 16) …, columns 8 (thread % 16) …
//   Smem     a[16][128 + 4]   16 columns of k; along a row, 128 rows of A: what a thread needs at one t lies side by side
//            b[16][128 + 4]   the same of B
//                             the 4 spare columns spread the transposing stores of 16 lanes over 8 groups of banks
//
// What to expect: less than the 63.7 TFLOP/s of an H200's FMA units, because shared memory is busy for longer than they are:
// two lanes meet on a bank in the stores, and in the vector loads. That is 2944 cycles of the load/store pipe for 2048 cycles
// of multiply-adds, hence at most 47 TFLOP/s.
#pragma once

#include "steps/02_tiled_gemm/02_shared_tile.cuh"

namespace tiled_gemm {

constexpr int register_tile = 8;     // rows and columns of a thread
constexpr int register_block = 128;  // rows and columns of a block
constexpr int register_k = 16;       // step along k
constexpr int register_threads = 256;

struct RegisterTileSmem {
  alignas(16) float a[register_k][register_block + 4];
  alignas(16) float b[register_k][register_block + 4];
};

// Eight neighbouring floats.
__device__ inline void load8(const float* from, float (&to)[register_tile]) {
  const auto* vectors = reinterpret_cast<const float4*>(from);
  const float4 low = load(&vectors[0]), high = load(&vectors[1]);
  to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
  to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

// Grid: x over tiles, y over the batch. Blocks of register_threads.
template <class T>
__global__ void __launch_bounds__(register_threads) register_tile_gemm(Shape shape,
                                                                       Matrix<const T> a,  // [batch, m, k]
                                                                       Matrix<const T> b,  // [batch, n, k]
                                                                       Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<RegisterTileSmem>();
  const TileOrigin tile = tile_origin(shape, register_block, register_block);
  const int thread = threadIdx.x;
  const int row = thread / 16 * register_tile;
  const int column = thread % 16 * register_tile;
  const int batch = blockIdx.y;

  float acc[register_tile][register_tile] = {};
  for (int first = 0; first < shape.k; first += register_k) {
    const int t = thread % register_k;  // 16 lanes along k: coalesced
    for (int i = thread / register_k; i < register_block; i += register_threads / register_k) {
      smem.a[t][i] = element_or_zero(a, batch, tile.row + i, first + t, shape.m, shape.k);
      smem.b[t][i] = element_or_zero(b, batch, tile.column + i, first + t, shape.n, shape.k);
    }
    __syncthreads();  // both tiles are written before anyone reads them
    // [doc: register_step]
    for (int step = 0; step < register_k; ++step) {
      float a_frag[register_tile], b_frag[register_tile];
      load8(&smem.a[step][row], a_frag);
      load8(&smem.b[step][column], b_frag);
#pragma unroll
      for (int i = 0; i < register_tile; ++i) {
#pragma unroll
        for (int j = 0; j < register_tile; ++j) acc[i][j] += a_frag[i] * b_frag[j];
      }
    }
    // [/doc: register_step]
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }
#pragma unroll
  for (int i = 0; i < register_tile; ++i) {
#pragma unroll
    for (int j = 0; j < register_tile; ++j) {
      const int c_row = tile.row + row + i, c_column = tile.column + column + j;
      store_if(c_row < shape.m && c_column < shape.n, &c.row(batch, c_row)[c_column], from_float<T>(acc[i][j]));
    }
  }
}

}  // namespace tiled_gemm
