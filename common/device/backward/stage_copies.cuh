// Step 06: the products of `tuned_64` and `tuned_128`, with copies between their mma, and a thread's copies, whose addresses
// are made once before the main loop.
#pragma once

#include <bit>

#include "common/device/backward/query_tiles.cuh"
#include "common/device/backward/slices.cuh"

namespace backward {

// The first mma of a chain: accumulators begin at −D of their queries.
template <class T, int slices, int frags>
__device__ void mma_slices_from(float (&acc)[slices][frags][4], int n, const std::uint32_t (&a)[slices][4],
                                const std::uint32_t (&b)[2][2], const float* minus_delta) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const float2 of_rows = load(reinterpret_cast<const float2*>(&minus_delta[8 * (n + side) + threadIdx.x % 4 * 2]));
    const float begin[4] = {of_rows.x, of_rows.y, of_rows.x, of_rows.y};
#pragma unroll
    for (int s = 0; s < slices; ++s) ptx::mma_m16n8k16<T>(acc[s][n + side], a[s], b[side], begin);
  }
}

// acc += A Bᵀ, as multiply_rows. Where there is a −D of each row of B, acc begins there. between(step) is called behind each
// step of 16 columns.
template <class T, int a_rows, int b_rows, int dim, int slices, int frags, class Between>
__device__ void multiply_rows(float (&acc)[slices][frags][4], const Tile<T, a_rows, dim>& a_tile, int row,
                              const Tile<T, b_rows, dim>& b_tile, int b_row, const float* minus_delta, const Between& between) {
#pragma unroll
  for (int step = 0; step < dim / 16; ++step) {
    std::uint32_t a[slices][4];
#pragma unroll
    for (int s = 0; s < slices; ++s) load_a(a[s], a_tile, row + 16 * s, 16 * step);
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      std::uint32_t b[2][2];
      load_b(b, b_tile, b_row + 8 * n, 16 * step);
      if (step == 0 && minus_delta != nullptr) {
        mma_slices_from<T>(acc, n, a, b, minus_delta + b_row);
      } else {
        mma_slices<T>(acc, n, a, b);
      }
    }
    between(step);
  }
}

// Fragments of A to rows row … and columns column … of a tile, where load_a finds them. stmatrix needs compute capability 9.0.
template <class T, int rows, int columns, int steps, int slices>
__device__ void store_slices(Tile<T, rows, columns>& tile, int row, int column, const std::uint32_t (&a)[steps][slices][4]) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) ptx::stmatrix_x4(tile.down(row + 16 * s, column + 16 * step), a[step][s]);
  }
}

// A thread's copies of Q, dO and the statistics: `count` of 16 bytes each for Q and dO, `pass` rows apart. A thread keeps its
// place in the first tile of head 0. How far a tile is from there is the same for all threads: that needs no register of a
// lane.
template <int threads, class T, int rows, int dim>
struct StageCopies {
  static constexpr int row_chunks = dim / chunk, pass = std::bit_floor(threads / unsigned{row_chunks}), count = rows / pass;
  static_assert(rows % pass == 0 && threads >= rows / 2);
  const Heads<const T>&from_q, &from_d_o;
  const int seq_q, padded;
  const T *q, *d_o;
  const float* statistics;  // the first rows / 4 threads copy LSE, the next D

  __device__ StageCopies(const AttentionShape& shape, const Heads<const T>& q_heads, const Heads<const T>& d_o_heads,
                         const RowStatistics& of_rows, int batch)
      : from_q(q_heads), from_d_o(d_o_heads), seq_q(shape.seq_q), padded(of_rows.padded) {
    const int row = threadIdx.x / row_chunks, column = threadIdx.x % row_chunks * chunk;
    q = from_q.row(batch, 0, 0) + row * from_q.row_stride + column;
    d_o = from_d_o.row(batch, 0, 0) + row * from_d_o.row_stride + column;
    statistics = (threadIdx.x < rows / 4 ? of_rows.lse2 : of_rows.minus_delta) + of_rows.at(shape, batch, 0, 0) +
                 threadIdx.x % (rows / 4) * 4;
  }
  // Copies share `step` of `steps` of this thread's chunks of Q and dO. Rows after the last query become zeros, and so does a
  // tile that is not there: with 0 bytes nothing is read, wherever the address points.
  __device__ void copy_share(Tile<T, rows, dim>& q_tile, Tile<T, rows, dim>& d_o_tile, const TileOfHead& next, int step,
                             int steps) const {
    if (threads % row_chunks != 0 && threadIdx.x >= pass * row_chunks) return;  // head dim 96: a quarter of them has no share
    const int place = threadIdx.x / row_chunks * q_tile.width + threadIdx.x % row_chunks * chunk;
#pragma unroll
    for (int n = count * step / steps; n < count * (step + 1) / steps; ++n) {
      const int first = next.tile * rows + n * pass;
      const int bytes = next.there && static_cast<int>(threadIdx.x) / row_chunks < seq_q - first ? 16 : 0;
      const T* q_chunk = q + (next.head * from_q.head_stride + first * from_q.row_stride);
      const T* d_o_chunk = d_o + (next.head * from_d_o.head_stride + first * from_d_o.row_stride);
      ptx::cp_async_16(&q_tile.at[n * pass][0] + place, q_chunk, bytes);
      ptx::cp_async_16(&d_o_tile.at[n * pass][0] + place, d_o_chunk, bytes);
    }
  }
  __device__ void copy_statistics(float (&lse2)[rows], float (&minus_delta)[rows], const TileOfHead& next) const {
    float* to = (threadIdx.x < rows / 4 ? lse2 : minus_delta) + threadIdx.x % (rows / 4) * 4;
    if (next.there && threadIdx.x < rows / 2) {
      ptx::cp_async_16(to, statistics + (std::int64_t{next.head} * padded + next.tile * rows));
    }
  }
};

}  // namespace backward
