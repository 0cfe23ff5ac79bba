// What attention and its gradients share. Not for others: they include attention.h or backward.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "common/reference/attention.h"
#include "common/reference/parts.h"

namespace reference {

// sums[r] = Σ_d a[d] · b[r][d], each sum in the order of d. Eight rows go side by side, because one sum alone would wait for
// the latency of every addition; the last group repeats the last row and drops the copies.
template <class Real, class A, class B>
void dots(const A* a,  // [dim]
          const B* b,  // [rows, dim]
          int rows, int dim,
          Real* sums) {  // [rows]
  constexpr int group = 8;
  for (int r = 0; r < rows; r += group) {
    const B* row[group];
    for (int i = 0; i < group; ++i) row[i] = b + static_cast<std::int64_t>(std::min(r + i, rows - 1)) * dim;
    Real sum[group] = {};
    for (int d = 0; d < dim; ++d) {
      const Real x = static_cast<Real>(a[d]);
      for (int i = 0; i < group; ++i) sum[i] += x * static_cast<Real>(row[i][d]);
    }
    std::copy_n(sum, std::min(group, rows - r), sums + r);
  }
}

// y += factor · x, both [dim].
template <class Real, class In>
void add_scaled(Real factor, const In* x, int dim, Real* y) {
  for (int d = 0; d < dim; ++d) y[d] += factor * static_cast<Real>(x[d]);
}

// The exponentials of a row of scores, and what to divide them by.
template <class Real>
struct Softmax {
  Real max = -std::numeric_limits<Real>::infinity();  // −∞: no score is above that; NaN: one is NaN or +∞
  Real sum = 0;                                       // of exp(score − max)

  bool empty() const { return max == -std::numeric_limits<Real>::infinity(); }
  Real lse() const { return empty() || std::isnan(max) ? max : max + std::log(sum); }
  Real probability(Real score) const { return empty() ? Real{0} : exponential(score) / sum; }

