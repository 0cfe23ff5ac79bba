// 02_tiled_gemm, padding: padded rows.
// Predecessor: 04_tensor_cores.cuh
//
// The profile of `tensor_cores` shows 6.2 wavefronts for each ideal one: its rows of 128 bytes all begin at the same bank.
// Eight spare elements make a row 144 bytes long: row r begins 4 r banks further on, and the 8 rows of a matrix fall on 8
// different groups of 4 banks. Nothing else changes.
//
//   Smem     a[128][64 + 8], b[128][64 + 8]   the last 8 elements of a row are never used
//
// What to expect: an eighth of the wavefronts of ldmatrix, because each matrix now takes one. The stores of 16 bytes stay free
// of conflicts, too. The price: a ninth of the tile's memory holds nothing.
#pragma once

#include "steps/02_tiled_gemm/04_tensor_cores.cuh"

namespace tiled_gemm {

template <class T>
struct PaddedSmem {
  alignas(16) T a[tc_rows][tc_k + chunk];
  alignas(16) T b[tc_columns][tc_k + chunk];
};

// Grid: x over tiles, y over the batch. Blocks of tc_threads. k is a multiple of 8, and so are the row strides of A and B.
template <class T>
__global__ void __launch_bounds__(tc_threads) padded_gemm(Shape shape,
                                                          Matrix<const T> a,  // [batch, m, k]
                                                          Matrix<const T> b,  // [batch, n, k]
                                                          Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<PaddedSmem<T>>();
  const TileOrigin tile = tile_origin(shape, tc_rows, tc_columns);
  const int batch = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_row = warp / 4 * warp_rows;  // within the tile
  const int warp_column = warp % 4 * warp_columns;

  // ---- main loop ----
  float acc[4][4][4] = {};
  for (int first = 0; first < shape.k; first += tc_k) {
    // the k-tile of A and of B
    for (int i = threadIdx.x; i < tc_rows * tc_k / chunk; i += tc_threads) {
      const int row = i / (tc_k / chunk);
      const int t = i % (tc_k / chunk) * chunk;
      store(reinterpret_cast<uint4*>(&smem.a[row][t]), chunk_or_zero(a, batch, tile.row + row, first + t, shape.m, shape.k));
      store(reinterpret_cast<uint4*>(&smem.b[row][t]), chunk_or_zero(b, batch, tile.column + row, first + t, shape.n, shape.k));
    }
    __syncthreads();  // both tiles are written before anyone reads them
#pragma unroll
    for (int step = 0; step < tc_k; step += 16) {
      std::uint32_t a_frag[4][4], b_frag[2][4];  // fragments of these 16 columns of k
#pragma unroll
      for (int p = 0; p < 4; ++p) {  // 16 rows: lanes 0 to 15 give the left halves of them, lanes 16 to 31 the right ones
        ptx::ldmatrix_x4(a_frag[p], &smem.a[warp_row + 16 * p + lane % 16][step + lane / 16 * chunk]);
      }
#pragma unroll
      for (int q = 0; q < 2; ++q) {  // two fragments of 8 columns of C, that is, 8 rows of B
        ptx::ldmatrix_x4(b_frag[q], &smem.b[warp_column + 16 * q + lane / 16 * 8 + lane % 8][step + lane / 8 % 2 * chunk]);
      }
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

}  // namespace tiled_gemm
