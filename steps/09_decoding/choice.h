// Step 09, host side: how the default variant shares a problem among blocks.
//
//   rows      each block takes whole items, and nothing is merged: where items fill the SMs evenly
//   cluster   2, 4 or 8 blocks share an item, and merge through shared memory: where items are few
//   stream    all blocks share all tiles, and a second kernel merges: where neither fits
#pragma once

#include <algorithm>

#include "steps/09_decoding/items.h"

namespace decoding {

enum class Way { rows, cluster, stream };

struct Choice {
  Way way;
  int blocks;  // of the grid; of a cluster
};

// As many blocks as run at a time, but no more than units of work.
inline int blocks_for(std::int64_t units, int at_once) { return static_cast<int>(std::clamp<std::int64_t>(units, 1, at_once)); }

// [doc: choose]
inline Choice choose(const Work& work, int multiprocessors) {
  const int each = ceil_div(work.items, multiprocessors);  // items of the busiest block, where blocks take whole ones
  const bool even = std::int64_t{work.items} * 20 >= std::int64_t{19} * each * multiprocessors;  // 95 % of the SMs are busy
  if (even || work.tiles == 1 || each > 8) return {Way::rows, ceil_div(work.items, each)};
  // All blocks of a cluster are in the same GPC, and GPCs have SMs left over: clusters fill three quarters of the SMs.
  const auto fits = [&](int blocks) { return work.items * blocks * 4 <= 3 * multiprocessors; };
  const int blocks = fits(8) ? 8 : fits(4) ? 4 : 2;
  const bool few_keys = work.tiles <= 8 * blocks;
  const bool half_busy = blocks > 2 && work.items * blocks * 20 >= 9 * multiprocessors;
  if (work.items * blocks <= multiprocessors && (few_keys || half_busy)) return {Way::cluster, blocks};
  // The same number of blocks for each item, if that leaves few SMs idle: then there are fewer seams.
  const int whole = multiprocessors / work.items * work.items;
  const int at_once = whole * 20 >= 19 * multiprocessors ? whole : multiprocessors;
  return {Way::stream, blocks_for(std::int64_t{work.items} * work.tiles, at_once)};
}
// [/doc: choose]

}  // namespace decoding
