// Step 06: which tiles of queries a tile of keys needs, masks and their edges, and the loop over tiles and heads.
#pragma once

#include <type_traits>

#include "common/device/backward/rows.cuh"

namespace backward {

// Which tiles of `queries` queries a tile of keys needs: begin … end − 1; none where begin = end. Every query of the tiles
// free_begin … free_end − 1 sees every key. Tiles before them are cut by the causal diagonal or by a window, tiles behind
// them by a window; on both sides also by the ends of packed sequences.
struct QueryTiles {
  int begin, free_begin, free_end, end;
};
// [doc: query_tiles]
template <class Shape>
__host__ __device__ inline QueryTiles query_tiles(const Shape& shape, int first_key, int keys, int queries) {
  const bool ragged = first_key + keys > shape.seq_k;  // keys that do not exist: all tiles have a mask
  const int last_key = (ragged ? shape.seq_k : first_key + keys) - 1;
  const int first = shape.first_query(first_key), last = shape.end_query(last_key);  // who sees some key
  const int begin = first / queries, end = first < last ? (last + queries - 1) / queries : begin;
  // Who sees every key: both ends of the queries that see a key grow with the key. Queries beyond the last see nothing by their
  // LSE.
  const int free_begin = (shape.first_query(last_key) + queries - 1) / queries;
  const int free_last = shape.end_query(first_key), free_end = free_last == shape.seq_q ? end : free_last / queries;
  const bool none_free = ragged || free_begin >= free_end || begin == end;
  return {begin, none_free ? end : free_begin, none_free ? end : free_end, end};
}
// [/doc: query_tiles]

// ---- the loop ----

// Calls attend_tile(head, tile, masked) for each tile of each head that shares the keys. `masked` is std::true_type at the
// edges, and std::false_type between them: so the compiler makes two bodies, and the second one has no code for masks.
template <class AttendTile>
__device__ inline void for_each_tile(const AttentionShape& shape, const QueryTiles& tiles, int kv_head,
                                     const AttendTile& attend_tile) {
  const int group = shape.heads / shape.kv_heads;
#pragma unroll 1
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    int tile = tiles.begin;
#pragma unroll 1
    for (; tile < tiles.free_begin; ++tile) attend_tile(head, tile, std::true_type{});
#pragma unroll 1
    for (; tile < tiles.free_end; ++tile) attend_tile(head, tile, std::false_type{});
#pragma unroll 1
    for (; tile < tiles.end; ++tile) attend_tile(head, tile, std::true_type{});
  }
}

// A tile in the order of that loop.
struct TileOfHead {
  int head, tile;
  int end_head;
  bool there;  // the loop has it
};
__device__ inline TileOfHead first_tile(const AttentionShape& shape, const QueryTiles& tiles, int kv_head) {
  const int group = shape.heads / shape.kv_heads;
  return {kv_head * group, tiles.begin, (kv_head + 1) * group, tiles.begin < tiles.end};
}
__device__ inline void advance(TileOfHead& at, const QueryTiles& tiles) {
  if (++at.tile < tiles.end) return;
  at.tile = tiles.begin;
  if (++at.head == at.end_head) at.there = false;
}

// ---- masks ----

// Probabilities of pairs that are masked become 0. p[n][e] belongs to key `key` + 8 (e / 2), query `row` + 8 n + 2 t + e % 2. A
// pair is seen or not by the distance from the key to the key beside the query.
template <int frags>
__device__ void mask_probabilities(float (&p)[frags][4], const AttentionShape& shape, int key, int row) {
  const int most = visibility::most_distance(shape), least = visibility::least_distance(shape);
  const int distance = shape.own_key(row + threadIdx.x % 4 * 2) - key;
#pragma unroll
  for (int n = 0; n < frags; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int of_pair = distance + 8 * n + e % 2 - e / 2 * 8;
      if (of_pair < least || of_pair > most || key + e / 2 * 8 >= shape.seq_k) p[n][e] = 0.0f;
    }
  }
}

// Packed sequences cut a key's queries on both sides, too.
template <int frags>
__device__ void mask_probabilities(float (&p)[frags][4], const device::PackedShape& shape, int key, int row) {
  mask_probabilities(p, static_cast<const AttentionShape&>(shape), key, row);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int first = shape.first_query(key + 8 * r), end = shape.end_query(key + 8 * r);
#pragma unroll
    for (int n = 0; n < frags; ++n) {
#pragma unroll
      for (int e = 2 * r; e < 2 * r + 2; ++e) {
        const int query = row + 8 * n + threadIdx.x % 4 * 2 + e % 2;
        if (query < first || query >= end) p[n][e] = 0.0f;
      }
    }
  }
}

// Sᵀ becomes Pᵀ. s[n][e] belongs to query 8 n + 2 t + e % 2 of those whose LSE these are.
template <int frags>
__device__ void exponentiate(float (&s)[frags][4], const float* lse2, float scale_log2) {
#pragma unroll
  for (int n = 0; n < frags; ++n) {
    const float2 of_rows = load(reinterpret_cast<const float2*>(&lse2[8 * n + threadIdx.x % 4 * 2]));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[n][e] = device::exp2_fast(fmaf(s[n][e], scale_log2, -(e % 2 == 0 ? of_rows.x : of_rows.y)));
    }
  }
}

// dPᵀ becomes dSᵀ, of the same pairs.
template <int frags>
__device__ void times_probabilities(float (&dp)[frags][4], const float (&p)[frags][4], const float* minus_delta) {
#pragma unroll
  for (int n = 0; n < frags; ++n) {
    const float2 of_rows = load(reinterpret_cast<const float2*>(&minus_delta[8 * n + threadIdx.x % 4 * 2]));
#pragma unroll
    for (int e = 0; e < 4; ++e) dp[n][e] = p[n][e] * (dp[n][e] + (e % 2 == 0 ? of_rows.x : of_rows.y));
  }
}

}  // namespace backward
