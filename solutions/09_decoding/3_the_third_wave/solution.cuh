// Exercise 3 of step 09: our solution.
//
// A wave more pays where all waves become shorter by more than it lasts; so it should be nearly full. A few hundred numbers are
// tried in no time.
#pragma once

#include <algorithm>

#include "steps/09_decoding/items.h"

namespace exercise {

using device::ceil_div;

// Into how many splits each of `items` items is cut, 1 … tiles. An item has `tiles` tiles; the device runs `places` blocks at
// a time.
inline int splits_of(int items, int tiles, int places) {
  const auto lasts = [&](int splits) { return ceil_div(items * splits, places) * (ceil_div(tiles, splits) + 2); };
  int best = 1;
  for (int splits = 2; splits <= tiles; ++splits) {
    if (lasts(splits) < lasts(best)) best = splits;
  }
  return best;
}

}  // namespace exercise
