// Which pairs of a query and a key there are: causal masks, windows and packed sequences. Kernels ask here, and so does the
// host (common/problem/). The reference does not: it has a predicate of its own, so that it shares no mistake.
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

// A pair is seen if its distance, own_key(i) − j, is one of least_distance … most_distance.
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

}  // namespace visibility
