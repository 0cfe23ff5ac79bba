// Exercise 3 of step 05, solved. What some query sees reaches from the first query's first key to the last query's last one;
// what all see, from the last query's first key to the first query's last one.
#pragma once

#include "steps/05_flash_v2/exercises/exercise.h"

namespace exercise {

__host__ __device__ inline flash_v2::KeyTiles your_tiles(const device::AttentionShape& shape, int first_query, int queries,
                                                         int keys) {
  const int last_query = first_query + queries - 1;
  const int some_begin = shape.first_key(first_query), some_end = shape.end_key(last_query);
  if (some_begin >= some_end) return {0, 0, 0, 0};
  const int begin = some_begin / keys, end = (some_end + keys - 1) / keys;  // outwards
  const int free_begin = (shape.first_key(last_query) + keys - 1) / keys;   // inwards
  const int free_end = shape.end_key(first_query) / keys;
  if (free_begin >= free_end) return {begin, begin, begin, end};
  return {begin, free_begin, free_end, end};
}

}  // namespace exercise
