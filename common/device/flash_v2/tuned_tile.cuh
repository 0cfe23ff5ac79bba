// The tile of the rungs from `rows_32` on: its sizes, its shared memory, and how a warp multiplies it.
#pragma once

#include "common/device/flash_v2/warp_tile.cuh"
#include "common/device/packed.h"
#include "common/device/ptx/mma.cuh"

namespace flash_v2 {

template <int dim_>
struct TunedTile {
  using Shape = AttentionShape;
  static constexpr int dim = dim_;
  static constexpr int slices = dim <= 128 ? 2 : 1;  // of 16 rows, of a warp
  static constexpr int rows = 16 * slices * tile_threads / 32;
  static constexpr int keys = dim <= 128 ? 64 : 32;
  static constexpr bool keeps_q = dim <= 64;
  static constexpr int chunks = dim / chunk;  // of a row
  // All threads copy `pass` rows in `kinds` copies each. `pass` rows further down, a chunk has the same place in its row.
  static constexpr int kinds = dim == 96 ? 3 : dim == 256 ? 2 : 1;
  static constexpr int pass = tile_threads * kinds / chunks;
  static_assert(pass % 8 == 0);               // the swizzle repeats
  static constexpr int copies = keys / pass;  // of each kind, of K or V
};

template <int dim>
struct PackedTile : TunedTile<dim> {
  using Shape = device::PackedShape;
};
template <int dim>
struct DroppedTile : TunedTile<dim> {
  using Shape = device::Dropped<AttentionShape>;
};

template <class T, class Tile>
struct TunedSmem {
  struct Stage {
    alignas(16) T k[Tile::keys][Tile::dim];
    alignas(16) T v[Tile::keys][Tile::dim];
  };
  alignas(16) T q[Tile::rows][Tile::dim];
  Stage stage[2];
};

// Of 05_flash_v2/12_tuned.cuh: how many of a tile's copies are issued before this step of 16 columns of Q Kᵀ, all half way.
template <class Tile>
__device__ constexpr int copies_before(int step) {
  constexpr int all = Tile::kinds * Tile::copies;
  const int due = all * 2 * step / (Tile::dim / 16);
  return due < all ? due : all;
}

// C += A · B for all slices of A and the two fragments of B that one ldmatrix.x4 brings: accumulators n and n + 1.
template <class T, int slices, int frags>
__device__ void mma_slices(float (&acc)[slices][frags][4], int n, const std::uint32_t (&a_frag)[slices][4],
                           const std::uint32_t (&b_frags)[4]) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const std::uint32_t b_frag[2] = {b_frags[2 * side], b_frags[2 * side + 1]};
#pragma unroll
    for (int s = 0; s < slices; ++s) ptx::mma_m16n8k16<T>(acc[s][n + side], a_frag[s], b_frag);
  }
}

// mask_scores for all slices of a warp, whose first query is `row`.
template <int slices, int frags, class Shape>
__device__ void mask_slices(float (&s)[slices][frags][4], const Shape& shape, int row, int key) {
#pragma unroll
  for (int i = 0; i < slices; ++i) {
    RowKeys rows[2];
    visible_keys(shape, row + 16 * i, rows);
    mask_scores(s[i], rows, key);
  }
}

// finish_rows for all slices of a warp, whose first query is `row`.
template <class T, int slices, int frags>
__device__ void finish_slices(const float (&acc)[slices][frags][4], const SoftmaxState (&states)[slices][2],
                              const AttentionShape& shape, const QueryTile& tile, int row, const Heads<T>& o, float* lse) {
#pragma unroll
  for (int s = 0; s < slices; ++s) finish_rows<T, true>(acc[s], states[s], shape, tile, row + 16 * s, o, lse);
}

}  // namespace flash_v2
