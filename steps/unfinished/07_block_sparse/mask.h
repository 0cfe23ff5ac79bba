// Step 07: what a head's type lets a query see, beside causal masks, windows and packed sequences. A tile of keys is dead (no
// query of a tile sees any of its keys), full (all see all), or partial.
#pragma once

#include "common/device/packed.h"
#include "steps/05_flash_v2/key_tiles.cuh"

namespace block_sparse {

using device::AttentionShape;
using flash_v2::key_tiles;
using flash_v2::KeyTiles;

enum HeadType { dense = 0, blocks = 1, streaming_blocks = 2, streaming_tokens = 3 };

// As problem::SparseMask, in device memory.
struct Mask {
  const int* types;      // [heads]; null: all are dense
  const int* streaming;  // [heads, 2]: sink and local; null where no head streams
  const int* live;       // bits [batches, heads, query blocks, words]; null where no head has blocks
  int batches;           // 1, or as many as the problem has
  int block_q, block_k;  // powers of two, and multiples of a tile of queries and of a tile of keys
  int query_blocks, words;
};

// What a head that streams by token lets its queries see: the first `sink` keys of their sequence, and keys less than `local`
// away from their own. Both are 0 for heads of other types: then every key may be seen.
struct Tokens {
  int sink, local;
};
__host__ __device__ inline int type_of(const Mask& mask, int head) { return mask.types ? mask.types[head] : dense; }
__host__ __device__ inline Tokens tokens_of(const Mask& mask, int head) {
  if (type_of(mask, head) != streaming_tokens) return {0, 0};
  return {mask.streaming[2 * head], mask.streaming[2 * head + 1]};
}

// The first key that a sink counts from.
__host__ __device__ inline int first_of_sequence(const AttentionShape&, int) { return 0; }
__host__ __device__ inline int first_of_sequence(const device::PackedShape& shape, int i) {
  return shape.first_token[i < shape.seq_q ? i : shape.seq_q - 1];
}

// The keys that a query sees: two ranges, of which one may be empty.
struct SeenKeys {
  int first, end;            // near it
  int sink_first, sink_end;  // of its sink
  __host__ __device__ bool has(int key) const { return (key >= first && key < end) || (key >= sink_first && key < sink_end); }
};
template <class Shape>
__host__ __device__ inline SeenKeys seen_keys(const Shape& shape, const Tokens& tokens, int i) {
  const int first = shape.first_key(i), end = shape.end_key(i);
  if (tokens.sink == 0 && tokens.local == 0) return {first, end, 0, 0};
  const std::int64_t own = shape.own_key(i), sink_end = std::int64_t{first_of_sequence(shape, i)} + tokens.sink;
  const std::int64_t local_first = own - tokens.local + 1, local_end = own + tokens.local;
  return {static_cast<int>(local_first > first ? local_first < end ? local_first : end : first),
          static_cast<int>(local_end < end ? local_end > 0 ? local_end : 0 : end), first,
          static_cast<int>(sink_end < end ? sink_end : end)};
}

// How many blocks a block of keys is away from the nearest own block of a tile's block of queries.
__host__ __device__ inline int distance(const AttentionShape& shape, const Mask& mask, int query_block, int key_block) {
  const std::int64_t first = std::int64_t{query_block} * mask.block_q, own = std::int64_t{shape.seq_k} - shape.seq_q;
  const std::int64_t last = (first + mask.block_q < shape.seq_q ? first + mask.block_q : shape.seq_q) - 1;
  const auto block_of = [&](std::int64_t key) {  // rounded down, below 0, too
    return static_cast<int>(key >= 0 ? key / mask.block_k : -((-key + mask.block_k - 1) / mask.block_k));
  };
  const int lowest_own = block_of(first + own), highest_own = block_of(last + own);
  return key_block < lowest_own ? lowest_own - key_block : key_block > highest_own ? key_block - highest_own : 0;
}

enum TileState { dead, partial, full };

// What the tiles of keys are for so many queries of a head, as far as there are any. All that does not depend on the tile is
// found once.
template <class Shape>
struct TileStates {
  const Shape& shape;
  const Mask& mask;
  KeyTiles tiles;  // that causal masks, windows and sequences leave
  int keys;        // of a tile
  int type, query_block;
  const int* live;       // the block's row of bits
  int sink, local;       // of streaming heads
  SeenKeys first, last;  // of heads that stream by token: what the first query sees, and the last one

  __device__ TileStates(const Shape& shape_, const Mask& mask_, int batch, int head, int first_query, int queries, int keys_)
      : shape(shape_),
        mask(mask_),
        tiles(key_tiles(shape_, first_query, min(queries, shape_.seq_q - first_query), keys_)),
        keys(keys_),
        type(type_of(mask_, head)),
        query_block(first_query / mask_.block_q) {
    const int row = ((mask.batches == 1 ? 0 : batch) * shape.heads + head) * mask.query_blocks + query_block;
    live = mask.live + static_cast<std::int64_t>(row) * mask.words;
    const bool streams = type == streaming_blocks || type == streaming_tokens;
    sink = streams ? mask.streaming[2 * head] : 0;
    local = streams ? mask.streaming[2 * head + 1] : 0;
    first = seen_keys(shape, {sink, local}, first_query);
    last = seen_keys(shape, {sink, local}, min(first_query + queries, shape.seq_q) - 1);
  }

  __device__ TileState of(int tile) const {
    if (tile < tiles.begin || tile >= tiles.end) return dead;
    const TileState otherwise = tile >= tiles.free_begin && tile < tiles.free_end ? full : partial;
    const int key_block = tile / (mask.block_k / keys);
    switch (type) {
      case blocks:
        return static_cast<unsigned>(live[key_block / 32]) >> key_block % 32 & 1 ? otherwise : dead;
      case streaming_blocks:
        return key_block < sink || distance(shape, mask, query_block, key_block) < local ? otherwise : dead;
      case streaming_tokens:
        return by_token(tile * keys, otherwise);
      default:
        return otherwise;
    }
  }

 private:
  // Both ends of what a query sees near it grow with the query, as do those of its sink.
  __device__ TileState by_token(int first_key, TileState otherwise) const {
    const int end_key = first_key + keys;
    const bool near = first_key < last.end && end_key > first.first;
    const bool in_sink = first_key < last.sink_end && end_key > first.sink_first;
    if ((sink == 0 && local == 0) || (!near && !in_sink)) return dead;
    const bool all_near = first_key >= last.first && end_key <= first.end;
    const bool all_in_sink = first_key >= last.sink_first && end_key <= first.sink_end;
    return all_near || all_in_sink ? otherwise : partial;
  }
};

}  // namespace block_sparse
