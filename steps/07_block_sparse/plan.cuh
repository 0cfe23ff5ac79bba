// Step 07, the plan: which tiles of keys each tile of queries visits, and which tile of queries runs when. It is made on the
// device, once for a mask, by three small kernels.
//
//   count_tiles   a warp has a tile of queries, and counts its live tiles of keys: right, full and left (TileList)
//   add_up        one block: where each list begins, which is a prefix sum; how heavy each head is; which rows are split
//   write_lists   a warp has a tile of queries again, and writes its list; then it finds its place among all others by counting
//                 those that go before it, and writes its work item there
//
// A "row" is a tile of queries of one head and batch entry: row = (batch · heads + head) · tiles + tile.
#pragma once

#include <climits>

#include "common/device/dialect.h"
#include "steps/07_block_sparse/mask.h"

namespace block_sparse {

using device::ceil_div;
using device::load;
using device::store;

constexpr unsigned all_lanes = ~0u;

constexpr int count_warps = 8;
constexpr int add_threads = 1024;
constexpr int most_places = 1024;  // in the order of heads
constexpr int split_above = 4;     // times the mean: longer rows are split,
constexpr int most_parts = 2112;   // if they have more than 1 / 2112 of all tiles: 16 rows for each of 132 multiprocessors

// The tiles of keys that a row visits: tiles[first …], from right to left. First partial ones to the right of the first full
// one, then full ones, then the other partial ones: with causal masks and windows alone that is the order of step 05.
struct alignas(16) TileList {
  int first, right, full, left;
  __host__ __device__ int count() const { return right + full + left; }
};

// What a block does: a part of a row's list, from entries[first] on. The part is the whole list where part is −1. The parts of
// a split row leave what they find at `part`, and merge_parts makes the row of them. Behind the last item head is −1.
struct alignas(16) WorkItem {
  int first, right, full, left;
  int head;           // of all batch entries
  int first_of_tile;  // query, or key
  int entry;          // the list's first of this part, so that no block has to look it up; −1: there is none
  int part;
  __device__ int count() const { return right + full + left; }
};
__device__ inline WorkItem load_item(const WorkItem* item) {
  const int4* words = reinterpret_cast<const int4*>(item);
  const int4 a = load(words), b = load(words + 1);
  return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
}
__device__ inline void store_item(WorkItem* item, const WorkItem& x) {
  int4* words = reinterpret_cast<int4*>(item);
  store(words, make_int4(x.first, x.right, x.full, x.left));
  store(words + 1, make_int4(x.head, x.first_of_tile, x.entry, x.part));
}

// What decides where a row stands in the order.
struct alignas(16) Rank {
  int first_item;  // in the order of the rows
  int length;      // of each part: longer ones first
  int parts;
  int first_part;  // −1: the row is not split
};

// Where a head stands among all: heavier ones come first. Two numbers of a head, and two of a place. Of more heads than
// most_places, neighbours are ordered as one head (PlanSizes::by_place), so that each is compared with so many at most.
struct alignas(16) HeadOrder {
  int weight, place;         // of this head: tiles that it visits
  int by_place, first_item;  // of the head that has this place: its number, and its first work item
};

struct PlanSizes {
  int rows_of_head, rows;  // rows = heads · rows_of_head, of all batch entries
  int tile_queries, tile_keys;
  bool by_keys;        // rows are tiles of keys: the backward pass
  int items;           // work items, at most
  int together;        // so many of the lightest heads are ordered as one
  int heads_of_place;  // neighbours that are ordered as one
  bool split_long_rows;

  __host__ __device__ int tile_size() const { return by_keys ? tile_keys : tile_queries; }  // of a row
  __host__ __device__ PlanSizes by_place() const {  // the same, where neighbours that are ordered as one are one head
    PlanSizes sizes = *this;
    sizes.rows_of_head *= heads_of_place;
    return sizes;
  }
  __host__ __device__ int places() const { return ceil_div(rows, by_place().rows_of_head); }
  // Of rows that are split, and of parts beyond one a row.
  __host__ __device__ int most_split_rows() const {
    const int long_rows = ceil_div(rows, split_above);
    return long_rows < most_parts ? long_rows : most_parts;
  }
};

}  // namespace block_sparse
