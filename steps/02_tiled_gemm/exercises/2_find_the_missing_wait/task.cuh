// Exercise 2 of step 02: the kernel of `pipeline`, with one fault. C is right whenever the copies happen to be fast enough.
// Read a report of the simulator before you compare with 07_pipeline.cuh.
#pragma once

#include "steps/02_tiled_gemm/07_pipeline.cuh"

namespace exercise {

using namespace tiled_gemm;

using T = __half;

// Grid: x over tiles, y over the batch. Blocks of tc_threads. k is a multiple of 8, and so are the row strides of A and B.
__global__ void __launch_bounds__(tc_threads) gemm(Shape shape,
                                                   Matrix<const T> a,  // [batch, m, k]
                                                   Matrix<const T> b,  // [batch, n, k]
                                                   Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<PipelineSmem<T>>();
  const TileOrigin tile = tile_origin(shape, tc_rows, tc_columns);
  const int batch = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_row = warp / 4 * warp_rows;  // within the tile
  const int warp_column = warp % 4 * warp_columns;
  const int k_tiles = ceil_div(shape.k, tc_k);

  const auto copy_tile = [&](int k_tile) {
    TensorCoreSmem<T>& stage = smem.stage[k_tile % stages];
    for (int i = threadIdx.x; i < tc_rows * tc_k / chunk; i += tc_threads) {
      const int row = i / (tc_k / chunk);
      const int t = i % (tc_k / chunk) * chunk;
      copy_chunk_or_zero(&stage.a[row][swizzled(row, t)], a, batch, tile.row + row, k_tile * tc_k + t, shape.m, shape.k);
      copy_chunk_or_zero(&stage.b[row][swizzled(row, t)], b, batch, tile.column + row, k_tile * tc_k + t, shape.n, shape.k);
    }
  };

  // ---- prologue ----
  for (int k_tile = 0; k_tile < stages - 1; ++k_tile) {
    if (k_tile < k_tiles) copy_tile(k_tile);
    ptx::cp_async_commit_group();
  }
  // ---- main loop ----
  float acc[4][4][4] = {};
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    ptx::cp_async_wait_group<stages - 2>();  // this thread's part of this k-tile has come
    __syncthreads();                         // so has everyone's; and everyone has read the stage that is filled next
    // copies of k-tile + 2
    if (k_tile + stages - 1 < k_tiles) {
      copy_tile(k_tile + stages - 1);
      ptx::cp_async_commit_group();
    }
    const TensorCoreSmem<T>& stage = smem.stage[k_tile % stages];
#pragma unroll
    for (int step = 0; step < tc_k; step += 16) {
      std::uint32_t a_frag[4][4], b_frag[2][4];  // fragments of these 16 columns of k
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int row = warp_row + 16 * p + lane % 16;
        ptx::ldmatrix_x4(a_frag[p], &stage.a[row][swizzled(row, step + lane / 16 * chunk)]);
      }
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int row = warp_column + 16 * q + lane / 16 * 8 + lane % 8;
        ptx::ldmatrix_x4(b_frag[q], &stage.b[row][swizzled(row, step + lane / 8 % 2 * chunk)]);
      }
#pragma unroll
      for (int p = 0; p < 4; ++p) {  // C += A B
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          ptx::mma_m16n8k16<T>(acc[p][q], a_frag[p], {b_frag[q / 2][q % 2 * 2], b_frag[q / 2][q % 2 * 2 + 1]});
        }
      }
    }
  }
  // ---- epilogue ----
  store_warp_tile(acc, c, batch, shape, tile.row + warp_row, tile.column + warp_column);
}

}  // namespace exercise
