// The plan as step 07's kernels make it, for host code: their headers have kernels' code, too.
#pragma once

#include <vector>

#include "common/problem/attention.h"

namespace tests {

struct Visit {
  int head, tile;   // forward, a tile of keys; backward, a tile of queries of one of the heads that share these keys
  int dead_halves;  // backward: bits 0 and 1, for the lower and the upper half of the keys
};

// A block's work, in the order of the blocks.
struct Item {
  int batch, head, first_of_tile;  // head: query head, or key/value head
  int right, full, left, part;
  std::vector<Visit> visits;
};

struct DevicePlan {
  std::vector<Item> items = {};
  std::vector<int> split_rows = {};  // as long as it may be, −1 behind the last
  int empty_items = 0;               // behind the last one
  int rows, rows_of_head, heads_of_place, tile_size, together, split_above, most_parts;
  double most_live_tiles;  // for which its lists have room
  bool split_long_rows;
};

// tile_queries: 64 or 128. The shape is resolved.
DevicePlan query_plan(const problem::Attention& a, int tile_queries, bool split_long_rows);
DevicePlan key_plan(const problem::Attention& a);

}  // namespace tests
