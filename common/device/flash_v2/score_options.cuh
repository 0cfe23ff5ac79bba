// Options of scores (common/device/score_options.h), for the fragments of a warp. They stand between S = Q Kᵀ and the mask.
//
// The rungs from `folded_scale` on leave scores unscaled until the FMA that subtracts the maximum. A softcap bends the scaled
// score, so with options a score is scaled first, and the FMA only brings it to base 2.
#pragma once

#include "common/device/flash_v2/extremes.cuh"
#include "common/device/score_options.h"

namespace flash_v2 {

using device::ScoredShape;

// What the softmax multiplies scores by.
template <class Shape>
__device__ inline float softmax_scale(const Shape& shape) {
  return magnitude(shape.scale);
}
template <class T>
__device__ inline float softmax_scale(const ScoredShape<T>&) {
  return magnitude(1.0f);
}

// A bias may hide any pair: with one, every tile has a mask.
template <class T>
__device__ inline KeyTiles key_tiles(const ScoredShape<T>& shape, int first_query, int queries, int keys) {
  KeyTiles tiles = key_tiles<AttentionShape>(shape, first_query, queries, keys);
  if (shape.bias.data != nullptr) tiles.free_begin = tiles.free_end = tiles.begin;
  return tiles;
}

// Calls change(score, key) for a lane's scores of row r; `key` is the first of the fragments'.
template <int frags, class Change>
__device__ inline void for_each_score(float (&s)[frags][4], int r, int key, const Change& change) {
#pragma unroll
  for (int p = 0; p < frags; ++p) {
#pragma unroll
    for (int e = 0; e < 2; ++e) change(s[p][2 * r + e], key + 8 * p + threadIdx.x % 4 * 2 + e);
  }
}

// Products of a Q that has the sign of the scale become scores: of a warp's 16 rows from `row` on, and the keys from `key` on.
// Nothing happens without options. Rows behind the last query read the last one's bias, and are not stored.
// [doc: modify_scores]
template <int frags, class Shape>
__device__ inline void modify_scores(float (&s)[frags][4], const Shape& shape, const QueryTile& tile, int row, int key) {
  if constexpr (device::has_score_options<Shape>) {
    // All lanes have the same row. nvcc does not move a shuffle out of the loop over tiles, nor what depends on it: kept from
    // tile to tile, rows of the bias would take registers that O needs.
    const int first = __shfl_sync(all_lanes, row, 0) + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = min(first + 8 * r, shape.seq_q - 1);
      for_each_score(s, r, key, [&](float& x, int) { x *= fabsf(shape.scale); });
      if (shape.softcap > 0.0f) for_each_score(s, r, key, [&](float& x, int) { x = device::capped(x, shape.softcap); });
      if (shape.bias.data != nullptr) {
        const auto* bias = shape.bias.row(tile.batch, tile.head, query);
        for_each_score(s, r, key, [&](float& x, int j) { x = device::biased(x, device::bias_at(bias, j, shape.seq_k)); });
      }
      if (shape.slopes.largest > 0.0f) {
        const float slope = shape.slopes.of(tile.head);
        for_each_score(s, r, key, [&](float& x, int j) { x -= slope * static_cast<float>(abs(shape.own_key(query) - j)); });
      }
    }
  }
}
// [/doc: modify_scores]

// The same for all slices of a warp.
template <int slices, int frags, class Shape>
__device__ inline void modify_scores(float (&s)[slices][frags][4], const Shape& shape, const QueryTile& tile, int row,
                                     int key) {
#pragma unroll
  for (int i = 0; i < slices; ++i) modify_scores(s[i], shape, tile, row + 16 * i, key);
}

}  // namespace flash_v2
