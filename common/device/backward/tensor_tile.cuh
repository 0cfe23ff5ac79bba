// Step 06: tiles in shared memory, the fragments that mma.sync takes from them, and the products of a warp.
//
// Each of the five products takes A and B by rows or, with ldmatrix.trans, by columns:
//
//                              until `fragment_order`                  from `transposed` on
//     S = Q Kᵀ, dP = dO Vᵀ     A by rows, B by rows                    the same, with A and B exchanged
//     dV = Pᵀ dO, dK = dSᵀ Q   A by columns, B by columns              A from registers, B by columns
//     dQ = dS K                A from registers, B by columns          A by columns, B by columns
//
// The dQ kernel of `deterministic` has S, dP and dQ of the left column.
//
// g = lane / 4 and t = lane % 4, as the PTX ISA has them.
#pragma once

#include "common/device/backward/rows.cuh"
#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/shared_memory.cuh"

namespace backward {

// Sizes of tiles and blocks; later rungs replace some.
constexpr int tile_rows = 64;  // queries
constexpr int tile_keys = 64;
constexpr int tile_threads = 128;
constexpr int key_frags = tile_keys / 8;
constexpr int part_rows = 32;  // queries of Sᵀ that a warp has at a time: P and dS of 64 would spill at dim 128

constexpr int chunk = 8;  // elements of 16 bits in 16 bytes, what one access moves

// A tile in shared memory. 16 unused bytes follow each row. So the 8 rows that ldmatrix reads at once fall on all 32 banks. And
// the address of another row or column differs by a constant, which is part of the instruction; a swizzle needs a register for
// each column. The price is memory: 6 % at 128 columns, 12.5 % at 64, 25 % at 32.
template <class T, int rows, int columns>
struct Tile {
  static_assert(columns % 32 == 0);
  static constexpr int width = columns + chunk;
  alignas(16) T at[rows][width];

  // A lane's part of the 16 × 16 elements that an ldmatrix.x4 takes from (row, column) on: matrices 0, 1 lie below each other,
  // or beside each other.
  __device__ const T* down(int row, int column) const { return &at[row][column] + lane_place_down(); }
  __device__ const T* across(int row, int column) const { return &at[row][column] + lane_place_across(); }
  __device__ T* down(int row, int column) { return &at[row][column] + lane_place_down(); }

