// Step 02, file 4: tensor cores.
//
// An mma.sync multiplies a 16 × 16 piece of A with a 16 × 8 piece of B: 2048 multiply-adds by one instruction of a warp, whose
// lanes hold the pieces in their registers, in the layout of ptx/mma.cuh. ldmatrix brings them there from shared memory.
// Elements stay 16 bits wide.
//
//   block   8 warps, 128 × 128 elements of C, k in steps of 64
//   warp    64 × 32: 4 × 4 pieces of 16 × 8, 64 sums in the registers of each lane
//   Smem    a[128][64]   rows of A: 128 bytes each, all 32 banks
//           b[128][64]   rows of B
//
// What to expect: one ldmatrix.x4 reads four 8 × 8 matrices, each from 8 rows. Rows are 128 bytes apart, so all 8 begin at the
// same bank, and each matrix takes 8 wavefronts instead of one. A step of 16 along k costs a warp 6 ldmatrix.x4: 24 matrices,
// 192 wavefronts. Its 16 mma.sync take 16 · 6 = 96 cycles of its tensor core. Eight warps: 1536 wavefronts of the one shared
// memory against 192 cycles of the four tensor cores. The banks are the bound, eight to one.
#pragma once

#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "steps/02_tiled_gemm/matrix.cuh"

namespace tiled_gemm {

constexpr int tc_rows = 128;     // of a block's tile of C
constexpr int tc_columns = 128;  // of it
constexpr int tc_k = 64;         // step along k
constexpr int tc_threads = 256;
constexpr int warp_rows = 64;  // of a warp's part of the tile
constexpr int warp_columns = 32;
constexpr int chunk = 8;  // elements of 16 bits in 16 bytes, what one access moves

template <class T>
struct TensorCoreSmem {
  alignas(16) T a[tc_rows][tc_k];
  alignas(16) T b[tc_columns][tc_k];
};

// Elements [i][t] … [i][t + 7]; zeros outside of the matrix. t and the number of columns are multiples of 8.
template <class T>
__device__ uint4 chunk_or_zero(Matrix<const T> matrix, int batch, int i, int t, int rows, int columns) {
  if (i >= rows || t >= columns) return make_uint4(0, 0, 0, 0);
  return load(reinterpret_cast<const uint4*>(&matrix.row(batch, i)[t]));
}

// Stores a warp's 64 × 32 sums: element i of the piece at row 16 p, column 8 q is sums[p][q][i], in mma.sync's layout.
template <class T>
__device__ void store_warp_tile(const float (&sums)[4][4][4], Matrix<T> c, int batch, const Shape& shape, int row, int column) {
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const bool paired = c.row_stride % 2 == 0 && c.batch_stride % 2 == 0;  // are even columns multiples of four bytes?
#pragma unroll
  for (int p = 0; p < 4; ++p) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row + 16 * p + 8 * half + g;
        const int j = column + 8 * q + 2 * t;
        const bool first_inside = i < shape.m && j < shape.n, both_inside = i < shape.m && j + 1 < shape.n;
        T* to = &c.row(batch, i)[j];
        const float first = sums[p][q][2 * half], second = sums[p][q][2 * half + 1];
        store_if(both_inside && paired, reinterpret_cast<std::uint32_t*>(to), packed<T>(first, second));
        store_if(first_inside && !(both_inside && paired), to, from_float<T>(first));
        store_if(both_inside && !paired, to + 1, from_float<T>(second));
      }
    }
  }
}

// Grid: x over tiles, y over the batch. Blocks of tc_threads. k is a multiple of 8, and so are the row strides of A and B.
template <class T>
__global__ void __launch_bounds__(tc_threads) tensor_core_gemm(Shape shape,
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

  float sums[4][4][4] = {};
  for (int first = 0; first < shape.k; first += tc_k) {
    for (int i = threadIdx.x; i < tc_rows * tc_k / chunk; i += tc_threads) {
      const int row = i / (tc_k / chunk);
      const int t = i % (tc_k / chunk) * chunk;
      store(reinterpret_cast<uint4*>(&smem.a[row][t]), chunk_or_zero(a, batch, tile.row + row, first + t, shape.m, shape.k));
      store(reinterpret_cast<uint4*>(&smem.b[row][t]), chunk_or_zero(b, batch, tile.column + row, first + t, shape.n, shape.k));
    }
    __syncthreads();  // both tiles are written before anyone reads them
#pragma unroll
    // [doc: tensor_core_step]
    for (int step = 0; step < tc_k; step += 16) {
      std::uint32_t a_piece[4][4], b_pieces[2][4];
#pragma unroll
      for (int p = 0; p < 4; ++p) {  // 16 rows: lanes 0 to 15 give the left halves of them, lanes 16 to 31 the right ones
        ptx::ldmatrix_x4(a_piece[p], &smem.a[warp_row + 16 * p + lane % 16][step + lane / 16 * chunk]);
      }
#pragma unroll
      for (int q = 0; q < 2; ++q) {  // two pieces of 8 columns of C, that is, 8 rows of B
        ptx::ldmatrix_x4(b_pieces[q], &smem.b[warp_column + 16 * q + lane / 16 * 8 + lane % 8][step + lane / 8 % 2 * chunk]);
      }
#pragma unroll
      for (int p = 0; p < 4; ++p) {
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const std::uint32_t b_piece[2] = {b_pieces[q / 2][q % 2 * 2], b_pieces[q / 2][q % 2 * 2 + 1]};
          ptx::mma_m16n8k16<T>(sums[p][q], a_piece[p], b_piece);
        }
      }
    }
    // [/doc: tensor_core_step]
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }
  store_warp_tile(sums, c, batch, shape, tile.row + warp_row, tile.column + warp_column);
}

}  // namespace tiled_gemm
