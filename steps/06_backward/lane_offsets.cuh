// Step 06: the addresses of a lane's fragments and of a thread's copies, made once before the main loop.
#pragma once

#include "steps/06_backward/07_pipeline.cuh"
#include "steps/06_backward/slices.cuh"

namespace backward {

template <class T>
__device__ inline T* bytes_beyond(T* pointer, std::int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(pointer) + bytes);
}

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

// Where a lane's part of a 16 × 16 block lies, in a swizzled tile of `dim` columns, in bytes from the block's first row. The
// swizzle of rows 8 apart is the same, and a block further to the right is an XOR away: so two numbers serve all ldmatrix of
// the tile.
template <class T, int dim>
struct LaneOffsets {
  static_assert((dim & (dim - 1)) == 0 && dim >= 32);  // then the columns are the low bits of an offset
  int down, across;
  __device__ LaneOffsets()
      : down(offset(lane_row_down(), lane_column_down())), across(offset(lane_row_across(), lane_column_across())) {}
  __device__ static int offset(int row, int column) {
    return (row * dim + swizzled<dim>(row, column)) * static_cast<int>(sizeof(T));
  }
  // row and column: multiples of 16.
  template <int rows>
  __device__ static T* at(T (&tile)[rows][dim], int row, int column, int place) {
    return bytes_beyond(&tile[row][0], place ^ column * static_cast<int>(sizeof(T)));
  }
  template <int rows>
  __device__ static const T* at(const T (&tile)[rows][dim], int row, int column, int place) {
    return bytes_beyond(&tile[row][0], place ^ column * static_cast<int>(sizeof(T)));
  }

  // As the functions of these names in tensor_tile.cuh.
  template <int rows>
  __device__ void load_a(std::uint32_t (&a)[4], const T (&tile)[rows][dim], int row, int column) const {
    ptx::ldmatrix_x4(a, at(tile, row, column, down));
  }
  template <int rows>
  __device__ void load_a_columns(std::uint32_t (&a)[4], const T (&tile)[rows][dim], int row, int column) const {
    ptx::ldmatrix_x4_trans(a, at(tile, row, column, across));
  }
  template <int rows>
  __device__ void load_b(std::uint32_t (&b)[2][2], const T (&tile)[rows][dim], int row, int column) const {
    std::uint32_t words[4];
    ptx::ldmatrix_x4(words, at(tile, row, column, across));
    b[0][0] = words[0], b[0][1] = words[1], b[1][0] = words[2], b[1][1] = words[3];
  }
  template <int rows>
  __device__ void load_b_columns(std::uint32_t (&b)[2][2], const T (&tile)[rows][dim], int row, int column) const {
    std::uint32_t words[4];
    ptx::ldmatrix_x4_trans(words, at(tile, row, column, down));
    b[0][0] = words[0], b[0][1] = words[1], b[1][0] = words[2], b[1][1] = words[3];
  }
  // A fragment of A to the place that load_a takes it from. `vector`: by stmatrix, which needs compute capability 9.0.
  template <bool vector, int rows>
  __device__ void store_a(T (&tile)[rows][dim], int row, int column, const std::uint32_t (&a)[4]) const {
    if constexpr (vector) {
      ptx::stmatrix_x4(at(tile, row, column, down), a);
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int i = row + threadIdx.x % 32 / 4 + w % 2 * 8;
        store(reinterpret_cast<std::uint32_t*>(&tile[i][swizzled<dim>(i, column + w / 2 * 8) + threadIdx.x % 4 * 2]), a[w]);
      }
    }
  }
  // acc += A Bᵀ, as multiply_rows in slices.cuh. Where there is a −D of each row of B, acc begins there. between(step) is
  // called behind each step of 16 columns.
  template <int a_rows, int b_rows, int slices, int frags, class Between>
  __device__ void multiply_rows(float (&acc)[slices][frags][4], const T (&a_tile)[a_rows][dim], int row,
                                const T (&b_tile)[b_rows][dim], int b_row, const float* minus_delta,
                                const Between& between) const {
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
  // acc += A B, as multiply_kept in slices.cuh; columns first_column … of B.
  template <int rows, int steps, int slices, int frags>
  __device__ void multiply_kept(float (&acc)[slices][frags][4], const std::uint32_t (&a)[steps][slices][4],
                                const T (&b_tile)[rows][dim], int row, int first_column = 0) const {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int n = 0; n < frags; n += 2) {
        std::uint32_t b[2][2];
        load_b_columns(b, b_tile, row + 16 * step, first_column + 8 * n);
        mma_slices<T>(acc, n, a[step], b);
      }
    }
  }
};

