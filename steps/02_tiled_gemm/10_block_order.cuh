// 02_tiled_gemm, block_order: blocks in the order of neighbouring tiles.
// Predecessor: 09_double_buffering.cuh
//
// The 132 blocks that run at the same time take 132 consecutive tiles of C, row of tiles by row of tiles. At 8192³ a row of
// tiles is 32 tiles: together the blocks need 5 rows of tiles of A, and all of B. What is not in L2 comes from global memory,
// and is read again for the next rows of tiles. Here 16 rows of tiles form a group, and the blocks walk through a group column
// by column:
//
//   tiles of C, in the order of the blocks      row by row       0  1  2  3  4 …        in groups      0 16 32 48 …
//                                                               32 33 34 35 36 …                       1 17 33 49 …
//                                                               64 65 66 67 68 …                       2 18 34 50 …
//
// The kernel chooses the tile of C for its block; the function above the kernel computes that tile.
//
// What to expect: half of the reads from global memory at 8192³, because the rows that 132 blocks need are 71 MB instead of 145
// MB, and L2 holds 60 MB. At 4096³ they are 36 MB instead of 43 MB, so it gains next to nothing there: L2 has both.
#pragma once

#include "steps/02_tiled_gemm/09_double_buffering.cuh"

namespace tiled_gemm {

constexpr int group_rows = 16;  // rows of tiles

// Tiles go in groups of group_rows rows of tiles, column by column.
template <class Tile>
__device__ TileOrigin grouped_origin(const Shape& shape, int tile) {
  const int tile_rows = ceil_div(shape.m, Tile::rows), tile_columns = ceil_div(shape.n, Tile::columns);
  const int first = tile / (group_rows * tile_columns) * group_rows;  // row of tiles
  const int height = min(group_rows, tile_rows - first);
  const int place = tile - first * tile_columns;
  return {(first + place % height) * Tile::rows, place / height * Tile::columns};
}

// One tile of C. All threads of a block call it together, once.
template <class T, class Tile>
__device__ void block_order_tile(LargeTileSmem<T, Tile>& smem, const Shape& shape, TileOrigin tile, int batch,
                                 const Matrix<const T>& a,  // [batch, m, k]
                                 const Matrix<const T>& b,  // [batch, n, k]
                                 const Matrix<T>& c) {      // [batch, m, n]
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

// Grid: x over tiles, y over the batch. Blocks of Tile::threads. k is a multiple of 8, and so are the row strides of A and B.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) block_order_gemm(Shape shape,
                                                                     Matrix<const T> a,  // [batch, m, k]
                                                                     Matrix<const T> b,  // [batch, n, k]
                                                                     Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<LargeTileSmem<T, Tile>>();
  block_order_tile<T, Tile>(smem, shape, grouped_origin<Tile>(shape, blockIdx.x), blockIdx.y, a, b, c);
}

}  // namespace tiled_gemm
