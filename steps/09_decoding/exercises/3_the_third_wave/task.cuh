// Exercise 3 of step 09: the third wave.
//
// The launches of `split_kv`, on a device that has room for 24 blocks at a time. The rule below asks for twice as many blocks,
// rounded up, so that every SM always has work. Run the program: it says what is wrong with the rule, and merges no parts
// before the rule is mended.
//
// Assume that blocks run in waves: the next blocks begin when all blocks of a wave have ended. A wave lasts as long as its
// longest part, which is an item's tiles divided by its splits, rounded up; and as long as two tiles more, because a block must
// begin, merge its warps and write its part. Choose the splits so that all waves together last as few tiles as possible. If
// several numbers of splits last equally long, take the smallest.
//
// The grader tries your rule for many items, tiles and devices.
#pragma once

#include <algorithm>

#include "steps/09_decoding/items.h"

namespace exercise {

using device::ceil_div;

// Into how many splits each of `items` items is cut, 1 … tiles. An item has `tiles` tiles; the device runs `places` blocks at
// a time.
inline int splits_of(int items, int tiles, int places) { return std::min(ceil_div(2 * places, items), tiles); }

}  // namespace exercise