 private:
  __device__ static int lane_place_down() { return threadIdx.x % 16 * width + threadIdx.x % 32 / 16 * chunk; }
  __device__ static int lane_place_across() {
    return (threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8) * width + threadIdx.x % 32 / 8 % 2 * chunk;
  }
};

// Rows first … of a head to a tile, by all threads; rows from `end` on become zeros.
template <int threads, class T, int rows, int dim>
__device__ void copy_tile(Tile<T, rows, dim>& tile, const Heads<const T>& from, int batch, int head, int first, int end) {
#pragma unroll
  for (int n = threadIdx.x; n < rows * dim / chunk; n += threads) {
    const int r = n / (dim / chunk), t = n % (dim / chunk) * chunk;
    const bool inside = first + r < end;
    ptx::cp_async_16(&tile.at[r][t], &from.row(batch, head, inside ? first + r : 0)[t], inside ? 16 : 0);
  }
}

// ---- fragments ----

// A[m][k] from rows m: rows `row` … + 15, columns `column` … + 15 of the tile.
template <class T, int rows, int dim>
__device__ void load_a(std::uint32_t (&a)[4], const Tile<T, rows, dim>& tile, int row, int column) {
  ptx::ldmatrix_x4(a, tile.down(row, column));
}
// A[m][k] from rows k: m is the tile's column.
template <class T, int rows, int dim>
__device__ void load_a_columns(std::uint32_t (&a)[4], const Tile<T, rows, dim>& tile, int row, int column) {
  ptx::ldmatrix_x4_trans(a, tile.across(row, column));
}
// Two fragments B[k][n] from rows n, 16 of them, and 16 columns k.
template <class T, int rows, int dim>
__device__ void load_b(std::uint32_t (&b)[2][2], const Tile<T, rows, dim>& tile, int row, int column) {
  std::uint32_t words[4];
  ptx::ldmatrix_x4(words, tile.across(row, column));
  b[0][0] = words[0], b[0][1] = words[1], b[1][0] = words[2], b[1][1] = words[3];
}
// Two fragments B[k][n] from rows k, 16 of them, and 16 columns n.
template <class T, int rows, int dim>
__device__ void load_b_columns(std::uint32_t (&b)[2][2], const Tile<T, rows, dim>& tile, int row, int column) {
  std::uint32_t words[4];
  ptx::ldmatrix_x4_trans(words, tile.down(row, column));
  b[0][0] = words[0], b[0][1] = words[1], b[1][0] = words[2], b[1][1] = words[3];
}
// A[m][k] from accumulators: columns 16 · step … of 16 rows, rounded to 16 bits.
template <class T, int frags>
__device__ void as_operand(std::uint32_t (&a)[4], const float (&acc)[frags][4], int step) {
#pragma unroll
  for (int w = 0; w < 4; ++w) a[w] = packed<T>(acc[2 * step + w / 2][w % 2 * 2], acc[2 * step + w / 2][w % 2 * 2 + 1]);
}

// ---- products of a warp ----

// acc += A Bᵀ: rows row … + 15 of A, 8 · frags rows of B from b_row on, over the `dim` columns of both.
template <class T, int a_rows, int b_rows, int dim, int frags>
__device__ void multiply_rows(float (&acc)[frags][4], const Tile<T, a_rows, dim>& a_tile, int row,
                              const Tile<T, b_rows, dim>& b_tile, int b_row = 0) {
#pragma unroll
  for (int column = 0; column < dim; column += 16) {
    std::uint32_t a[4];
    load_a(a, a_tile, row, column);
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      std::uint32_t b[2][2];
      load_b(b, b_tile, b_row + 8 * n, column);
      ptx::mma_m16n8k16<T>(acc[n], a, b[0]);
      ptx::mma_m16n8k16<T>(acc[n + 1], a, b[1]);
    }
  }
}

// acc += Aᵀ B: columns column … + 15 of A, all columns of B, over the rows of both.
template <class T, int rows, int a_columns, int dim, int frags>
__device__ void multiply_columns(float (&acc)[frags][4], const Tile<T, rows, a_columns>& a_tile, int column,
                                 const Tile<T, rows, dim>& b_tile) {
  static_assert(frags * 8 == dim);
#pragma unroll
  for (int row = 0; row < rows; row += 16) {
    std::uint32_t a[4];
    load_a_columns(a, a_tile, row, column);
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      std::uint32_t b[2][2];
      load_b_columns(b, b_tile, row, 8 * n);
      ptx::mma_m16n8k16<T>(acc[n], a, b[0]);
      ptx::mma_m16n8k16<T>(acc[n + 1], a, b[1]);
    }
  }
}

// acc += A B: A from accumulators, B by columns, from row `row` of the tile on.
template <class T, int rows, int dim, int a_frags, int frags>
__device__ void multiply_kept(float (&acc)[frags][4], const float (&kept)[a_frags][4], const Tile<T, rows, dim>& b_tile,
                              int row) {
  static_assert(frags * 8 == dim);
#pragma unroll
  for (int step = 0; step < a_frags / 2; ++step) {
    std::uint32_t a[4];
    as_operand<T>(a, kept, step);
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      std::uint32_t b[2][2];
      load_b_columns(b, b_tile, row + 16 * step, 8 * n);
      ptx::mma_m16n8k16<T>(acc[n], a, b[0]);
      ptx::mma_m16n8k16<T>(acc[n + 1], a, b[1]);
    }
  }
}