  // The truth gives every finite score a probability above 0: rounded to 0 it would turn an infinity of V into a NaN.
  Real exponential(Real score) const {
    constexpr Real least = std::is_same_v<Real, double> ? std::numeric_limits<Real>::min() : Real{0};
    if (std::isnan(max)) return max;
    return score == -std::numeric_limits<Real>::infinity() ? Real{0} : std::max(std::exp(score - max), least);
  }
};

// Scores become their exponentials, in place.
template <class Real>
Softmax<Real> exponentials(std::vector<Real>& scores) {
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  const bool defined = std::all_of(scores.begin(), scores.end(), [](Real s) { return s < infinity; });
  Softmax<Real> row;
  for (const Real s : scores) row.max = std::max(row.max, s);
  if (!defined) row.max = std::numeric_limits<Real>::quiet_NaN();
  for (Real& s : scores) {
    s = row.empty() ? Real{0} : row.exponential(s);
    row.sum += s;
  }
  return row;
}

// Scores become probabilities, in place; returns their LSE.
template <class Real>
Real softmax(std::vector<Real>& scores) {
  const Softmax<Real> row = exponentials(scores);
  for (Real& s : scores) s = row.empty() ? Real{0} : s / row.sum;
  return row.lse();
}

inline std::int64_t q_size(const AttentionSpec& spec) {
  return static_cast<std::int64_t>(spec.batch) * spec.heads * spec.seq_q * spec.dim;
}

inline std::int64_t kv_size(const AttentionSpec& spec) {
  return static_cast<std::int64_t>(spec.batch) * spec.kv_heads * spec.seq_k * spec.dim;
}

template <class In>
struct Inputs {
  std::span<const In> q, k, v;
};

template <class In>
void require_valid(const AttentionSpec& spec, const Inputs<In>& in) {
  require(std::min({spec.batch, spec.heads, spec.kv_heads, spec.seq_q, spec.seq_k, spec.dim}) >= 1, "every extent must be ≥ 1");
  require(spec.heads % spec.kv_heads == 0, "kv_heads must divide heads");
  require(spec.sinks.empty() || std::ssize(spec.sinks) == spec.heads, "there must be a sink for each head");
  require(spec.lengths.empty() || std::ssize(spec.lengths) == spec.batch, "there must be a length for each batch entry");
  require_size(in.q, q_size(spec), "q");
  require_size(in.k, kv_size(spec), "k");
  require_size(in.v, kv_size(spec), "v");
}

// Where the first key of a query head's key/value head lies in K and V.
inline std::int64_t kv_offset(const AttentionSpec& spec, int batch, int head) {
  const int kv_head = head / (spec.heads / spec.kv_heads);
  return (static_cast<std::int64_t>(batch) * spec.kv_heads + kv_head) * spec.seq_k * spec.dim;
}

// Keeps of a value for each key, or query, of a range from `begin` on those of `kept`, which are in order.
template <class Value>
void keep_of_range(std::vector<Value>& values, int begin, const std::vector<int>& kept) {
  if (values.size() == kept.size()) return;
  for (std::size_t n = 0; n < kept.size(); ++n) values[n] = values[kept[n] - begin];
  values.resize(kept.size());
}

// The products of a row with the keys of a range that are seen [seen].
template <class Real, class In>
std::vector<Real> products_of(const AttentionSpec& spec, KeyRange keys, const std::vector<int>& seen, const In* row,
                              const In* head) {  // [seq_k, dim]
  std::vector<Real> products(keys.count());
  dots(row, head + static_cast<std::int64_t>(keys.begin) * spec.dim, keys.count(), spec.dim, products.data());
  keep_of_range(products, keys.begin, seen);
  return products;
}

// The scores [seen] of one row.
template <class Real, class In>
std::vector<Real> scores_of(const AttentionSpec& spec, KeyRange keys, const std::vector<int>& seen, const In* q_row,
                            const In* k_head) {
  std::vector<Real> scores = products_of<Real>(spec, keys, seen, q_row, k_head);
  for (Real& s : scores) s *= static_cast<Real>(spec.scale);
  return scores;
}

// What options of scores make of the scaled ones of a row, of the keys that are seen [seen].
template <class Real>
void modify_scores(const AttentionSpec& spec, const Row& row, const std::vector<int>& seen, std::vector<Real>& scores) {
  if (!spec.changes_scores()) return;
  const int own_key = row.query + spec.keys_of(row.batch) - spec.seq_q;
  for (std::size_t n = 0; n < seen.size(); ++n) {
    Real& s = scores[n];
    if (spec.softcap > 0) s = static_cast<Real>(spec.softcap) * std::tanh(s / static_cast<Real>(spec.softcap));
    if (spec.bias) s += static_cast<Real>(spec.bias(row.batch, row.head, row.query, seen[n]));
    if (spec.alibi > 0) s -= static_cast<Real>(slope(spec, row.head)) * static_cast<Real>(std::abs(own_key - seen[n]));
  }
}

inline double sink_of(const AttentionSpec& spec, const Row& row) {
  return spec.sinks.empty() ? -std::numeric_limits<double>::infinity() : spec.sinks[row.head];
}

inline constexpr auto keep_double = [](double x) { return x; };

// The norms of rows of dim elements each.
inline std::vector<double> norms_of_rows(const AttentionSpec& spec, std::span<const float> tensor) {
  std::vector<double> norms(tensor.size() / spec.dim);
  parallel_for(std::ssize(norms), [&](std::int64_t row) { norms[row] = norm(&tensor[row * spec.dim], spec.dim); });
  return norms;
}

// scale, log2 e, scale · log2 e, that times a score; ln 2, that times the maximum: what LSE's way to base 2 and back rounds.
// Most of it is the same in all rows of a launch, so it is no random walk.
inline constexpr int base_2_roundings = 6;

}  // namespace reference
