// 02_tiled_gemm, swizzle: swizzled rows.
// Predecessor: 05_padding.cuh
//
// `padding` wastes a ninth of its memory to move each row on by four banks. The same effect is possible for free: leave the
// rows at 128 bytes, and put the 8 chunks of 16 bytes of row r in another order, chunk c at place c ^ (r % 8). When ldmatrix
// reads 8 rows at the same c, the 8 places are all different. XOR is its own inverse and stays within the row, so storing and
// loading use the same function; using it on one side only is a common mistake.
//
//   Smem     a[128][64], b[128][64] as in `tensor_cores`; element t of row r lies at swizzled(r, t)
//
// What to expect: the wavefronts of `padding` in the memory of `tensor_cores`, because both spread 8 rows over all banks.
// Alone, the swizzle saves no time: the XORs are 61 more instructions for each k-tile. But the next rungs need the memory.
#pragma once

#include "steps/02_tiled_gemm/04_tensor_cores.cuh"

namespace tiled_gemm {

// Where column t of row r lies; t is a multiple of 8.
__device__ inline int swizzled(int r, int t) { return t ^ r % 8 * chunk; }

// Grid: x over tiles, y over the batch. Blocks of tc_threads. k is a multiple of 8, and so are the row strides of A and B.
template <class T>
__global__ void __launch_bounds__(tc_threads) swizzled_gemm(Shape shape,
                                                            Matrix<const T> a,  // [batch, m, k]
                                                            Matrix<const T> b,  // [batch, n, k]
                                                            Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<TensorCoreSmem<T>>();
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
      store(reinterpret_cast<uint4*>(&smem.a[row][swizzled(row, t)]),
            chunk_or_zero(a, batch, tile.row + row, first + t, shape.m, shape.k));
      store(reinterpret_cast<uint4*>(&smem.b[row][swizzled(row, t)]),
            chunk_or_zero(b, batch, tile.column + row, first + t, shape.n, shape.k));
    }
    __syncthreads();  // both tiles are written before anyone reads them
#pragma unroll
    for (int step = 0; step < tc_k; step += 16) {
      std::uint32_t a_frag[4][4], b_frag[2][4];  // fragments of these 16 columns of k
#pragma unroll
      for (int p = 0; p < 4; ++p) {  // 16 rows: lanes 0 to 15 give the left halves of them, lanes 16 to 31 the right ones
        const int row = warp_row + 16 * p + lane % 16;
        ptx::ldmatrix_x4(a_frag[p], &smem.a[row][swizzled(row, step + lane / 16 * chunk)]);
      }
#pragma unroll
      for (int q = 0; q < 2; ++q) {  // two fragments of 8 columns of C, that is, 8 rows of B
        const int row = warp_column + 16 * q + lane / 16 * 8 + lane % 8;
        ptx::ldmatrix_x4(b_frag[q], &smem.b[row][swizzled(row, step + lane / 8 % 2 * chunk)]);
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
