// 02_tiled_gemm, large_tiles: larger tiles of the block and of the warp.
// Predecessor: 07_pipeline.cuh
//
// In the profile of `pipeline` no unit is busy for more than half of the time, and shared memory sets the limit: 1024
// wavefronts beside 768 cycles of tensor cores. A warp that computes 64 × 64 elements of C uses each fragment of A eight times
// instead of four: 8 ldmatrix.x4 for 32 mma, where it took 6 for 16. A block of 128 × 256 fetches a quarter less from L2.
//
//   block    8 warps, 128 × 256 elements of C, k-tiles of 64
//   warp     64 × 64: 4 × 8 fragments of 16 × 8, an accumulator of 128 registers in each lane
//   Smem     stage[4]   each with a[128][k] and b[256][k], swizzled; k is 64 (192 KB), or 32 (96 KB) for GPUs with less
//
// What to expect: at most 0.67 of the roof, because instructions beside the mma are now the limit, no longer shared memory:
// 1408 wavefronts for each k-tile, beside 1562 cycles of tensor cores. There are 4.8 instructions beside each mma, nearly all
// for the addresses of copies: 128 mma take 128 · 6.1 + 32 · 1.0 + 584 · 0.6 = 1163 cycles. The speed will be lower, because
// each step's mma wait for the step's own ldmatrix, and there are only 8 warps on an SM to fill that wait: `pipeline` had 16.
#pragma once

#include "steps/02_tiled_gemm/07_pipeline.cuh"

namespace tiled_gemm {

// The tile of this kernel and of all that follow.
template <int k_>
struct TunedTile {
  static constexpr int rows = 128, columns = 256, k = k_, stages = 4;  // of a block
  static constexpr int threads = 256;
  static constexpr int warp = 64;           // rows and columns of a warp's part
  static constexpr int chunks = k / chunk;  // of a row
  static constexpr int steps = k / 16;
};

template <class T, class Tile>
struct LargeTileSmem {
  struct Stage {
    alignas(16) T a[Tile::rows][Tile::k];
    alignas(16) T b[Tile::columns][Tile::k];
  };
  Stage stage[Tile::stages];
};

// Where column t of a row lies. `key` numbers the 8 rows that ldmatrix reads at a time; rows of 64 bytes lie two to the 32
// banks.
template <class Tile>
__device__ inline int tuned_swizzle(int key, int t) {
  return t ^ (Tile::k == 64 ? key : key / 2) * chunk;
}

// Grid: x over tiles, y over the batch. Blocks of Tile::threads. k is a multiple of 8, and so are the row strides of A and B.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) large_tile_gemm(Shape shape,
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

  // ---- prologue ----
  for (int k_tile = 0; k_tile < Tile::stages - 1; ++k_tile) {
    if (k_tile < k_tiles) copy_tile(k_tile);
    ptx::cp_async_commit_group();  // an empty group, too: the waits below count groups
  }
  // ---- main loop ----
  float acc[4][8][4] = {};
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    ptx::cp_async_wait_group<Tile::stages - 2>();  // this thread's part of this k-tile has come
    __syncthreads();                               // so has everyone's; and everyone has read the stage that is filled next
    // copies of k-tile + 3
    if (k_tile + Tile::stages - 1 < k_tiles) copy_tile(k_tile + Tile::stages - 1);
    ptx::cp_async_commit_group();
    const auto& stage = smem.stage[k_tile % Tile::stages];
#pragma unroll
    for (int step = 0; step < Tile::k; step += 16) {
      std::uint32_t a_frag[4][4], b_frag[4][4];  // fragments of these 16 columns of k
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int row = warp_row + 16 * p + lane % 16;
        ptx::ldmatrix_x4(a_frag[p], &stage.a[row][tuned_swizzle<Tile>(row % 8, step + lane / 16 * chunk)]);
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int row = warp_column + 16 * q + lane / 16 * 8 + lane % 8;
        ptx::ldmatrix_x4(b_frag[q], &stage.b[row][tuned_swizzle<Tile>(row % 8, step + lane / 8 % 2 * chunk)]);
      }
#pragma unroll
      for (int p = 0; p < 4; ++p) {  // C += A B
#pragma unroll
        for (int q = 0; q < 8; ++q) {
          ptx::mma_m16n8k16<T>(acc[p][q], a_frag[p], {b_frag[q / 2][q % 2 * 2], b_frag[q / 2][q % 2 * 2 + 1]});
        }
      }
    }
  }
  // ---- epilogue ----
  store_warp_tile(acc, c, batch, shape, tile.row + warp_row, tile.column + warp_column);
}

}  // namespace tiled_gemm
