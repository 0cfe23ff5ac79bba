// 02_tiled_gemm, wide_epilogue: 16-byte stores of C.
// Predecessor: 10_block_order.cuh
//
// An mma leaves a lane two neighbouring columns of C, 2t and 2t + 1: `block_order` stores 4 bytes at a time, and each of its
// stores reaches 8 sectors of 32 bytes and fills half of each. Columns of C are rows of B, and an mma does not mind which 8
// rows of B it gets. Here the rows of B are permuted: fragment q of four takes the columns 8t + 2q and 8t + 2q + 1 of 32, for t
// = 0 … 3. So the four fragments give lane t the columns 8t … 8t + 7: one store of 16 bytes, straight from registers.
//
//   32 columns of a row of C, and the lane t = 0 … 3 that holds each
//     `block_order`      00112233 00112233 00112233 00112233     a fragment is 8 columns side by side
//     `wide_epilogue`    00000000 11111111 22222222 33333333     each lane has two of them from each of four fragments
//
// A row of C that begins at no multiple of 16 bytes cannot take such stores. Then the tile goes through shared memory, and
// warps store whole rows of it.
//
//   Smem     stage[4]          as in `block_order`
//            c[128][256 + 8]   in the same place, after the main loop: the tile of C, for such rows
//
// What to expect: 1 % less time at k = 4096, because a tile's stores reach 2048 sectors instead of 4096. At 64 bytes per cycle
// that is 1024 cycles instead of 2048, of some 110,000 for the tile. The smaller k is, the larger the gain.
#pragma once

#include "steps/02_tiled_gemm/10_block_order.cuh"

namespace tiled_gemm {

template <class T, class Tile>
union TunedSmem {
  typename LargeTileSmem<T, Tile>::Stage stage[Tile::stages];
  T c[Tile::rows][Tile::columns + chunk];  // the tile of C, where its rows begin at no multiples of 16 bytes
};

// The row of B, one of 32, whose address this lane gives to ldmatrix. An ldmatrix.x4 brings 16 rows, for two fragments of C:
// fragment q has the rows 2q, 2q + 1, 2q + 8, 2q + 9, 2q + 16, …
__device__ inline int b_row(int lane) { return lane % 8 / 2 * 8 + lane % 2 + lane / 16 * 2; }
// The keys of the swizzle. Rows that ldmatrix reads together have different ones.
__device__ inline int a_key(int row) { return row % 8; }
__device__ inline int b_key(int row) { return row % 2 + row / 8 % 4 * 2; }

// The block's tile of C, from the accumulators of its warps: row 8p + lane / 4 of a warp's part, columns 32q + 8 (lane % 4) … +
// 7, for p = 0 … 7, q = 0 … 1. No copy into a stage may be in flight, and everyone has read the last one.
template <class T, class Tile>
__device__ void store_wide_tile(TunedSmem<T, Tile>& smem, const float (&acc)[4][8][4], const Shape& shape, TileOrigin tile,
                                int batch, int warp_row, int warp_column, const Matrix<T>& c) {
  const int lane = threadIdx.x % 32;
  const bool aligned = c.row_stride % 8 == 0 && c.batch_stride % 8 == 0;
  // [doc: wide_epilogue]
#pragma unroll
  for (int p = 0; p < 8; ++p) {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const auto word = [&](int w) {
        return packed<T>(acc[p / 2][4 * q + w][p % 2 * 2], acc[p / 2][4 * q + w][p % 2 * 2 + 1]);
      };
      const uint4 words = make_uint4(word(0), word(1), word(2), word(3));
      const int i = warp_row + 8 * p + lane / 4;
      const int j = warp_column + 32 * q + lane % 4 * 8;
      if (!aligned) {
        store(reinterpret_cast<uint4*>(&smem.c[i][j]), words);
      } else if (tile.row + i < shape.m && tile.column + j < shape.n) {
        store8(&c.row(batch, tile.row + i)[tile.column + j], words, shape.n - (tile.column + j));
      }
    }
  }
  // [/doc: wide_epilogue]
  if (aligned) return;
  __syncthreads();  // the tile is in shared memory before warps store rows of it
  const int count = min(Tile::columns, shape.n - tile.column);
#pragma unroll 4
  for (int i = threadIdx.x / 32; i < min(Tile::rows, shape.m - tile.row); i += Tile::threads / 32) {
    store_row<T, Tile::columns>(&c.row(batch, tile.row + i)[tile.column], smem.c[i], count);
  }
}

// One tile of C. All threads of a block call it together, once.
template <class T, class Tile>
__device__ void wide_epilogue_tile(TunedSmem<T, Tile>& smem, const Shape& shape, TileOrigin tile, int batch,
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
      T* to = &stage.a[row][tuned_swizzle<Tile>(a_key(row), t)];
      copy_chunk_or_zero(to, a, batch, tile.row + row, k_tile * Tile::k + t, shape.m, shape.k);
    }
    for (int i = threadIdx.x; i < Tile::columns * Tile::chunks; i += Tile::threads) {
      const int row = i / Tile::chunks;
      const int t = i % Tile::chunks * chunk;
      T* to = &stage.b[row][tuned_swizzle<Tile>(b_key(row), t)];
      copy_chunk_or_zero(to, b, batch, tile.column + row, k_tile * Tile::k + t, shape.n, shape.k);
    }
  };

  std::uint32_t a_frag[2][4][4], b_frag[2][4][4];          // of this step of 16 columns of k, and of the next
  const auto load_fragments = [&](int k_tile, int step) {  // from rows whose key is lane % 8
    const auto& stage = smem.stage[k_tile % Tile::stages];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const int row = warp_row + 16 * p + lane % 16;
      ptx::ldmatrix_x4(a_frag[step % 2][p], &stage.a[row][tuned_swizzle<Tile>(lane % 8, 16 * step + lane / 16 * chunk)]);
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int row = warp_column + q / 2 * 32 + q % 2 * 4 + b_row(lane);
      ptx::ldmatrix_x4(b_frag[step % 2][q], &stage.b[row][tuned_swizzle<Tile>(lane % 8, 16 * step + lane / 8 % 2 * chunk)]);
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
  ptx::cp_async_wait_all();  // the last groups are zeros that nobody needs, but they are written
  __syncthreads();  // everyone has read the last k-tile, and no copy is in flight, not even of zeros: the stages are free

  // ---- epilogue ----
  store_wide_tile<T, Tile>(smem, acc, shape, tile, batch, warp_row, warp_column, c);
}

// Grid: x over tiles, y over the batch. Blocks of Tile::threads. k is a multiple of 8, and so are the row strides of A and B.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) wide_epilogue_gemm(Shape shape,
                                                                       Matrix<const T> a,  // [batch, m, k]
                                                                       Matrix<const T> b,  // [batch, n, k]
                                                                       Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<TunedSmem<T, Tile>>();
  wide_epilogue_tile<T, Tile>(smem, shape, grouped_origin<Tile>(shape, blockIdx.x), blockIdx.y, a, b, c);
}

}  // namespace tiled_gemm
