// 02_tiled_gemm, addresses: addresses made before the main loop.
// Predecessor: 11_wide_epilogue.cuh
//
// Every instruction beside an mma.sync delays the mma: an ldmatrix.x4 by about one cycle, an integer instruction by 0.6
// (assumed). `wide_epilogue` has 5.0 instructions beside each mma. Most of them work out the addresses and bounds of 12 copies
// and of 32 ldmatrix, anew for each k-tile, although from one k-tile to the next all of them move in the same way.
//
//   offsets       each thread keeps a 32-bit offset for each row that it copies, and one pointer for each matrix moves on. For
//                 a row beyond the matrix it copies the last row: that needs no predicate, and the result is never stored
//   XOR           a lane always reads rows of the same key, so `swizzle(key, t + 16 · step)` is `swizzle(key, t) ^ 16 · step`:
//                 two addresses made before the loop serve all ldmatrix
//
//   lane     12 offsets, and the two addresses, beside 192 registers of accumulator and fragments
//   Smem     as in `wide_epilogue`
//
// What to expect: 0.89 of the roof, because 0.7 instructions remain beside each mma: 128 mma take 128 · 6.1 + 32 · 1.0 + 63 ·
// 0.6 = 851 cycles, and four waves of blocks are 0.97 full. The share is lower if the 12 copies of each warp, issued together,
// fill the queue to shared memory: they are 384 wavefronts for 8 warps, and the ldmatrix of the next step queue up behind them.
#pragma once

#include "steps/02_tiled_gemm/11_wide_epilogue.cuh"

namespace tiled_gemm {

constexpr int tuned_max_ld = 1 << 23;  // of A and B: 32 bits count the bytes to a tile's last row

// The stage after one of smem's; after the last one, the first.
template <class T, class Tile, class Stage>
__device__ Stage* stage_after(TunedSmem<T, Tile>& smem, Stage* stage) {
  return stage == &smem.stage[Tile::stages - 1] ? &smem.stage[0] : stage + 1;
}

// The copies of a thread: its chunk of every row_step-th row of A and of B.
template <class T, class Tile>
struct TileCopies {
  using Stage = typename LargeTileSmem<T, Tile>::Stage;
  static constexpr int row_step = Tile::threads / Tile::chunks;          // rows that all threads together copy at once
  static constexpr int of_a = Tile::rows / row_step;                     // copies of a thread, for each k-tile
  static constexpr int count = (Tile::rows + Tile::columns) / row_step;  // of A and B
  static_assert(row_step % 32 == 0);                                     // so rows that far below another have the same key

  const int row = threadIdx.x / Tile::chunks, t = threadIdx.x % Tile::chunks * chunk;  // of the thread's first chunk
  const T *a_k, *b_k;         // of the k-tile that is copied next: the same for all threads
  std::uint32_t from[count];  // bytes from there to the thread's chunks
  int left;                   // columns from the thread's chunk of that k-tile to the end
  const int a_to = row * Tile::k + tuned_swizzle<Tile>(a_key(row), t);  // element of stage.a
  const int b_to = row * Tile::k + tuned_swizzle<Tile>(b_key(row), t);  // element of stage.b

  __device__ TileCopies(const Shape& shape, TileOrigin tile, int batch, const Matrix<const T>& a, const Matrix<const T>& b)
      : a_k(a.row(batch, tile.row)), b_k(b.row(batch, tile.column)), left(shape.k - t) {
    const auto offset = [&](int below, int rows, std::int64_t stride) {  // in bytes; beyond the matrix, of its last row
      return static_cast<std::uint32_t>(sizeof(T)) * (static_cast<std::uint32_t>(min(row + below, rows - 1) * stride) + t);
    };
#pragma unroll
    for (int i = 0; i < count; ++i) {
      from[i] = i < of_a ? offset(i * row_step, shape.m - tile.row, a.row_stride)
                         : offset((i - of_a) * row_step, shape.n - tile.column, b.row_stride);
    }
  }

