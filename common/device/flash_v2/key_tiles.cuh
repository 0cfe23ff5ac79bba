// Which tiles of keys a tile of queries needs: masks and their edges, counted in tiles.
#pragma once

#include "common/device/mask.h"

namespace flash_v2 {

using device::AttentionShape;

// Which tiles of `keys` keys a tile of queries needs: begin … end − 1; none where begin = end. Every query sees every key of
// the tiles free_begin … free_end − 1, which need no mask. Tiles to the left of them are cut by a window or the begin of a
// packed sequence, tiles to the right by the causal diagonal, a window or an end: of the keys, or of a packed sequence.
struct KeyTiles {
  int begin, free_begin, free_end, end;
};
// [doc: key_tiles]
template <class Shape>
__host__ __device__ inline KeyTiles key_tiles(const Shape& shape, int first_query, int queries, int keys) {
  const int last_query = first_query + queries - 1;
  const int first = shape.first_key(first_query), last = shape.end_key(last_query);  // what some query sees
  if (first >= last) return {0, 0, 0, 0};
  const int begin = first / keys, end = (last + keys - 1) / keys;
  // What every query sees: both ends of a row's keys grow with the row.
  const int free_begin = (shape.first_key(last_query) + keys - 1) / keys;
  const int free_end = shape.end_key(first_query) / keys;
  if (free_begin >= free_end) return {begin, begin, begin, end};  // there is no such tile: all have a mask
  return {begin, free_begin, free_end, end};
}
// [/doc: key_tiles]

}  // namespace flash_v2
