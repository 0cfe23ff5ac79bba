// 02_tiled_gemm, tensor_cores: mma.sync and ldmatrix.
// Predecessor: 03_register_tile.cuh
//
// `register_tile` reaches 20 TFLOP/s, and no more than 67 would be possible: the FMA units are the limit of any kernel without
// tensor cores. An mma.sync multiplies a 16 × 16 fragment of A with a 16 × 8 fragment of B: 2048 multiply-adds by one
// instruction of a warp, whose lanes hold the fragments in their registers, in the layout of ptx/arithmetic.cuh. ldmatrix
// brings them there from shared memory. Elements stay 16 bits wide.
//
//   block    8 warps, 128 × 128 elements of C, k-tiles of 64
//   warp     64 × 32: 4 × 4 fragments of 16 × 8, an accumulator of 64 registers in each lane
//   Smem     a[128][64]   rows of A: 128 bytes each, all 32 banks
//            b[128][64]   rows of B
//
// What to expect: 79 TFLOP/s, an eighth of the roof, because of bank conflicts. One ldmatrix.x4 reads four 8 × 8 matrices, each
// from 8 rows. Rows are 128 bytes apart, so all 8 begin at the same bank, and each matrix takes 8 wavefronts instead of one. A
// step of 16 columns of k costs a warp 6 ldmatrix.x4: 24 matrices, 192 wavefronts. Its 16 mma.sync take 16 · 6.1 = 98 cycles of
// its tensor core. Eight warps take 1536 wavefronts of one shared memory, but only 195 cycles of four tensor cores.
#pragma once

#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "steps/02_tiled_gemm/load_store.cuh"

namespace tiled_gemm {

constexpr int tc_rows = 128;     // of a block's tile of C
constexpr int tc_columns = 128;  // of it
constexpr int tc_k = 64;         // of a k-tile
constexpr int tc_threads = 256;
constexpr int warp_rows = 64;  // of a warp's part of the tile
constexpr int warp_columns = 32;

template <class T>
struct TensorCoreSmem {
  alignas(16) T a[tc_rows][tc_k];
  alignas(16) T b[tc_columns][tc_k];
};

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
    // [doc: tensor_core_step]
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
    // [/doc: tensor_core_step]
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }
  // ---- epilogue ----
  store_warp_tile(acc, c, batch, shape, tile.row + warp_row, tile.column + warp_column);
}

}  // namespace tiled_gemm
