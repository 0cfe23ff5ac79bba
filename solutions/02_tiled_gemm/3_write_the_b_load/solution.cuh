// Exercise 3 of step 02, solved. The k-halves of B lie side by side in its rows, so lanes 8 to 15 ask for the right halves of
// the first eight rows, and lanes 16 to 31 go on to the next eight; A's lanes do it the other way round. Two rows of 64 bytes
// fill the 32 banks: row r must move on with r / 2.
#pragma once

#include "steps/02_tiled_gemm/04_tensor_cores.cuh"

namespace exercise {

using namespace tiled_gemm;

using T = __half;

constexpr int tile_k = 32;  // of a k-tile

struct Smem {
  alignas(16) T a[tc_rows][tile_k];
  alignas(16) T b[tc_columns][tile_k];
};

// The column where element t of a tile's row lies; t is a multiple of 8. Stores and loads both ask here.
__device__ inline int place(int row, int t) { return t ^ row / 2 % 4 * chunk; }

// Loads two fragments of B: the 16 rows from first_row on, the 16 columns from `step` on. frag[0] and frag[1] are what
// mma.sync takes for the first eight rows, frag[2] and frag[3] for the other eight.
__device__ inline void load_b(std::uint32_t (&frag)[4], const T (&b)[tc_columns][tile_k], int first_row, int step) {
  const int lane = threadIdx.x % 32;
  const int row = first_row + lane / 16 * 8 + lane % 8;
  ptx::ldmatrix_x4(frag, &b[row][place(row, step + lane / 8 % 2 * chunk)]);
}

// Grid: x over tiles, y over the batch. Blocks of tc_threads. k is a multiple of 8, and so are the row strides of A and B.
__global__ void __launch_bounds__(tc_threads) gemm(Shape shape,
                                                   Matrix<const T> a,  // [batch, m, k]
                                                   Matrix<const T> b,  // [batch, n, k]
                                                   Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<Smem>();
  const TileOrigin tile = tile_origin(shape, tc_rows, tc_columns);
  const int batch = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_row = warp / 4 * warp_rows;  // within the tile
  const int warp_column = warp % 4 * warp_columns;

  // ---- main loop ----
  float acc[4][4][4] = {};
  for (int first = 0; first < shape.k; first += tile_k) {
    // the k-tile of A and of B
    for (int i = threadIdx.x; i < tc_rows * tile_k / chunk; i += tc_threads) {
      const int row = i / (tile_k / chunk);
      const int t = i % (tile_k / chunk) * chunk;
      store(reinterpret_cast<uint4*>(&smem.a[row][place(row, t)]),
            chunk_or_zero(a, batch, tile.row + row, first + t, shape.m, shape.k));
      store(reinterpret_cast<uint4*>(&smem.b[row][place(row, t)]),
            chunk_or_zero(b, batch, tile.column + row, first + t, shape.n, shape.k));
    }
    __syncthreads();  // both tiles are written before anyone reads them
#pragma unroll
    for (int step = 0; step < tile_k; step += 16) {
      std::uint32_t a_frag[4][4], b_frag[2][4];  // fragments of these 16 columns of k
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int row = warp_row + 16 * p + lane % 16;
        ptx::ldmatrix_x4(a_frag[p], &smem.a[row][place(row, step + lane / 16 * chunk)]);
      }
#pragma unroll
      for (int q = 0; q < 2; ++q) load_b(b_frag[q], smem.b, warp_column + 16 * q, step);
#pragma unroll
      for (int p = 0; p < 4; ++p) {  // C += A B
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          ptx::mma_m16n8k16<T>(acc[p][q], a_frag[p], {b_frag[q / 2][q % 2 * 2], b_frag[q / 2][q % 2 * 2 + 1]});
        }
      }
    }
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }
  // ---- epilogue ----
  store_warp_tile(acc, c, batch, shape, tile.row + warp_row, tile.column + warp_column);
}

}  // namespace exercise
