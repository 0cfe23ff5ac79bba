// Step 02, file 8: the tuned kernel.
//
// File 7 keeps the copies out of the way, and still the tensor cores wait. Every instruction beside an mma.sync takes something
// from them: an ldmatrix.x4 about one cycle, an integer instruction about half of one (measured). So the way to go is fewer of
// everything for each mma:
//
//   larger tiles       block 128 × 256, warp 64 × 64: a warp's 32 mma need 8 ldmatrix.x4, where file 7's 16 needed 6
//   two fragment sets  the ldmatrix of the next 16 steps of k go out before the mma of these: no mma waits for shared memory
//   pointers           each thread keeps a pointer for each row that it copies, and only adds to it; rows beyond the matrix
//   repeat its last one, which
//                      costs no predicate, and what they yield is never stored
//   dealt copies       three copies at a time, between the mma, where the queue to shared memory has room
//   B's rows, dealt    each lane ends up with 8 neighbouring columns of C: stores of 16 bytes, without a detour through shared
//   memory tiles in groups    blocks that run together work on neighbouring tiles, whose rows of A and B they find in L2
//
//   Smem   stage[4]   each with a[128][k], b[256][k], swizzled; k is 64 (192 KB), or 32 (96 KB) for GPUs with less shared
//   memory
#pragma once

#include "common/device/ptx.cuh"
#include "steps/02_tiled_gemm/4_tensor_cores.cuh"

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

template <class T, class Tile>
struct TunedSmem {
  struct Stage {
    alignas(16) T a[Tile::rows][Tile::k];
    alignas(16) T b[Tile::columns][Tile::k];
  };
  union {
    Stage stage[Tile::stages];
    T c[8][64][64 + chunk];  // of each warp, its part of C, where its rows are no multiples of 16 bytes
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
__device__ TileOrigin grouped_origin(const Shape& shape) {
  const int tile_rows = ceil_div(shape.m, Tile::rows), tile_columns = ceil_div(shape.n, Tile::columns);
  const int tile = blockIdx.x;
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
    if (e < count) store(reinterpret_cast<std::uint16_t*>(to + e), static_cast<std::uint16_t>(pairs[e / 2] >> 16 * (e % 2)));
  }
}

// Grid: x over tiles, y over the batch. Blocks of Tile::threads. k is a multiple of 8, and so are the row strides of A and B.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) tuned_gemm(Shape shape,
                                                               Matrix<const T> a,  // [batch, m, k]
                                                               Matrix<const T> b,  // [batch, n, k]
                                                               Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<TunedSmem<T, Tile>>();
  const TileOrigin tile = grouped_origin<Tile>(shape);
  const int batch = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 / 4 * 64;  // within the tile
  const int warp_column = threadIdx.x / 32 % 4 * 64;
  const int rounds = ceil_div(shape.k, Tile::k);

  // ---- copies: this thread's chunk of every pass-th row ----
  const int copy_row = threadIdx.x / Tile::chunks;
  const int copy_t = threadIdx.x % Tile::chunks * chunk;
  const T* from[Tile::copies];  // one k-tile behind: advanced before each use
#pragma unroll
  for (int i = 0; i < Tile::copies; ++i) {
    const int row = copy_row + i % Tile::a_copies * Tile::pass + (i >= 2 * Tile::a_copies ? Tile::rows : 0);
    from[i] = (i < Tile::a_copies ? a.row(batch, min(tile.row + row, shape.m - 1))
                                  : b.row(batch, min(tile.column + row, shape.n - 1))) +
              copy_t - Tile::k;
  }
  int left = shape.k - copy_t;  // columns from this thread's chunk of the next k-tile to the end
  const int a_to = copy_row * Tile::k + tuned_swizzle<Tile>(a_key(copy_row), copy_t);  // element of stage.a, of stage.b
  const int b_to = copy_row * Tile::k + tuned_swizzle<Tile>(b_key(copy_row), copy_t);
  auto* fill = &smem.stage[0];  // where the next k-tile goes
  const auto copy = [&](int i) {
    from[i] += Tile::k;
    const int row =
        (i < Tile::a_copies ? i : i - Tile::a_copies) * Tile::pass;  // below copy_row; a multiple of 32: the same key
    T* to = i < Tile::a_copies ? &fill->a[row][0] + a_to : &fill->b[row][0] + b_to;
    ptx::cp_async_16(to, from[i], left > 0 ? 16 : 0);  // zeros behind the last column
  };
  const auto end_of_copies = [&] {
    ptx::cp_async_commit_group();
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
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int step = 0; step < Tile::steps; ++step) {
      if (step == Tile::steps - 1) {
        ptx::cp_async_wait_group<Tile::stages - 3>();
        __syncthreads();  // the next tile is there, for everyone; and everyone has read the stage before, which is filled next
        read = read == &smem.stage[Tile::stages - 1] ? &smem.stage[0] : read + 1;
      }
      // In the last step the fragments are already the next tile's. Copies go to the stage of the tile before: in the last step
      // too.
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
  ptx::cp_async_wait_all();  // the last groups are zeros that nobody needs, but they are written
  __syncthreads();           // everyone has read the last tile, and no copy is under way: the stages are free

  // ---- C: row 8p + lane / 4 of the warp's part, columns 32q + 8 (lane % 4) … + 7, for p = 0 … 7, q = 0 … 1 ----
  const bool aligned = c.row_stride % 8 == 0 && c.batch_stride % 8 == 0;
  auto& c_rows = smem.c[threadIdx.x / 32];
#pragma unroll
  for (int p = 0; p < 8; ++p) {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const auto word = [&](int w) {
        return packed<T>(sums[p / 2][4 * q + w][p % 2 * 2], sums[p / 2][4 * q + w][p % 2 * 2 + 1]);
      };
      const uint4 words = make_uint4(word(0), word(1), word(2), word(3));
      const int i = 8 * p + lane / 4;
      const int j = 32 * q + lane % 4 * 8;
      if (!aligned) {
        store(reinterpret_cast<uint4*>(&c_rows[i][j]), words);
      } else if (tile.row + warp_row + i < shape.m && tile.column + warp_column + j < shape.n) {
        store8(&c.row(batch, tile.row + warp_row + i)[tile.column + warp_column + j], words,
               shape.n - (tile.column + warp_column + j));
      }
    }
  }
  if (aligned) return;
  // Rows of C begin anywhere: element by element, but neighbouring lanes on neighbouring elements.
  __syncwarp();  // the warp's part is in shared memory before other lanes read it
  for (int i = 0; i < 64 && tile.row + warp_row + i < shape.m; ++i) {
    for (int j = lane; j < 64 && tile.column + warp_column + j < shape.n; j += 32) {
      store(&c.row(batch, tile.row + warp_row + i)[tile.column + warp_column + j], load(&c_rows[i][j]));
    }
  }
}

}  // namespace tiled_gemm
