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

// The keys of an item, the same for all items of a batch entry. Tiles have `tile_keys` keys.
struct ItemKeys {
  Keys seen, seen_by_all;  // keys that some query sees, and keys that every query sees
  int first_tile, tiles;   // one, without a key, where no query sees any

  __host__ __device__ ItemKeys(const AttentionShape& shape, int tile_keys) {
    const int last = shape.seq_q - 1;
    // Both ends of what a query sees grow with the query.
    seen = {shape.first_key(0), shape.end_key(last)};
    seen_by_all = {shape.first_key(last), shape.end_key(0)};
    const bool any = seen.first < seen.end;
    first_tile = any ? seen.first / tile_keys : 0;
    tiles = any ? ceil_div(seen.end, tile_keys) - first_tile : 1;
  }
  // Where rows may see different keys, a NaN in V must not reach the rows that do not see it.
  __host__ __device__ bool rows_differ() const { return seen.first != seen_by_all.first || seen.end != seen_by_all.end; }
};

// What is the same for all items. Made on the host: the divisions cost a kernel time.
struct Work : ItemKeys {  // of an entry with seq_k keys
  int group;              // query heads of a key/value head
  int rows;               // of a key/value head: seq_q · group
  int row_items;          // items of a key/value head
  int items;              // batch · kv_heads · row_items
  int tile_keys;

  __host__ __device__ Work(const AttentionShape& shape, int keys_of_tile)
      : ItemKeys(shape, keys_of_tile),
        group(shape.heads / shape.kv_heads),
        rows(shape.seq_q * group),
        row_items(ceil_div(rows, item_rows)),
        items(shape.batch * shape.kv_heads * row_items),
        tile_keys(keys_of_tile) {}
};

// The keys of a batch entry: all have as many, but with lengths (stream.cuh).
__device__ inline ItemKeys keys_of(const Work& work, const AttentionShape&, int) { return work; }
struct Item {
  int batch, kv_head;
  int first;  // row
  int rows;   // 16, or what is left
  ItemKeys keys;
};
template <class Shape>
__device__ Item item_of(const Work& work, const Shape& shape, int number) {
  const int head = number / work.row_items, first = (number - head * work.row_items) * item_rows;
  const int batch = head / shape.kv_heads;
  const int left = work.rows - first;
  return {batch, head - batch * shape.kv_heads, first, left < item_rows ? left : item_rows, keys_of(work, shape, batch)};
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
__host__ __device__ inline TileRange part_of_tiles(const ItemKeys& keys, int part, int parts) {
  const std::int64_t tiles = keys.tiles;
  return {keys.first_tile + static_cast<int>(tiles * part / parts),
          keys.first_tile + static_cast<int>(tiles * (part + 1) / parts)};
}

// How blocks share the tiles of all items, counted from the first item to the last: from `stream_k` on.
struct Stream {
  int unit;            // tiles that stay together: 1, or those of an item
  std::int64_t units;  // of all items
  // With lengths, where items have unequal numbers of tiles and only the device knows them: the tiles before each batch entry,
  // and behind the last [batch + 1]; the unit is 1. Else null.
  const std::int64_t* tiles_before;

  __host__ __device__ std::int64_t first_tile(int block, int blocks) const { return units * block / blocks * unit; }
  // The block that has a tile, where unit is 1.
  __host__ __device__ int block_of(std::int64_t tile, int blocks) const {
    return static_cast<int>(((tile + 1) * blocks - 1) / units);
  }
};

// The keys of a block's tile, its warps, and the stages of their copies.
template <int dim_, int warps_, int stages_>
struct Tile {
  static constexpr int dim = dim_, warps = warps_, threads = 32 * warps, stages = stages_;
  static constexpr int keys = warp_keys * warps;
};

}  // namespace decoding
