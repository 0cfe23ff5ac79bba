// 02_tiled_gemm, double_buffering: two sets of fragments.
// Predecessor: 08_large_tiles.cuh
//
// In `large_tiles` a step of 16 columns of k is a sequence for each warp: 8 ldmatrix.x4, a wait for shared memory, 32 mma. One
// block of 8 warps fits on an SM, two warps for each scheduler, so there is hardly another warp to fill the wait. Here a warp
// has two sets of registers for fragments: it loads the fragments of the next step before the mma of this step.
//
// The barrier moves, too. The last step of a k-tile loads the first fragments of the next k-tile, so the wait and the barrier
// stand in front of that step. All fragments of this k-tile have been loaded by then: the same barrier says that everyone has
// read its stage.
//
//   lane     acc[4][8][4], a_frag[2][4][4], b_frag[2][4][4]: 192 registers
//   Smem     as in `large_tiles`
//
// What to expect: 0.65 of the roof, because no mma waits for shared memory any more. What remains are the instructions beside
// the mma, 1162 cycles for each k-tile, and four waves of blocks that are 0.97 full. Without a second set a step takes up to
// 280 cycles more: 256 wavefronts for the fragments of 8 warps, and a latency of 23 cycles.
#pragma once

#include "steps/02_tiled_gemm/08_large_tiles.cuh"

namespace tiled_gemm {

// Grid: x over tiles, y over the batch. Blocks of Tile::threads. k is a multiple of 8, and so are the row strides of A and B.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) double_buffered_gemm(Shape shape,
                                                                         Matrix<const T> a,  // [batch, m, k]
                                                                         Matrix<const T> b,  // [batch, n, k]
                                                                         Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<LargeTileSmem<T, Tile>>();
  const TileOrigin tile = tile_origin(shape, Tile::rows, Tile::columns);
  const int batch = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_row = warp / 4 * Tile::warp;  // within the tile
  const int warp_column = warp % 4 * Tile::warp;
  const int k_tiles = ceil_div(shape.k, Tile::k);

  const auto copy_tile = [&](int k_tile) {
    auto& stage = smem.stage[k_tile % Tile::stages];
    for (int i = threadIdx.x; i < Tile::rows * Tile::chunks; i += Tile::threads) {
      const int row = i / Tile::chunks;
      const int t = i % Tile::chunks * chunk;
      T* to = &stage.a[row][tuned_swizzle<Tile>(row % 8, t)];
      copy_chunk_or_zero(to, a, batch, tile.row + row, k_tile * Tile::k + t, shape.m, shape.k);
    }
    for (int i = threadIdx.x; i < Tile::columns * Tile::chunks; i += Tile::threads) {
      const int row = i / Tile::chunks;
      const int t = i % Tile::chunks * chunk;
      T* to = &stage.b[row][tuned_swizzle<Tile>(row % 8, t)];
      copy_chunk_or_zero(to, b, batch, tile.column + row, k_tile * Tile::k + t, shape.n, shape.k);
    }
  };

  std::uint32_t a_frag[2][4][4], b_frag[2][4][4];  // of this step of 16 columns of k, and of the next
  const auto load_fragments = [&](int k_tile, int step) {
    const auto& stage = smem.stage[k_tile % Tile::stages];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const int row = warp_row + 16 * p + lane % 16;
      ptx::ldmatrix_x4(a_frag[step % 2][p], &stage.a[row][tuned_swizzle<Tile>(row % 8, 16 * step + lane / 16 * chunk)]);
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int row = warp_column + 16 * q + lane / 16 * 8 + lane % 8;
      ptx::ldmatrix_x4(b_frag[step % 2][q], &stage.b[row][tuned_swizzle<Tile>(row % 8, 16 * step + lane / 8 % 2 * chunk)]);
    }
  };

  // ---- prologue ----
  for (int k_tile = 0; k_tile < Tile::stages - 1; ++k_tile) {
    copy_tile(k_tile);  // zeros behind the last column: the fragments of a k-tile that does not exist are loaded, and not used
    ptx::cp_async_commit_group();
  }
  ptx::cp_async_wait_group<Tile::stages - 2>();
  __syncthreads();  // the first k-tile is there, for everyone
  load_fragments(0, 0);
  // ---- main loop ----
  float acc[4][8][4] = {};
  // [doc: double_buffering_loop]
#pragma unroll 1
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    copy_tile(k_tile + Tile::stages - 1);  // to the stage of k-tile − 1: its last readers have passed the barrier
    ptx::cp_async_commit_group();
#pragma unroll
    for (int step = 0; step < Tile::steps; ++step) {
      const bool last = step == Tile::steps - 1;
      if (last) {
        ptx::cp_async_wait_group<Tile::stages - 2>();
        __syncthreads();  // the next k-tile is there, for everyone; and everyone has read this one
      }
      // fragments of the next step
      load_fragments(last ? k_tile + 1 : k_tile, (step + 1) % Tile::steps);
      // [/doc: double_buffering_loop]
#pragma unroll
      for (int p = 0; p < 4; ++p) {  // C += A B
#pragma unroll
        for (int q = 0; q < 8; ++q) {
          const auto& b_pair = b_frag[step % 2][q / 2];  // two fragments
          ptx::mma_m16n8k16<T>(acc[p][q], a_frag[step % 2][p], {b_pair[q % 2 * 2], b_pair[q % 2 * 2 + 1]});
        }
      }
    }
  }
  // ---- epilogue ----
  store_warp_tile(acc, c, batch, shape, tile.row + warp_row, tile.column + warp_column);
}

}  // namespace tiled_gemm
