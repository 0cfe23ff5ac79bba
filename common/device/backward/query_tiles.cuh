// Step 06: which tiles of queries a tile of keys needs, masks and their edges, the loop over tiles and heads, and the copies
// of tiles ahead of it.
#pragma once

#include <bit>
#include <type_traits>

#include "common/device/backward/tensor_tile.cuh"

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

// ---- tiles that are copied ahead: a stage has Q, dO and the statistics of one tile ----

// Of 06_backward/07_pipeline.cuh: shared memory of a tile of queries.
template <class T, int rows, int dim>
struct Stage {
  Tile<T, rows, dim> q;
  Tile<T, rows, dim> d_o;
  alignas(16) float lse2[rows];
  alignas(16) float minus_delta[rows];
};

// A thread's copies of Q, dO and the statistics: `count` of 16 bytes each for Q and dO, `row_step` rows apart. Their addresses
// are made once: a thread keeps its place in the first tile of head 0. How far a tile is from there is the same for all
// threads: that needs no register of a lane.
template <int threads, class T, int rows, int dim>
struct StageCopies {
  static constexpr int row_chunks = dim / chunk, row_step = std::bit_floor(threads / unsigned{row_chunks}),
                       count = rows / row_step;
  static_assert(rows % row_step == 0 && threads >= rows / 2);
  const Heads<const T>&from_q, &from_d_o;
  const int seq_q, padded;
  const T *q, *d_o;
  const float* statistics;  // the first rows / 4 threads copy LSE, the next D

  __device__ StageCopies(const AttentionShape& shape, const Heads<const T>& q_heads, const Heads<const T>& d_o_heads,
                         const RowStatistics& of_rows, int batch)
      : from_q(q_heads), from_d_o(d_o_heads), seq_q(shape.seq_q), padded(of_rows.padded) {
    const int row = threadIdx.x / row_chunks, column = threadIdx.x % row_chunks * chunk;
    q = from_q.row(batch, 0, 0) + row * from_q.row_stride + column;
    d_o = from_d_o.row(batch, 0, 0) + row * from_d_o.row_stride + column;
    statistics = (threadIdx.x < rows / 4 ? of_rows.lse2 : of_rows.minus_delta) + of_rows.at(shape, batch, 0, 0) +
                 threadIdx.x % (rows / 4) * 4;
  }
  // Copies share `step` of `steps` of this thread's chunks of Q and dO. Rows after the last query become zeros, and so does a
  // tile that is not there: with 0 bytes nothing is read, wherever the address points.
  __device__ void copy_share(Tile<T, rows, dim>& q_tile, Tile<T, rows, dim>& d_o_tile, const TileOfHead& next, int step,
                             int steps) const {
    if (threads % row_chunks != 0 && threadIdx.x >= row_step * row_chunks)
      return;  // head dim 96: a quarter of them has no share
    const int place = threadIdx.x / row_chunks * q_tile.width + threadIdx.x % row_chunks * chunk;
#pragma unroll
    for (int n = count * step / steps; n < count * (step + 1) / steps; ++n) {
      const int first = next.tile * rows + n * row_step;
      const int bytes = next.there && static_cast<int>(threadIdx.x) / row_chunks < seq_q - first ? 16 : 0;
      const T* q_chunk = q + (next.head * from_q.head_stride + first * from_q.row_stride);
      const T* d_o_chunk = d_o + (next.head * from_d_o.head_stride + first * from_d_o.row_stride);
      ptx::cp_async_16(&q_tile.at[n * row_step][0] + place, q_chunk, bytes);
      ptx::cp_async_16(&d_o_tile.at[n * row_step][0] + place, d_o_chunk, bytes);
    }
  }
  __device__ void copy_statistics(float (&lse2)[rows], float (&minus_delta)[rows], const TileOfHead& next) const {
    float* to = (threadIdx.x < rows / 4 ? lse2 : minus_delta) + threadIdx.x % (rows / 4) * 4;
    if (next.there && threadIdx.x < rows / 2) {
      ptx::cp_async_16(to, statistics + (std::int64_t{next.head} * padded + next.tile * rows));
    }
  }
};

}  // namespace backward
