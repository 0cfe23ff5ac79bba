// Exercise 3 of step 05: which tiles of keys does a tile of queries need, and which of them need a mask?
//
// Yours to write: your_tiles. Queries first_query … first_query + queries − 1 see the keys shape.first_key(i) …
// shape.end_key(i) − 1, and both grow with i (causal masks, windows, and both together). Return {begin, free_begin, free_end,
// end}: tiles begin … end − 1 are walked from right to left, with a mask but for free_begin … free_end − 1. begin ≤ free_begin
// ≤ free_end ≤ end, all equal where no query sees a key. The grader wants the right O, and no tile and no mask more than it
// takes.
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
