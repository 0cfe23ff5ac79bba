// Exercise 2 of step 02, mended. The wait counts groups, not tiles. A thread that closed a group only where it had copied a
// tile had too few of them in the last round: the one group still under way was the last tile's, and "at most one" let it be.
// An empty group for each tile that does not exist keeps the count right.
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
  const int rounds = ceil_div(shape.k, tc_k);

  const auto copy_tile = [&](int round) {
    TensorCoreSmem<T>& stage = smem.stage[round % stages];
    for (int i = threadIdx.x; i < tc_rows * tc_k / chunk; i += tc_threads) {
      const int row = i / (tc_k / chunk);
      const int t = i % (tc_k / chunk) * chunk;
      copy_chunk_or_zero(&stage.a[row][swizzled(row, t)], a, batch, tile.row + row, round * tc_k + t, shape.m, shape.k);
      copy_chunk_or_zero(&stage.b[row][swizzled(row, t)], b, batch, tile.column + row, round * tc_k + t, shape.n, shape.k);
    }
  };

  for (int round = 0; round < stages - 1; ++round) {
    if (round < rounds) copy_tile(round);
    ptx::cp_async_commit_group();  // an empty group, too: the waits below count groups
  }
  float sums[4][4][4] = {};
  for (int round = 0; round < rounds; ++round) {
    ptx::cp_async_wait_group<stages - 2>();  // this thread's part of this round's tile has come
    __syncthreads();                         // so has everyone's; and everyone has read the stage that is filled next
    if (round + stages - 1 < rounds) copy_tile(round + stages - 1);
    ptx::cp_async_commit_group();
    const TensorCoreSmem<T>& stage = smem.stage[round % stages];
#pragma unroll
    for (int step = 0; step < tc_k; step += 16) {
      std::uint32_t a_piece[4][4], b_pieces[2][4];
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int row = warp_row + 16 * p + lane % 16;
        ptx::ldmatrix_x4(a_piece[p], &stage.a[row][swizzled(row, step + lane / 16 * chunk)]);
      }
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int row = warp_column + 16 * q + lane / 16 * 8 + lane % 8;
        ptx::ldmatrix_x4(b_pieces[q], &stage.b[row][swizzled(row, step + lane / 8 % 2 * chunk)]);
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
  }
  store_warp_tile(sums, c, batch, shape, tile.row + warp_row, tile.column + warp_column);
}

}  // namespace exercise
