// Step 06: tiles of queries that are copied ahead. A stage has Q, dO and the statistics of one tile.
#pragma once

#include <bit>

#include "common/device/backward/query_tiles.cuh"
#include "common/device/backward/tensor_tile.cuh"

namespace backward {

// Of 06_backward/07_pipeline.cuh: shared memory of a tile of queries.
template <class T, int rows, int dim>
struct Stage {
  Tile<T, rows, dim> q;
  Tile<T, rows, dim> d_o;
  alignas(16) float lse2[rows];
  alignas(16) float minus_delta[rows];
};

// A thread's copies of Q, dO and the statistics: `count` of 16 bytes each for Q and dO, `row_step` rows apart. Their addresses
// are made once: a thread keeps its place in the first tile of head 0. How far a tile is from there is the same for all
// threads: that needs no register of a lane.
template <int threads, class T, int rows, int dim>
struct StageCopies {
  static constexpr int row_chunks = dim / chunk, row_step = std::bit_floor(threads / unsigned{row_chunks}),
                       count = rows / row_step;
  static_assert(rows % row_step == 0 && threads >= rows / 2);
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
    if (threads % row_chunks != 0 && threadIdx.x >= row_step * row_chunks)
      return;  // head dim 96: a quarter of them has no share
    const int place = threadIdx.x / row_chunks * q_tile.width + threadIdx.x % row_chunks * chunk;
#pragma unroll
    for (int n = count * step / steps; n < count * (step + 1) / steps; ++n) {
      const int first = next.tile * rows + n * row_step;
      const int bytes = next.there && static_cast<int>(threadIdx.x) / row_chunks < seq_q - first ? 16 : 0;
      const T* q_chunk = q + (next.head * from_q.head_stride + first * from_q.row_stride);
      const T* d_o_chunk = d_o + (next.head * from_d_o.head_stride + first * from_d_o.row_stride);
      ptx::cp_async_16(&q_tile.at[n * row_step][0] + place, q_chunk, bytes);
      ptx::cp_async_16(&d_o_tile.at[n * row_step][0] + place, d_o_chunk, bytes);
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
