// Step 07: what a head's type lets a query see, beside causal masks, windows and packed sequences. A tile of keys is dead (no
// query of a tile sees any of its keys), full (all see all), or partial.
#pragma once

#include "common/device/dialect.h"
#include "common/device/shapes.h"

namespace block_sparse {

using device::AttentionShape;
using flash_v2::key_tiles;
using flash_v2::KeyTiles;
using visibility::SeeingQueries;
using visibility::SeenKeys;
using visibility::smaller;
using visibility::Tokens;

enum HeadType { dense = 0, blocks = 1, streaming_blocks = 2, streaming_tokens = 3 };

// As problem::SparseMask, in device memory.
struct Mask {
  const int* types;      // [heads]; null: all are dense
  const int* streaming;  // [heads, 2]: sink and local; null where no head streams
  const int* live;       // bits [batches, heads, query blocks, words]; null where no head has blocks
  int batches;           // 1, or as many as the problem has
  int log_q, log_k;      // a block has 2^log_q queries and 2^log_k keys: multiples of a tile of queries, and of a tile of keys
  int query_blocks, words;
};

__host__ __device__ inline int type_of(const Mask& mask, int head) { return mask.types ? mask.types[head] : dense; }
// Of a head that streams by token. Both 0, of other types: all keys are seen.
__host__ __device__ inline Tokens tokens_of(const Mask& mask, int head) {
  if (type_of(mask, head) != streaming_tokens) return {0, 0};
  return visibility::tokens_of(mask.streaming[2 * head], mask.streaming[2 * head + 1]);
}
__host__ __device__ inline bool streams(const Tokens& tokens) { return tokens.sink > 0 || tokens.local > 0; }

// The first key that a sink counts from.
__host__ __device__ inline int first_of_sequence(const AttentionShape&, int) { return 0; }
__host__ __device__ inline int first_of_sequence(const device::PackedShape& shape, int i) {
  return shape.first_token[smaller(i, shape.seq_q - 1)];
}

// The keys that a query sees, and the queries that see a key.
template <class Shape>
__host__ __device__ inline SeenKeys seen_keys(const Shape& shape, const Tokens& tokens, int i) {
  const int first = shape.first_key(i), end = shape.end_key(i);
  if (!streams(tokens)) return {first, end, 0, 0};
  return visibility::streaming_keys(tokens, first, end, shape.own_key(i), first_of_sequence(shape, i));
}
template <class Shape>
__host__ __device__ inline SeeingQueries seeing_queries(const Shape& shape, const Tokens& tokens, int j) {
  const int first = shape.first_query(j), end = j < shape.seq_k ? shape.end_query(j) : 0;
  if (!streams(tokens)) return {first, end};
  const int own = j - shape.own_key(0);
  // Where sequences are packed, key j is query j, too.
  return visibility::streaming_queries(tokens, first, end, own, j - first_of_sequence(shape, j));
}

// Which of 32 numbers from 0 on lie in a range, as bits (common/device/dialect.h). Here these are neighbouring keys, or
// queries: the two ends of what a row sees decide on 32 pairs at once. A comparison of each key with both ends would take 64
// instructions where this takes a few. The word is built from the number of bits below each end, so ends far outside count as
// the ends of the word.
using device::bits_between;

// How many blocks a block of keys is away from the nearest own block of a tile's block of queries.
__host__ __device__ inline int distance(const AttentionShape& shape, const Mask& mask, int query_block, int key_block) {
  const visibility::OwnKeys own = visibility::own_keys(shape, query_block << mask.log_q, 1 << mask.log_q);
  return visibility::block_distance(own.first >> mask.log_k, own.last >> mask.log_k, key_block);
}

enum TileState { dead, partial, full };

// Of keys first_key … end_key − 1, for neighbouring queries, by what the first and the last of them see.
__device__ inline TileState state_between(const SeenKeys& first, const SeenKeys& last, int first_key, int end_key) {
  const bool near = first_key < last.end && end_key > first.first;
  const bool in_sink = first_key < last.sink_end && end_key > first.sink_first;
  if (!near && !in_sink) return dead;
  const bool all_near = first_key >= last.first && end_key <= first.end;
  const bool all_in_sink = first_key >= last.sink_first && end_key <= first.sink_end;
  return all_near || all_in_sink ? full : partial;
}

constexpr int state_keys = 64;  // of a tile that has a state

// What the tiles of keys are for so many queries of a head, as far as there are any. All that does not depend on the tile is
// found once.
template <class Shape>
struct TileStates {
  static constexpr int keys = state_keys;
  const Shape& shape;
  const Mask& mask;
  KeyTiles tiles;  // that causal masks, windows and sequences leave
  int type, query_block;
  const int* live;       // the block's row of bits
  int sink, local;       // of streaming heads
  SeenKeys first, last;  // of heads that stream by token: what the first query sees, and the last one

  __device__ TileStates(const Shape& shape_, const Mask& mask_, int batch, int head, int first_query, int queries)
      : shape(shape_),
        mask(mask_),
        tiles(key_tiles(shape_, first_query, min(queries, shape_.seq_q - first_query), keys)),
        type(type_of(mask_, head)),
        query_block(first_query >> mask_.log_q) {
    const int row = ((mask.batches == 1 ? 0 : batch) * shape.heads + head) * mask.query_blocks + query_block;
    live = mask.live + static_cast<std::int64_t>(row) * mask.words;
    const bool streams = type == streaming_blocks || type == streaming_tokens;
    sink = streams ? mask.streaming[2 * head] : 0;
    local = streams ? mask.streaming[2 * head + 1] : 0;
    if (type == streaming_tokens) {
      const Tokens tokens = visibility::tokens_of(sink, local);
      first = seen_keys(shape, tokens, first_query);
      last = seen_keys(shape, tokens, min(first_query + queries, shape.seq_q) - 1);
    }
  }

  // [doc: state_of_a_tile]
  __device__ TileState of(int tile) const {
    if (tile < tiles.begin || tile >= tiles.end) return dead;
    const TileState otherwise = tile >= tiles.free_begin && tile < tiles.free_end ? full : partial;
    const int key_block = tile * keys >> mask.log_k;
    switch (type) {
      case blocks:
        return static_cast<unsigned>(live[key_block / 32]) >> key_block % 32 & 1 ? otherwise : dead;
      case streaming_blocks:
        return key_block < sink || distance(shape, mask, query_block, key_block) < local ? otherwise : dead;
      case streaming_tokens: {
        if (sink == 0 && local == 0) return dead;
        const TileState by_token = state_between(first, last, tile * keys, (tile + 1) * keys);
        return by_token == full ? otherwise : by_token;
      }
      default:
        return otherwise;
    }
  }
  // [/doc: state_of_a_tile]
};

}  // namespace block_sparse
