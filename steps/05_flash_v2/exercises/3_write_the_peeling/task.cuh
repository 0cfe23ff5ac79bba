// Exercise 3 of step 05: which tiles of keys does a tile of queries need, and which of them need a mask?
//
// Write your_tiles. Query i sees the keys shape.first_key(i) … shape.end_key(i) − 1, for i = first_query … first_query +
// queries − 1. Both ends grow with i, with a causal mask, a window, or both. Return {begin, free_begin, free_end, end}: the
// kernel walks over tiles begin … end − 1 from right to left, and masks all of them but free_begin … free_end − 1. Keep begin ≤
// free_begin ≤ free_end ≤ end; all four are equal if no query sees a key. The grader checks O, and that no tile and no mask is
// superfluous.
#pragma once

#include "steps/05_flash_v2/exercises/exercise.h"

namespace exercise {

__host__ __device__ inline flash_v2::KeyTiles your_tiles(const device::AttentionShape& shape, int first_query, int queries,
                                                         int keys) {
  (void)first_query;
  (void)queries;
  const int all = (shape.seq_k + keys - 1) / keys;
  return {0, 0, 0, all};  // every tile, with a mask
}

}  // namespace exercise
