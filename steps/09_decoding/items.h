// Step 09: how the work of decoding is cut. Queries of heads that share a key/value head become rows of one mma; so many rows
// are an item, and an item's keys are cut into tiles.
//
//     O = softmax(scale · Q Kᵀ) V      Q, O [batch, heads, seq_q, dim], seq_q small      K, V [batch, kv_heads, seq_k, dim]
//
// Row r of a key/value head is query r / group of head r % group in its group: all rows read the same keys. The rows are cut
// into items of 16.
#pragma once

#include <cstdint>

#include "common/device/dialect.h"
#include "common/device/shapes.h"

namespace decoding {

using device::AttentionShape;
using device::ceil_div;

constexpr int item_rows = 16;  // the rows of an mma
constexpr int warp_keys = 16;  // of a tile: what a warp takes at a time

// Keys first … end − 1.
struct Keys {
  int first, end;
  __host__ __device__ bool has(int key) const { return key >= first && key < end; }
};

// What is the same for all items. Made on the host: the divisions cost a kernel time.
struct Work {
  int group;               // query heads of a key/value head
  int rows;                // of a key/value head: seq_q · group
  int row_items;           // items of a key/value head
  int items;               // batch · kv_heads · row_items
  Keys seen, seen_by_all;  // keys that some query sees, and keys that every query sees
  int first_tile, tiles;   // of keys: those of every item; one, without a key, where no query sees any

  // Where rows may see different keys, a NaN in V must not reach the rows that do not see it.
  __host__ __device__ bool rows_differ() const { return seen.first != seen_by_all.first || seen.end != seen_by_all.end; }
};

// Tiles have `tile_keys` keys.
__host__ __device__ inline Work work_of(const AttentionShape& shape, int tile_keys) {
  Work work;
  const int last = shape.seq_q - 1;
  work.group = shape.heads / shape.kv_heads;
  work.rows = shape.seq_q * work.group;
  work.row_items = ceil_div(work.rows, item_rows);
  work.items = shape.batch * shape.kv_heads * work.row_items;
  // Both ends of what a query sees grow with the query.
  work.seen = {shape.first_key(0), shape.end_key(last)};
  work.seen_by_all = {shape.first_key(last), shape.end_key(0)};
  const bool any = work.seen.first < work.seen.end;
  work.first_tile = any ? work.seen.first / tile_keys : 0;
  work.tiles = any ? ceil_div(work.seen.end, tile_keys) - work.first_tile : 1;
  return work;
}

struct Item {
  int batch, kv_head;
  int first;  // row
  int rows;   // 16, or what is left
};
__device__ inline Item item_of(const Work& work, const AttentionShape& shape, int number) {
  const int head = number / work.row_items, first = (number - head * work.row_items) * item_rows;
  const int batch = head / shape.kv_heads;
  const int left = work.rows - first;
  return {batch, head - batch * shape.kv_heads, first, left < item_rows ? left : item_rows};
}

// Where a row of an item comes from.
struct Query {
  int head, i;
};
__device__ inline Query query_of(const Work& work, const Item& item, int row) {
  const int i = (item.first + row) / work.group;
  return {item.kv_head * work.group + item.first + row - i * work.group, i};
}

// The tiles of an item that one of `parts` takes: as equal as they can be.
struct TileRange {
  int begin, end;
};
__host__ __device__ inline TileRange part_of_tiles(const Work& work, int part, int parts) {
  const std::int64_t tiles = work.tiles;
  return {work.first_tile + static_cast<int>(tiles * part / parts),
          work.first_tile + static_cast<int>(tiles * (part + 1) / parts)};
}

// How blocks share the tiles of all items.
struct Stream {
  int unit;            // tiles that stay together: 1, or those of an item
  std::int64_t units;  // of all items

  __host__ __device__ std::int64_t first_tile(int block, int blocks) const { return units * block / blocks * unit; }
  // The block that has a tile, where unit is 1.
  __host__ __device__ int block_of(std::int64_t tile, int blocks) const {
    return static_cast<int>(((tile + 1) * blocks - 1) / units);
  }
};

// A tile of all items, and how many a block still has.
struct Position {
  int number;  // of the item
  int tile;    // of the item's
  std::int64_t left;
  Item item;

  __device__ Position(const Work& work, const AttentionShape& shape, std::int64_t tile_of_all, std::int64_t end)
      : number(static_cast<int>(tile_of_all / work.tiles)),
        tile(static_cast<int>(tile_of_all - std::int64_t{number} * work.tiles)),
        left(end - tile_of_all),
        item(item_of(work, shape, number)) {}

  __device__ void next(const Work& work, const AttentionShape& shape) {
    if (--left == 0 || ++tile < work.tiles) return;
    tile = 0;
    item = item_of(work, shape, ++number);
  }
};

// The keys of a block's tile, its warps, and the stages of their copies.
template <int dim_, int warps_, int stages_>
struct Tile {
  static constexpr int dim = dim_, warps = warps_, threads = 32 * warps, stages = stages_;
  static constexpr int keys = warp_keys * warps;
};

}  // namespace decoding
