// Step 09: the tiles of all items, counted from the first item to the last, as blocks share them: from `stream_k` on.
#pragma once

#include "steps/09_decoding/items.h"

namespace decoding {

struct Stream {
  int unit;            // tiles that stay together: 1, or those of an item
  std::int64_t units;  // of all items
  // With lengths, where items have unequal numbers of tiles and only the device knows them: the tiles before each batch entry,
  // and behind the last [batch + 1]; the unit is 1. Else null.
  const std::int64_t* tiles_before;

  __device__ std::int64_t first_tile(int block, int blocks) const { return units * block / blocks * unit; }
  // The block that has a tile, where unit is 1.
  __device__ int block_of(std::int64_t tile, int blocks) const { return static_cast<int>(((tile + 1) * blocks - 1) / units); }
};

// ---- where all items have as many tiles ----

__device__ inline Stream on_device(const Stream& stream, const AttentionShape&) { return stream; }
__device__ inline int working_blocks(const Stream&, const AttentionShape&, int blocks) { return blocks; }
__device__ inline std::int64_t first_tile_of(const Stream&, const Work& work, const AttentionShape&, int item) {
  return std::int64_t{item} * work.tiles;
}
__device__ inline int item_with(const Stream&, const Work& work, const AttentionShape&, std::int64_t tile) {
  return static_cast<int>(tile / work.tiles);
}

// ---- where lengths say how many ----

template <class T>
__device__ Stream on_device(Stream stream, const ScoredShape<T>& shape) {
  if (stream.tiles_before != nullptr) stream.units = device::load(&stream.tiles_before[shape.batch]);
  return stream;
}

// Of so many blocks: each has a tile.
template <class T>
__device__ int working_blocks(const Stream& stream, const ScoredShape<T>&, int blocks) {
  return stream.units < blocks ? static_cast<int>(stream.units) : blocks;
}

// The tiles before a batch entry, and of one of its items.
struct EntryTiles {
  int items;  // of the entry
  std::int64_t before, of_item;

  __device__ EntryTiles(const Stream& stream, const Work& work, const AttentionShape& shape, int batch)
      : items(shape.kv_heads * work.row_items), before(device::load(&stream.tiles_before[batch])) {
    of_item = (device::load(&stream.tiles_before[batch + 1]) - before) / items;
  }
};

template <class T>
__device__ std::int64_t first_tile_of(const Stream& stream, const Work& work, const ScoredShape<T>& shape, int item) {
  if (stream.tiles_before == nullptr) return std::int64_t{item} * work.tiles;
  const int batch = item / (shape.kv_heads * work.row_items);
  const EntryTiles entry(stream, work, shape, batch);
  return entry.before + (item - batch * entry.items) * entry.of_item;
}

// [doc: item_with]
template <class T>
__device__ int item_with(const Stream& stream, const Work& work, const ScoredShape<T>& shape, std::int64_t tile) {
  if (stream.tiles_before == nullptr) return static_cast<int>(tile / work.tiles);
  int batch = 0;  // the last entry that has at most `tile` tiles before it
  for (int end = shape.batch; end - batch > 1;) {
    const int middle = batch + (end - batch) / 2;
    (device::load(&stream.tiles_before[middle]) <= tile ? batch : end) = middle;
  }
  const EntryTiles entry(stream, work, shape, batch);
  return batch * entry.items + static_cast<int>((tile - entry.before) / entry.of_item);
}
// [/doc: item_with]

// The tiles before each batch entry [batch + 1]. One block of a warp.
template <class T>
__global__ void __launch_bounds__(32) count_tiles(ScoredShape<T> shape, Work work, std::int64_t* tiles_before) {
  const int lane = threadIdx.x;
  std::int64_t before = 0;  // of the entries that were counted
  for (int first = 0; first < shape.batch; first += 32) {
    const int batch = first + lane;
    std::int64_t sum =
        batch < shape.batch ? std::int64_t{keys_of(work, shape, batch).tiles} * shape.kv_heads * work.row_items : 0;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const std::int64_t other = __shfl_up_sync(~0u, sum, distance);
      if (lane >= distance) sum += other;
    }
    device::store_if(batch < shape.batch, &tiles_before[batch + 1], before + sum);
    before += __shfl_sync(~0u, sum, 31);
  }
  device::store_if(lane == 0, &tiles_before[0], std::int64_t{0});
}

// ---- a block's walk ----

// A tile of all items, and how many a block still has.
struct Position {
  int number;  // of the item
  int tile;    // of the item's
  std::int64_t left;
  Item item;

  template <class Shape>
  __device__ Position(const Stream& stream, const Work& work, const Shape& shape, std::int64_t tile_of_all, std::int64_t end)
      : number(item_with(stream, work, shape, tile_of_all)),
        tile(static_cast<int>(tile_of_all - first_tile_of(stream, work, shape, number))),
        left(end - tile_of_all),
        item(item_of(work, shape, number)) {}

  template <class Shape>
  __device__ void next(const Work& work, const Shape& shape) {
    if (--left == 0 || ++tile < item.keys.tiles) return;
    tile = 0;
    item = item_of(work, shape, ++number);
  }
};

}  // namespace decoding
