// Step 02, file 8: the tuned kernel.
//
// File 7 keeps the copies out of the way, and still the tensor cores wait. Every instruction beside an mma.sync takes something
// from them: an ldmatrix.x4 about one cycle, an integer instruction 0.6 (measured). So the way to go is fewer of everything
// for each mma:
//
//   larger tiles          block 128 × 256, warp 64 × 64: a warp's 32 mma need 8 ldmatrix.x4, where file 7's 16 needed 6
//   two fragment sets     the ldmatrix of the next 16 steps of k go out before the mma of these: no mma waits for shared memory
//   offsets               each thread keeps 32 bits for each row that it copies, and one pointer moves on for all of them.
//                         A row beyond the matrix repeats the last one: that costs no predicate, and what it yields is
//                         never stored
//   dealt copies          three at a time, between the mma, where the queue to shared memory has room
//   B's rows, dealt       each lane ends up with 8 neighbouring columns of C: stores of 16 bytes, straight from registers
//   tiles in groups       blocks that run together work on neighbouring tiles, whose rows of A and B they find in L2
//
//   Smem   stage[4]   each with a[128][k], b[256][k], swizzled; k is 64 (192 KB), or 32 (96 KB) for GPUs with less
#pragma once

#include "steps/02_tiled_gemm/04_tensor_cores.cuh"

namespace tiled_gemm {

template <int k_>
struct TunedTile {
  static constexpr int rows = 128, columns = 256, k = k_, stages = 4;  // of a block
  static constexpr int threads = 256;
  static constexpr int chunks = k / chunk;                // of a row
  static constexpr int pass = threads / chunks;           // rows that all threads together copy at once
  static constexpr int a_copies = rows / pass;            // of a thread, for each k-tile
  static constexpr int copies = (rows + columns) / pass;  // of A and B
  static constexpr int steps = k / 16;
  static constexpr int group = 16;  // rows of tiles
};

constexpr int tuned_max_ld = 1 << 23;  // of A and B: 32 bits count the bytes to a tile's last row

template <class T, class Tile>
struct TunedSmem {
  struct Stage {
    alignas(16) T a[Tile::rows][Tile::k];
    alignas(16) T b[Tile::columns][Tile::k];
  };
  union {
    Stage stage[Tile::stages];
    T c[Tile::rows][Tile::columns + chunk];  // the tile of C, where its rows begin at no multiples of 16 bytes
  };
};

// Where column t of a row lies. `key` numbers the 8 rows that ldmatrix reads at a time; rows of 64 bytes lie two to the 32
// banks.
template <class Tile>
__device__ inline int tuned_swizzle(int key, int t) {
  return t ^ (Tile::k == 64 ? key : key / 2) * chunk;
}
__device__ inline int a_key(int row) { return row % 8; }
// Of B, ldmatrix reads the rows 2q, 2q + 1, 2q + 8, 2q + 9, 2q + 16, … together (see b_row).
__device__ inline int b_key(int row) { return row % 2 + row / 8 % 4 * 2; }

// The row of B whose chunk this lane asks for, of the 16 that make two pieces of C. Piece q of four takes the columns 8t + 2q
// and 8t + 2q + 1, for t = 0 … 3, where an mma has its columns 2t and 2t + 1: these are what lane t of a row holds, so four
// pieces give it 8t … 8t + 7.
__device__ inline int b_row(int lane) { return lane % 8 / 2 * 8 + lane % 2 + lane / 16 * 2; }

// Tiles go in groups of Tile::group rows of tiles, column by column.
template <class Tile>
__device__ TileOrigin grouped_origin(const Shape& shape, int tile) {
  const int tile_rows = ceil_div(shape.m, Tile::rows), tile_columns = ceil_div(shape.n, Tile::columns);
  const int first = tile / (Tile::group * tile_columns) * Tile::group;  // row of tiles
  const int height = min(Tile::group, tile_rows - first);
  const int place = tile - first * tile_columns;
  return {(first + place % height) * Tile::rows, place / height * Tile::columns};
}

// Stores eight neighbouring elements, at a multiple of 16 bytes, or the first `count` of them where a row of C ends.
template <class T>
__device__ void store8(T* to, uint4 words, int count) {
  if (count >= 8) {
    store(reinterpret_cast<uint4*>(to), words);
    return;
  }
  const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    store_if(e < count, reinterpret_cast<std::uint16_t*>(to + e), static_cast<std::uint16_t>(pairs[e / 2] >> 16 * (e % 2)));
  }
}

