// The tile of file 7: its sizes, its shared memory, and how a warp addresses and multiplies it.
#pragma once

#include "steps/05_flash_v2/2_tensor_cores.cuh"

namespace flash_v2 {

template <int dim_>
struct TunedTile {
  static constexpr int dim = dim_;
  static constexpr int slices = dim <= 128 ? 2 : 1;  // of 16 rows, of a warp
  static constexpr int rows = 16 * slices * tile_threads / 32;
  static constexpr int keys = dim <= 128 ? 64 : 32;
  static constexpr bool keeps_q = dim <= 64;
  static constexpr int chunks = dim / chunk;  // of a row
  // All threads copy `pass` rows in `kinds` copies each; so many rows further down a chunk has the same place in its row.
  static constexpr int kinds = dim == 96 ? 3 : dim == 256 ? 2 : 1;
  static constexpr int pass = tile_threads * kinds / chunks;
  static constexpr int copies = keys / pass;  // of each kind, of K or V
};

constexpr int tuned_max_row_stride = 1 << 23;  // elements: 32 bits count the bytes between the rows of a copy

// How many of a tile's copies are out before this step of 16 columns of Q Kᵀ: all of them half way.
template <class Tile>
__device__ constexpr int copies_before(int step) {
  constexpr int all = Tile::kinds * Tile::copies;
  const int due = all * 2 * step / (Tile::dim / 16);
  return due < all ? due : all;
}

template <class T, class Tile>
struct TunedSmem {
  struct Stage {
    alignas(16) T k[Tile::keys][Tile::dim];
    alignas(16) T v[Tile::keys][Tile::dim];
  };
  alignas(16) T q[Tile::rows][Tile::dim];
  Stage stage[2];
};

// Bytes from the start of rows to a chunk 16 · step columns beyond the one at `bytes`, which has the same row and is one of the
// first 16 columns' two.
template <int dim>
__device__ int columns_beyond(int bytes, int step) {
  return dim % 64 == 0 ? bytes ^ 32 * step : (bytes ^ 32 * (step % 2)) + 64 * (step / 2);
}
template <class T>
__device__ const T* bytes_beyond(const T* start, std::int64_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(start) + bytes);
}

// C += A · B for all slices and two pieces of B as ldmatrix.x4 brings them; C's pieces are n and n + 1.
template <class T, int slices, int pieces>
__device__ void mma_slices(float (&c)[slices][pieces][4], int n, const std::uint32_t (&a)[slices][4],
                           const std::uint32_t (&b)[4]) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const std::uint32_t b_piece[2] = {b[2 * side], b[2 * side + 1]};
#pragma unroll
    for (int s = 0; s < slices; ++s) ptx::mma_m16n8k16<T>(c[s][n + side], a[s], b_piece);
  }
}

}  // namespace flash_v2