// acc += Aᵀ B, as multiply_tile_columns in slices.cuh.
template <class T, int rows, int a_columns, int dim, int slices, int frags>
__device__ void multiply_tile_columns(float (&acc)[slices][frags][4], const LaneOffsets<T, a_columns>& a_at,
                                      const T (&a_tile)[rows][a_columns], int a_column, const LaneOffsets<T, dim>& b_at,
                                      const T (&b_tile)[rows][dim], int column) {
#pragma unroll
  for (int row = 0; row < rows; row += 16) {
    std::uint32_t a[slices][4];
#pragma unroll
    for (int s = 0; s < slices; ++s) a_at.load_a_columns(a[s], a_tile, row, a_column + 16 * s);
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      std::uint32_t b[2][2];
      b_at.load_b_columns(b, b_tile, row, column + 8 * n);
      mma_slices<T>(acc, n, a, b);
    }
  }
}

// Fragments of A to rows row … and columns column … of a tile, as store_a.
template <bool vector, class T, int rows, int columns, int steps, int slices>
__device__ void store_slices(const LaneOffsets<T, columns>& at, T (&tile)[rows][columns], int row, int column,
                             const std::uint32_t (&a)[steps][slices][4]) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) at.template store_a<vector>(tile, row + 16 * s, column + 16 * step, a[step][s]);
  }
}

// In elements. The bytes between two rows of a copy must fit in 32 bits. 65,535 heads of 128 elements stay below the limit.
constexpr int tuned_max_row_stride = 1 << 22;

// A thread's copies of Q, dO and the statistics, tile after tile: `count` of 16 bytes each for Q and dO, `pass` rows apart.
template <int threads, class T, int rows, int dim>
struct StageCopies {
  static constexpr int pass = threads / (dim / chunk), count = rows / pass;
  static_assert(pass % 8 == 0 && rows % pass == 0);  // the swizzle of all its chunks is the same
  const T *q, *d_o;                                  // this thread's first chunk of the tile
  const float* statistics;
  int q_pass, d_o_pass;  // bytes from one copy to the next
  int place;             // of the first in a tile, in elements
  int rows_left;         // from this thread's first row to the end of the queries: what lies beyond becomes zeros

  __device__ StageCopies(const Heads<const T>& from_q, const Heads<const T>& from_d_o)
      : q_pass(static_cast<int>(from_q.row_stride) * pass * static_cast<int>(sizeof(T))),
        d_o_pass(static_cast<int>(from_d_o.row_stride) * pass * static_cast<int>(sizeof(T))) {
    const int row = threadIdx.x / (dim / chunk), column = threadIdx.x % (dim / chunk) * chunk;
    place = row * dim + swizzled<dim>(row, column);
  }
  // The first tile of a head: queries from `first` on.
  __device__ void begin(const AttentionShape& shape, const Heads<const T>& from_q, const Heads<const T>& from_d_o,
                        const RowStatistics& from, int batch, int head, int first) {
    const int row = first + threadIdx.x / (dim / chunk), column = threadIdx.x % (dim / chunk) * chunk;
    q = from_q.row(batch, head, 0) + row * from_q.row_stride + column;
    d_o = from_d_o.row(batch, head, 0) + row * from_d_o.row_stride + column;
    statistics = (threadIdx.x < rows / 4 ? from.lse2 : from.minus_delta) + from.at(shape, batch, head, first) +
                 threadIdx.x % (rows / 4) * 4;
    rows_left = shape.seq_q - row;
  }
  // The tile behind this one; where there is none in the head, the first of the next head; where that is the last head, none.
  template <class BeginHead>
  __device__ void advance(const QueryTiles& tiles, int tile, int head, int end_head, const BeginHead& begin_head) {
    if (tile + 1 < tiles.end) {
      q = bytes_beyond(q, std::int64_t{count} * q_pass);
      d_o = bytes_beyond(d_o, std::int64_t{count} * d_o_pass);
      statistics += rows;
      rows_left -= rows;
    } else if (head + 1 < end_head) {
      begin_head(head + 1);
    } else {
      end();
    }
  }
  __device__ void end() { rows_left = -rows; }
  __device__ void copy(T (&q_tile)[rows][dim], T (&d_o_tile)[rows][dim], int n) const {
    const int bytes = rows_left > n * pass ? 16 : 0;
    ptx::cp_async_16(&q_tile[n * pass][0] + place, bytes_beyond(q, n * q_pass), bytes);
    ptx::cp_async_16(&d_o_tile[n * pass][0] + place, bytes_beyond(d_o, n * d_o_pass), bytes);
  }
  // Those that go out in step `step` of `steps`.
  __device__ void copy_share(T (&q_tile)[rows][dim], T (&d_o_tile)[rows][dim], int step, int steps) const {
#pragma unroll
    for (int n = count * step / steps; n < count * (step + 1) / steps; ++n) copy(q_tile, d_o_tile, n);
  }
  __device__ void copy_statistics(float (&lse2)[rows], float (&minus_delta)[rows]) const {
    float* to = (threadIdx.x < rows / 4 ? lse2 : minus_delta) + threadIdx.x % (rows / 4) * 4;
    if (rows_left > -rows && threadIdx.x < rows / 2) ptx::cp_async_16(to, statistics);
  }
};

}  // namespace backward