// Stores a row of a tile of C: `count` elements of shared memory, by one warp. The row begins at any multiple of two bytes, so
// the pairs of elements that lie at multiples of four begin with its first or with its second.
template <class T, int columns>
__device__ void store_row(T* to, const T* row, int count) {
  const int lane = threadIdx.x % 32;
  const int shift = reinterpret_cast<std::uintptr_t>(to) % 4 / 2;
  if (shift == 1 && lane == 0) store(to, load(&row[0]));
#pragma unroll
  for (int first = 0; first < columns; first += 64) {
    const int j = first + 2 * lane + shift;
    const T pair[2] = {load_if(j < count, &row[j]), load_if(j + 1 < count, &row[j + 1])};
    std::uint32_t word;
    memcpy(&word, pair, sizeof(word));
    store_if(j + 1 < count, reinterpret_cast<std::uint32_t*>(to + j), word);
    store_if(j + 1 == count, to + j, pair[0]);
  }
}

// One tile of C. All threads of a block call it together, once.
template <class T, class Tile>
__device__ void tuned_tile(TunedSmem<T, Tile>& smem, const Shape& shape, TileOrigin tile, int batch, const Matrix<const T>& a,
                           const Matrix<const T>& b, const Matrix<T>& c) {
  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 / 4 * 64;  // within the tile
  const int warp_column = threadIdx.x / 32 % 4 * 64;
  const int rounds = ceil_div(shape.k, Tile::k);

  // ---- copies: this thread's chunk of every pass-th row ----
  const int copy_row = threadIdx.x / Tile::chunks;
  const int copy_t = threadIdx.x % Tile::chunks * chunk;
  const T* a_k = a.row(batch, tile.row);  // of the k-tile that is copied next: the same for all threads
  const T* b_k = b.row(batch, tile.column);
  const auto offset = [&](int row, int rows, std::int64_t stride) {  // in bytes; beyond the matrix, of its last row
    return static_cast<std::uint32_t>(sizeof(T)) * (static_cast<std::uint32_t>(min(row, rows - 1) * stride) + copy_t);
  };
  std::uint32_t from[Tile::copies];  // from there to this thread's chunks
#pragma unroll
  for (int i = 0; i < Tile::copies; ++i) {
    from[i] = i < Tile::a_copies ? offset(copy_row + i * Tile::pass, shape.m - tile.row, a.row_stride)
                                 : offset(copy_row + (i - Tile::a_copies) * Tile::pass, shape.n - tile.column, b.row_stride);
  }
  int left = shape.k - copy_t;  // columns from this thread's chunk of the next k-tile to the end
  const int a_to = copy_row * Tile::k + tuned_swizzle<Tile>(a_key(copy_row), copy_t);  // element of stage.a, of stage.b
  const int b_to = copy_row * Tile::k + tuned_swizzle<Tile>(b_key(copy_row), copy_t);
  auto* fill = &smem.stage[0];  // where the next k-tile goes
  const auto copy = [&](int i) {
    static_assert(Tile::pass % 32 == 0);  // so rows that far below copy_row have the same key
    const int row = (i < Tile::a_copies ? i : i - Tile::a_copies) * Tile::pass;
    T* to = i < Tile::a_copies ? &fill->a[row][0] + a_to : &fill->b[row][0] + b_to;
    const char* source = reinterpret_cast<const char*>(i < Tile::a_copies ? a_k : b_k) + from[i];
    ptx::cp_async_16(to, source, left > 0 ? 16 : 0);  // zeros behind the last column
  };
  const auto end_of_copies = [&] {
    ptx::cp_async_commit_group();
    a_k += Tile::k;
    b_k += Tile::k;
    left -= Tile::k;
    fill = fill == &smem.stage[Tile::stages - 1] ? &smem.stage[0] : fill + 1;
  };

  // ---- fragments: of this step of 16 along k, and of the next ----
  std::uint32_t a_piece[2][4][4], b_pieces[2][4][4];
  const int a_from = (warp_row + lane % 16) * Tile::k + tuned_swizzle<Tile>(lane % 8, lane / 16 * chunk);
  const int b_from = (warp_column + b_row(lane)) * Tile::k + tuned_swizzle<Tile>(lane % 8, lane / 8 % 2 * chunk);
  const auto* read = &smem.stage[0];              // where fragments come from
  const auto load_piece = [&](int f, int step) {  // in the order of use: a_piece[0], all of B, the rest of A
    if (f == 0 || f > 4) {
      const int p = f == 0 ? 0 : f - 4;
      ptx::ldmatrix_x4(a_piece[step % 2][p], &read->a[16 * p][0] + (a_from ^ 16 * step));
    } else {
      const int q = f - 1;
      ptx::ldmatrix_x4(b_pieces[step % 2][q], &read->b[q / 2 * 32 + q % 2 * 4][0] + (b_from ^ 16 * step));
    }
  };

  for (int round = 0; round < Tile::stages - 1; ++round) {
#pragma unroll
    for (int i = 0; i < Tile::copies; ++i) copy(i);
    end_of_copies();
  }
  ptx::cp_async_wait_group<Tile::stages - 2>();
  __syncthreads();  // the first tile is there, for everyone
#pragma unroll
  for (int f = 0; f < 8; ++f) load_piece(f, 0);

  float sums[4][8][4] = {};
  // [doc: tuned_loop]
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int step = 0; step < Tile::steps; ++step) {
      if (step == Tile::steps - 1) {
        ptx::cp_async_wait_group<Tile::stages - 3>();
        __syncthreads();  // the next tile is there, for everyone; and everyone has read the stage before, which is filled next
        read = read == &smem.stage[Tile::stages - 1] ? &smem.stage[0] : read + 1;
      }
      // The fragments loaded in the last step are the next tile's. Copies go to the stage of the tile before, in every step:
      // its last readers have passed the barrier.
      constexpr int mmas = 32;
      const int first = Tile::copies * step / Tile::steps, last = Tile::copies * (step + 1) / Tile::steps;
#pragma unroll
      for (int i = 0; i < mmas; ++i) {
        if (i % 2 == 0 && i / 2 < 8) load_piece(i / 2, (step + 1) % Tile::steps);
        if (i >= 15 && i % 2 == 1 && first + (i - 15) / 2 < last) copy(first + (i - 15) / 2);
        const int p = i / 8, q = p % 2 == 0 ? i % 8 : 7 - i % 8;  // there and back: at the turn B's piece stays
        const std::uint32_t b_piece[2] = {b_pieces[step % 2][q / 2][q % 2 * 2], b_pieces[step % 2][q / 2][q % 2 * 2 + 1]};
        ptx::mma_m16n8k16<T>(sums[p][q], a_piece[step % 2][p], b_piece);
      }
    }
    end_of_copies();
  }
  // [/doc: tuned_loop]
  ptx::cp_async_wait_all();  // the last groups are zeros that nobody needs, but they are written
  __syncthreads();  // everyone has read the last tile, no copy is under way, nor the zeros behind it: the stages are free

  // ---- C: row 8p + lane / 4 of the warp's part, columns 32q + 8 (lane % 4) … + 7, for p = 0 … 7, q = 0 … 1 ----
  const bool aligned = c.row_stride % 8 == 0 && c.batch_stride % 8 == 0;
#pragma unroll
  for (int p = 0; p < 8; ++p) {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const auto word = [&](int w) {
        return packed<T>(sums[p / 2][4 * q + w][p % 2 * 2], sums[p / 2][4 * q + w][p % 2 * 2 + 1]);
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
  if (aligned) return;
  __syncthreads();  // the tile is in shared memory before warps store rows of it
  const int count = min(Tile::columns, shape.n - tile.column);
#pragma unroll 4
  for (int i = threadIdx.x / 32; i < min(Tile::rows, shape.m - tile.row); i += Tile::threads / 32) {
    store_row<T, Tile::columns>(&c.row(batch, tile.row + i)[tile.column], smem.c[i], count);
  }
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
