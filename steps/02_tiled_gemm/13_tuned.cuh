// 02_tiled_gemm, tuned: copies and ldmatrix interleaved with the mma.
// Predecessor: 12_addresses.cuh
//
// `addresses` asks for all copies of a k-tile together, and for all fragments of a step. The copies of 8 warps are 384
// wavefronts, and the 64 ldmatrix behind them are 256: 640 cycles of shared memory, beside 390 cycles of mma in a step. Then
// the mma of the next step wait. Here copies and ldmatrix go out one at a time between the mma, when the queue to shared memory
// has room.
//
//   a step of 32 mma    before mma  0  2  4 … 14    an ldmatrix of the next step, in the order of use
//                       before mma 15 17 19         a copy: the 4 steps of a k-tile issue its 12 copies
//   order of the mma    along a row of fragments of C, and back along the next: at the turn, the fragment of B is used again
//
//   Smem     as in `wide_epilogue`
//
// What to expect: up to 250 cycles less for each k-tile, a seventh, because 640 − 390 cycles of waiting go away. Counted as for
// `addresses`, with 9 more instructions, 128 mma take 855 cycles. With waves that are 0.97 full, this is 0.88 of the roof.
#pragma once

#include "steps/02_tiled_gemm/12_addresses.cuh"

namespace tiled_gemm {

// One tile of C. All threads of a block call it together, once.
template <class T, class Tile>
__device__ void tuned_tile(TunedSmem<T, Tile>& smem, const Shape& shape, TileOrigin tile, int batch,
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
  const auto* read = &smem.stage[0];                 // where fragments come from
  const auto load_fragment = [&](int f, int step) {  // in the order of use: a_frag[0], all of B, the rest of A
    if (f == 0 || f > 4) {
      const int p = f == 0 ? 0 : f - 4;
      ptx::ldmatrix_x4(a_frag[step % 2][p], &read->a[16 * p][0] + (a_from ^ 16 * step));
    } else {
      const int q = f - 1;
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
#pragma unroll
  for (int f = 0; f < 8; ++f) load_fragment(f, 0);
  // ---- main loop ----
  float acc[4][8][4] = {};
#pragma unroll 1
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    // [doc: tuned_loop]
#pragma unroll
    for (int step = 0; step < Tile::steps; ++step) {
      if (step == Tile::steps - 1) {
        ptx::cp_async_wait_group<Tile::stages - 3>();
        __syncthreads();  // the next k-tile is there, for everyone; and everyone has read this one
        read = stage_after(smem, read);
      }
      // copies of k-tile + 3, to the stage of k-tile − 1: its last readers have passed the barrier
      const int first = copies.count * step / Tile::steps, last = copies.count * (step + 1) / Tile::steps;
#pragma unroll
      for (int i = 0; i < 32; ++i) {  // C += A B; between the mma, fragments of the next step, and copies
        if (i % 2 == 0 && i / 2 < 8) load_fragment(i / 2, (step + 1) % Tile::steps);
        if (i >= 15 && i % 2 == 1 && first + (i - 15) / 2 < last) copies.copy(*fill, first + (i - 15) / 2);
        const int p = i / 8, q = p % 2 == 0 ? i % 8 : 7 - i % 8;  // there and back: at the turn B's fragment stays
        const auto& b_pair = b_frag[step % 2][q / 2];             // two fragments
        ptx::mma_m16n8k16<T>(acc[p][q], a_frag[step % 2][p], {b_pair[q % 2 * 2], b_pair[q % 2 * 2 + 1]});
      }
    }
    copies.end_of_tile();
    fill = stage_after(smem, fill);
    // [/doc: tuned_loop]
  }
  ptx::cp_async_wait_all();  // the last groups are zeros that nobody needs, but they are written
  __syncthreads();  // everyone has read the last k-tile, and no copy is in flight, not even of zeros: the stages are free

  // ---- epilogue ----
  store_wide_tile<T, Tile>(smem, acc, shape, tile, batch, warp_row, warp_column, c);
}

// Grid: x over tiles, y over the batch. Blocks of Tile::threads. k is a multiple of 8, and so are the row strides of A and B.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) tuned_gemm(Shape shape,
                                                               Matrix<const T> a,  // [batch, m, k]
                                                               Matrix<const T> b,  // [batch, n, k]
                                                               Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<TunedSmem<T, Tile>>();
  tuned_tile<T, Tile>(smem, shape, grouped_origin<Tile>(shape, blockIdx.x), blockIdx.y, a, b, c);
}

}  // namespace tiled_gemm
