// Which pairs of a query and a key there are: causal masks, windows, packed sequences, and heads that stream. Kernels ask here,
// and so does the host (common/problem/). The reference does not: it has a predicate of its own, so that it shares no mistake.
//
// Plain C++, without CUDA's headers: nvcc lets kernels call constexpr functions, too.
#pragma once

#include <climits>
#include <cstdint>

namespace visibility {

// Where two masks meet, a query sees what both let it see: from the larger first key to the smaller end. So packed sequences,
// of which a token sees only its own, cut what a causal mask and a window leave.
constexpr int smaller(int a, int b) { return a < b ? a : b; }
constexpr int larger(int a, int b) { return a < b ? b : a; }

// A number of keys, or of queries: at least 0, at most all.
constexpr int clamped(auto n, int all) { return n < 0 ? 0 : n < all ? static_cast<int>(n) : all; }

// ---- causal masks and windows, of a shape with seq_q, seq_k, causal and window ----

// The key beside query i, and the query beside key j. The last query lies beside the last key.
constexpr int own_key(const auto& shape, int i) { return i + (shape.seq_k - shape.seq_q); }
constexpr int own_query(const auto& shape, int j) { return j + (shape.seq_q - shape.seq_k); }

// A pair is seen if its distance, own_key(i) − j, is one of least_distance … most_distance: a causal mask wants it from 0 on, a
// window below the window.
constexpr int most_distance(const auto& shape) { return shape.window > 0 ? shape.window - 1 : INT_MAX; }
constexpr int least_distance(const auto& shape) {
  return shape.causal ? 0 : shape.window > 0 ? -most_distance(shape) : INT_MIN;
}

// In ranges. Without windows, query i sees the keys 0 … visible_keys(i) − 1.
constexpr int visible_keys(const auto& shape, int i) {
  return clamped(shape.causal ? own_key(shape, i) + 1 : shape.seq_k, shape.seq_k);
}

// With windows, too: the keys first_key(i) … end_key(i) − 1. A window may be as large as an int is, so sums take 64 bits.
constexpr int first_key(const auto& shape, int i) {
  return shape.window > 0 ? clamped(std::int64_t{own_key(shape, i)} - shape.window + 1, shape.seq_k) : 0;
}
constexpr int end_key(const auto& shape, int i) {
  if (shape.window > 0 && !shape.causal) return clamped(std::int64_t{own_key(shape, i)} + shape.window, shape.seq_k);
  return shape.causal ? clamped(own_key(shape, i) + 1, shape.seq_k) : shape.seq_k;
}

// The other way round: key j is seen by the queries first_query(j) … end_query(j) − 1.
constexpr int first_query(const auto& shape, int j) {
  if (!shape.causal && shape.window == 0) return 0;
  return clamped(std::int64_t{own_query(shape, j)} - (shape.causal ? 0 : shape.window - 1), shape.seq_q);
}
constexpr int end_query(const auto& shape, int j) {
  return shape.window > 0 ? clamped(std::int64_t{own_query(shape, j)} + shape.window, shape.seq_q) : shape.seq_q;
}

// ---- heads of sparse masks that stream by token ----

// Its queries see the first `sink` keys of their sequence, and keys less than `local` away from their own.
struct Tokens {
  int sink, local;
};
// Sums with a token's number must fit an int.
constexpr Tokens tokens_of(int sink, int local) { return {smaller(sink, 1 << 30), smaller(local, 1 << 30)}; }

// What a query sees of the keys first … end − 1: two ranges, of which one may be empty. Their ends grow with the query.
struct SeenKeys {
  int first, end;            // near its own key
  int sink_first, sink_end;  // of its sink
};
constexpr SeenKeys streaming_keys(const Tokens& tokens, int first, int end, int own_key, int first_of_sequence) {
  return {larger(first, own_key - tokens.local + 1), smaller(end, own_key + tokens.local), first,
          smaller(end, first_of_sequence + tokens.sink)};
}

// The other way round: who sees a key, of the queries first … end − 1. All see a key of the sink; any other, those near it.
struct SeeingQueries {
  int first, end;
};
constexpr SeeingQueries streaming_queries(const Tokens& tokens, int first, int end, int own_query, int key_of_sequence) {
  if (key_of_sequence < tokens.sink) return {first, end};
  return {larger(first, own_query - tokens.local + 1), smaller(end, own_query + tokens.local)};
}

// ---- heads that stream by block ----

// The own keys of neighbouring queries, the first and the last one. They may be no keys of the problem, and below 0.
struct OwnKeys {
  int first, last;
};
constexpr OwnKeys own_keys(const auto& shape, int first_query, int queries) {
  return {own_key(shape, first_query), own_key(shape, smaller(first_query + queries, shape.seq_q) - 1)};
}
// How many blocks a block of keys is away from the nearest of the blocks first … last that hold them: 0 for one of these.
constexpr int block_distance(int first, int last, int key_block) {
  return larger(larger(first - key_block, key_block - last), 0);
}

}  // namespace visibility