  // [doc: addresses_copy]
  __device__ void copy(Stage& stage, int i) const {
    const int below = (i < of_a ? i : i - of_a) * row_step;
    T* to = i < of_a ? &stage.a[below][0] + a_to : &stage.b[below][0] + b_to;
    const char* source = reinterpret_cast<const char*>(i < of_a ? a_k : b_k) + from[i];
    ptx::cp_async_16(to, source, left > 0 ? 16 : 0);  // zeros behind the last column
  }
  __device__ void end_of_tile() {
    ptx::cp_async_commit_group();
    a_k += Tile::k;
    b_k += Tile::k;
    left -= Tile::k;
  }
  // [/doc: addresses_copy]
  __device__ void copy_tile(Stage& stage) {
#pragma unroll
    for (int i = 0; i < count; ++i) copy(stage, i);
    end_of_tile();
  }
};

// One tile of C. All threads of a block call it together, once.
template <class T, class Tile>
__device__ void addresses_tile(TunedSmem<T, Tile>& smem, const Shape& shape, TileOrigin tile, int batch,
                               const Matrix<const T>& a,  // [batch, m, k]
                               const Matrix<const T>& b,  // [batch, n, k]
                               const Matrix<T>& c) {      // [batch, m, n]
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_row = warp / 4 * Tile::warp;  // within the tile
  const int warp_column = warp % 4 * Tile::warp;
  const int k_tiles = ceil_div(shape.k, Tile::k);

  TileCopies<T, Tile> copies(shape, tile, batch, a, b);
  auto* fill = &smem.stage[0];  // where the next k-tile goes
  // ---- fragments: of this step of 16 columns of k, and of the next ----
  std::uint32_t a_frag[2][4][4], b_frag[2][4][4];
  const int a_from = (warp_row + lane % 16) * Tile::k + tuned_swizzle<Tile>(lane % 8, lane / 16 * chunk);
  const int b_from = (warp_column + b_row(lane)) * Tile::k + tuned_swizzle<Tile>(lane % 8, lane / 8 % 2 * chunk);
  const auto* read = &smem.stage[0];  // where fragments come from
  const auto load_fragments = [&](int step) {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      ptx::ldmatrix_x4(a_frag[step % 2][p], &read->a[16 * p][0] + (a_from ^ 16 * step));
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      ptx::ldmatrix_x4(b_frag[step % 2][q], &read->b[q / 2 * 32 + q % 2 * 4][0] + (b_from ^ 16 * step));
    }
  };

  // ---- prologue ----
  for (int k_tile = 0; k_tile < Tile::stages - 1; ++k_tile) {
    copies.copy_tile(*fill);
    fill = stage_after(smem, fill);
  }
  ptx::cp_async_wait_group<Tile::stages - 2>();
  __syncthreads();  // the first k-tile is there, for everyone
  load_fragments(0);
  // ---- main loop ----
  float acc[4][8][4] = {};
#pragma unroll 1
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    // copies of k-tile + 3, to the stage of k-tile − 1: its last readers have passed the barrier
    copies.copy_tile(*fill);
    fill = stage_after(smem, fill);
#pragma unroll
    for (int step = 0; step < Tile::steps; ++step) {
      if (step == Tile::steps - 1) {
        ptx::cp_async_wait_group<Tile::stages - 2>();
        __syncthreads();  // the next k-tile is there, for everyone; and everyone has read this one
        read = stage_after(smem, read);
      }
      // fragments of the next step
      load_fragments((step + 1) % Tile::steps);
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
__global__ void __launch_bounds__(Tile::threads, 1) addresses_gemm(Shape shape,
                                                                   Matrix<const T> a,  // [batch, m, k]
                                                                   Matrix<const T> b,  // [batch, n, k]
                                                                   Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<TunedSmem<T, Tile>>();
  addresses_tile<T, Tile>(smem, shape, grouped_origin<Tile>(shape, blockIdx.x), blockIdx.y, a, b, c);
}

}  // namespace tiled_gemm