// acc += Aᵀ B: columns a_column … + 15 of A, column … + 15 of B, over the rows of both.
template <class T, int rows, int a_columns, int dim>
__device__ void multiply_tile_columns(float (&acc)[2][4], const Tile<T, rows, a_columns>& a_tile, int a_column,
                                      const Tile<T, rows, dim>& b_tile, int column) {
#pragma unroll
  for (int step = 0; step < rows / 16; ++step) {
    std::uint32_t a[4], b[2][2];
    load_a_columns(a, a_tile, 16 * step, a_column);
    load_b_columns(b, b_tile, 16 * step, column);
    ptx::mma_m16n8k16<T>(acc[0], a, b[0]);
    ptx::mma_m16n8k16<T>(acc[1], a, b[1]);
  }
}

// ---- between the products ----

// What a lane knows of its rows `row` + g and `row` + g + 8.
struct LaneRows {
  int first_key[2], end_key[2];  // of the keys that a row sees
  float lse2[2], minus_delta[2];
};
__device__ inline void look_up(LaneRows& lane, const AttentionShape& shape, const RowStatistics& rows, int batch, int head,
                               int row) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i =
        min(row + static_cast<int>(threadIdx.x % 32) / 4 + 8 * r, rows.padded - 1);  // beyond the end: nobody keeps it
    const RowKeys keys = keys_of(shape, i);
    lane.first_key[r] = keys.first;
    lane.end_key[r] = keys.end;
    lane.lse2[r] = load(&rows.lse2[rows.at(shape, batch, head, i)]);
    lane.minus_delta[r] = load(&rows.minus_delta[rows.at(shape, batch, head, i)]);
  }
}

// S becomes P, dP − D becomes dS. s[p][e] belongs to the lane's row e / 2, key `key` + 8 p + 2 t + e % 2. What a row does not
// see becomes 0.
template <int frags>
__device__ void softmax_gradient(float (&s)[frags][4], float (&dp)[frags][4], const LaneRows& lane, int key, float scale_log2) {
#pragma unroll
  for (int p = 0; p < frags; ++p) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int j = key + 8 * p + threadIdx.x % 4 * 2 + e % 2;
      const bool seen = j >= lane.first_key[e / 2] && j < lane.end_key[e / 2];
      s[p][e] = seen ? device::exp2_fast(fmaf(s[p][e], scale_log2, -lane.lse2[e / 2])) : 0.0f;
      dp[p][e] = seen ? s[p][e] * dp[p][e] : 0.0f;
    }
  }
}

// Accumulators to rows row … + 15 of a tile, from a column on that is a multiple of 8; rounded to 16 bits.
template <class T, int rows, int columns, int frags>
__device__ void store_tile(Tile<T, rows, columns>& tile, int row, int column, const float (&acc)[frags][4]) {
#pragma unroll
  for (int p = 0; p < frags; ++p) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = row + threadIdx.x % 32 / 4 + 8 * r;
      store(reinterpret_cast<std::uint32_t*>(&tile.at[i][column + 8 * p + threadIdx.x % 4 * 2]),
            packed<T>(acc[p][2 * r], acc[p][2 * r + 1]));
    }
  }
}

// factor · accumulators to rows row … + 15 of a head; rows from `end` on are left out. Raises the flag where one is not
// finite.
template <class T, int frags>
__device__ void store_rows(const Heads<T>& to, int batch, int head, int row, int end, float factor,
                           const float (&acc)[frags][4], float* flag) {
  float sum = 0.0f;  // not finite where one of the lane's elements is not
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row + threadIdx.x % 32 / 4 + 8 * r;
    T* to_row = to.row(batch, head, i < end ? i : 0);
#pragma unroll
    for (int p = 0; p < frags; ++p) {
      const float first = acc[p][2 * r], second = acc[p][2 * r + 1];  // registers of a lane: nothing to check
      if (i < end) sum += first + second;
      store_if(i < end, reinterpret_cast<std::uint32_t*>(&to_row[8 * p + threadIdx.x % 4 * 2]),
               packed<T>(factor * first, factor * second));
    }
  }
  flag_non_finite(sum, flag);
}

}  // namespace backward
