#include "common/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "common/reference/attention_parts.h"
#include "common/reference/dropout.h"
#include "common/reference/sample.h"

namespace reference {
namespace {

// o += p · v, both [dim], where an infinity stays one, even times 0: kernels that take it out of V and put it back into O, so
// that it does not reach rows that must not see it, do not know p there. (0 · NaN is NaN anyway.)
template <class Real, class In>
void add_value(Real p, const In* v, int dim, Real* o) {
  for (int d = 0; d < dim; ++d) o[d] += p == 0 && std::isinf(v[d]) ? static_cast<Real>(v[d]) : p * static_cast<Real>(v[d]);
}

// Of a query whose sequence has so many keys, where none are packed.
KeyRange visible_keys(const AttentionSpec& spec, int query, int keys) {
  const std::int64_t position = static_cast<std::int64_t>(query) + keys - spec.seq_q;  // the query's own key
  const KeyRange sequence = spec.cu_seqlens.empty() ? KeyRange{0, keys} : sequence_of(spec, query);
  std::int64_t begin = sequence.begin;
  std::int64_t end = sequence.end;
  if (spec.causal) end = std::min(end, position + 1);
  if (spec.window > 0) {
    begin = std::max(begin, position - spec.window + 1);
    end = std::min(end, position + spec.window);
  }
  if (begin >= end) return {};
  return {static_cast<int>(begin), static_cast<int>(end)};
}

// One row of O [dim]; returns its LSE. The truth and the baseline differ in Real and in how they round, and in nothing else.
template <class Real, class In, class RoundTo>
Real attend(const AttentionSpec& spec, const Row& row, const Inputs<In>& in, const RoundTo& round, Real* o) {
  std::fill_n(o, spec.dim, Real{0});
  const std::vector<int> keys = seen_keys(spec, row);
  const Real sink = static_cast<Real>(sink_of(spec, row));
  if (keys.empty() && sink == -std::numeric_limits<Real>::infinity()) return sink;

  const std::int64_t head = kv_offset(spec, row.batch, row.head);
  const In* q_row = &in.q[flat_index(spec, row) * spec.dim];
  std::vector<Real> p = scores_of<Real>(spec, visible_keys(spec, row), keys, q_row, &in.k[head]);
  modify_scores(spec, row, keys, p);
  p.push_back(sink);
  const Real lse = softmax(p);
  // Where there is no key, too.
  if (std::isnan(lse)) std::fill_n(o, spec.dim, lse);
  double factor = 1;  // of dropout
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const double kept = kept_weight(spec, row.batch, row.head, row.query, keys[n]);
    factor = std::max(factor, kept);
    add_value(kept > 0 ? round(p[n]) : Real{0}, &in.v[head + static_cast<std::int64_t>(keys[n]) * spec.dim], spec.dim, o);
  }
  for (int d = 0; d < spec.dim; ++d) o[d] = round(o[d] * static_cast<Real>(factor));
  return lse;
}

template <class Real>
struct Attended {
  std::vector<Real> o;    // [rows, dim]
  std::vector<Real> lse;  // [rows]
};

template <class Real, class In, class RoundTo>
Attended<Real> attend_rows(const AttentionSpec& spec, const std::vector<Row>& rows, const Inputs<In>& in,
                           const RoundTo& round) {
  require_valid(spec, in);
  Attended<Real> result{std::vector<Real>(rows.size() * spec.dim), std::vector<Real>(rows.size())};
  parallel_for(std::ssize(rows),
               [&](std::int64_t r) { result.lse[r] = attend(spec, rows[r], in, round, &result.o[r * spec.dim]); });
  return result;
}

template <class In>
Forward forward_in_double(const AttentionSpec& spec, const std::vector<Row>& rows, const Inputs<In>& in) {
  auto [o, lse] = attend_rows<double>(spec, rows, in, keep_double);
  return {std::move(o), std::move(lse)};
}

// The keys that one row sees, as fp32_rounding() and ScoreRounding look at them.
struct RoundedScores {
  std::int64_t head = 0;       // where the keys and values of its head begin
  std::vector<int> keys;       // [seen]
  std::vector<double> scores;  // [seen]
  std::vector<double> errors;  // 2 δ_j of each
  std::vector<double> kept;    // what dropout multiplies P by
  double sink = -std::numeric_limits<double>::infinity();

  double heaviest() const { return std::max(sink, scores.empty() ? sink : *std::max_element(scores.begin(), scores.end())); }
};

// How far a score may be off beside what its product is: by the steps of each option, and of bringing the result to base 2.
double error_of_options(const AttentionSpec& spec, const Row& row, int key, double score) {
  if (!spec.changes_scores()) return 0;
  const double distance = std::abs(row.query + spec.keys_of(row.batch) - spec.seq_q - key);
  const double of_alibi = spec.alibi > 0 ? slope(spec, row.head) * distance : 0;
  const double of_bias = spec.bias ? std::abs(spec.bias(row.batch, row.head, row.query, key)) : 0;
  // A quotient, tanh (to 3 units) and a product; a sum; a slope (to 3 units), a product and a sum.
  const double capped = spec.softcap > 0 ? std::min(spec.softcap, std::abs(score) + of_bias + of_alibi) : 0;
  return 2 * fp32_unit * (5 * capped + 2 * of_bias + 6 * of_alibi + 3 * std::abs(score));
}

// key_norms [batch, kv_heads, seq_k].
RoundedScores rounded_scores(const AttentionSpec& spec, const Row& row, std::span<const float> q, std::span<const float> k,
                             std::span<const double> key_norms) {
  RoundedScores result{.keys = seen_keys(spec, row), .scores = {}, .errors = {}, .kept = {}, .sink = sink_of(spec, row)};
  if (result.keys.empty()) return result;
  const float* q_row = &q[flat_index(spec, row) * spec.dim];
  result.head = kv_offset(spec, row.batch, row.head);
  result.scores = scores_of<double>(spec, visible_keys(spec, row), result.keys, q_row, &k[result.head]);
  modify_scores(spec, row, result.keys, result.scores);
  const double per_norm = std::sqrt(spec.dim + 2.0) * fp32_unit * std::abs(spec.scale) * norm(q_row, spec.dim);
  for (std::size_t n = 0; n < result.keys.size(); ++n) {
    const int j = result.keys[n];
    result.kept.push_back(kept_weight(spec, row.batch, row.head, row.query, j));
    result.errors.push_back(per_norm * key_norms[result.head / spec.dim + j] +
                            error_of_options(spec, row, j, result.scores[n]));
  }
  return result;
}

// How far LSE moves if every score is too small, or too large, by its error.
double lse_rounding(const RoundedScores& row, double lse) {
  double widest = 0;
  for (const double sign : {-1.0, 1.0}) {
    std::vector<double> moved = row.scores;
    for (std::size_t j = 0; j < moved.size(); ++j) moved[j] += sign * row.errors[j];
    moved.push_back(row.sink);
    widest = std::max(widest, std::abs(softmax(moved) - lse));
  }
  return widest;
}

// The entries of fp32_rounding() for row r of the result; o [dim] and lse are the truth.
void add_rounding(const AttentionSpec& spec, const RoundedScores& row, std::span<const float> v, const double* o, double lse,
                  double smallest, std::int64_t r, Rounding& result) {
  result.lse[r] = lse_rounding(row, lse) + base_2_roundings * fp32_unit * std::abs(lse);
  if (row.keys.empty()) return;  // a sink alone
  const std::size_t keys = row.scores.size(), dim = spec.dim;
  std::vector<double> p(keys), sizes(dim), squares(dim), plain(dim), lost(dim), walk(dim);
  const double heaviest = row.heaviest();
  for (std::size_t j = 0; j < keys; ++j) {
    p[j] = std::exp(row.scores[j] - lse) * row.kept[j];
    // What is rounded is exp(score − maximum), to a multiple of the smallest number; the division by the sum comes later.
    const double step = std::min(smallest, std::exp(row.scores[j] - heaviest)) * std::exp(heaviest - lse) * row.kept[j];
    const float* v_row = &v[row.head + row.keys[j] * dim];
    for (std::size_t d = 0; d < dim; ++d) {
      const double size = std::abs(v_row[d]), term = p[j] * size;
      sizes[d] += term;
      squares[d] += term * term;
      plain[d] += std::isfinite(size) ? size * row.kept[j] : 0;
      if (std::isfinite(size)) walk[d] += step * size * step * size;
    }
  }
  for (std::size_t j = 0; j < keys; ++j) {
    if (p[j] >= 2 * fp32_unit) continue;
    const bool may_be_0 = p[j] < std::numeric_limits<float>::min() * row.kept[j];
    for (std::size_t d = 0; d < dim; ++d) {
      const double term = p[j] * std::abs(v[row.head + row.keys[j] * dim + d]);
      lost[d] += may_be_0 ? term : std::min(term, fp32_unit * sizes[d]);
    }
  }
  for (std::size_t d = 0; d < dim; ++d) {
    const std::size_t at = r * dim + d;
    result.size[at] = std::max(std::abs(o[d]), std::sqrt(squares[d]));
    result.sum[at] = std::sqrt(keys) * fp32_unit * sizes[d] + lost[d] + std::sqrt(walk[d]);
    result.may_overflow[at] = plain[d] * 0x1p8 >= std::numeric_limits<float>::max();
  }
}

template <class Real, class In>
std::vector<Real> linear_in(const LinearShape& shape, std::span<const In> x, std::span<const float> weight,
                            std::span<const float> bias) {
  require(std::min({shape.rows, shape.in, shape.out}) >= 1, "every extent must be ≥ 1");
  require_size(x, static_cast<std::int64_t>(shape.rows) * shape.in, "x");
  require_size(weight, static_cast<std::int64_t>(shape.out) * shape.in, "weight");
  require_size(bias, shape.out, "bias");
  std::vector<Real> y(static_cast<std::size_t>(shape.rows) * shape.out);
  parallel_for(shape.rows, [&](std::int64_t row) {
    Real* y_row = &y[row * shape.out];
    dots(&x[row * shape.in], weight.data(), shape.out, shape.in, y_row);
    for (int o = 0; o < shape.out; ++o) y_row[o] += static_cast<Real>(bias[o]);
  });
  return y;
}

AttentionSpec attention_of(const LayerShape& shape) {
  require(std::min({shape.batch, shape.seq, shape.heads, shape.width}) >= 1, "every extent must be ≥ 1");
  require(shape.width % shape.heads == 0, "heads must divide width");
  const int dim = shape.width / shape.heads;
  return {shape.batch, shape.heads, shape.heads, shape.seq, shape.seq, dim, shape.causal, 0, 1.0 / std::sqrt(dim)};
}

// Calls copy(at, place) for every head's run of dim values: at where it lies in [batch, heads, seq, dim], and at which
// (batch · seq + token, head · dim) it lies among the tokens' vectors.
template <class Copy>
void for_each_head(const AttentionSpec& spec, const Copy& copy) {
  for (const Row& row : all_rows(spec)) {
    const std::int64_t token = static_cast<std::int64_t>(row.batch) * spec.seq_q + row.query;
    copy(flat_index(spec, row) * spec.dim, token, row.head * spec.dim);
  }
}

template <class Real, class RoundTo>
LayerResult<Real> layer_in(const LayerShape& shape, std::span<const float> x, const LayerWeights& weights,
                           const RoundTo& round) {
  const AttentionSpec spec = attention_of(shape);
  const int width = shape.width;
  const int tokens = shape.batch * shape.seq;
  const auto qkv = linear_in<Real>({tokens, width, 3 * width}, x, weights.in_proj_weight, weights.in_proj_bias);

  std::vector<Real> q(static_cast<std::size_t>(tokens) * width), k(q.size()), v(q.size());  // [batch, heads, seq, dim]
  for_each_head(spec, [&](std::int64_t at, std::int64_t token, int column) {
    const Real* from = &qkv[token * 3 * width + column];
    std::copy_n(from, spec.dim, &q[at]);
    std::copy_n(from + width, spec.dim, &k[at]);
    std::copy_n(from + 2 * width, spec.dim, &v[at]);
  });
  Attended<Real> attended = attend_rows<Real>(spec, all_rows(spec), Inputs<Real>{q, k, v}, round);

  std::vector<Real> merged(q.size());  // [batch, seq, width]
  for_each_head(spec, [&](std::int64_t at, std::int64_t token, int column) {
    std::copy_n(&attended.o[at], spec.dim, &merged[token * width + column]);
  });
  auto y =
      linear_in<Real>({tokens, width, width}, std::span<const Real>(merged), weights.out_proj_weight, weights.out_proj_bias);
  return {std::move(y), std::move(attended.o), std::move(attended.lse)};
}

}  // namespace

KeyRange sequence_of(const AttentionSpec& spec, int token) {
  if (spec.cu_seqlens.empty()) return {0, spec.seq_k};
  std::size_t s = 0;
  while (spec.cu_seqlens[s + 1] <= token) ++s;
  return {spec.cu_seqlens[s], spec.cu_seqlens[s + 1]};
}

double slope(const AttentionSpec& spec, int head) {
  int first = 1;  // heads of the first series
  while (2 * first <= spec.heads) first *= 2;
  if (head < first) return std::exp2(-spec.alibi * (head + 1) / first);
  return std::exp2(-spec.alibi * (2 * (head - first) + 1) / (2 * first));
}

KeyRange visible_keys(const AttentionSpec& spec, int query) { return visible_keys(spec, query, spec.seq_k); }
KeyRange visible_keys(const AttentionSpec& spec, const Row& row) {
  return visible_keys(spec, row.query, spec.keys_of(row.batch));
}

namespace {

// Does a row see a key of its range?
bool sees(const AttentionSpec& spec, const Row& row, int key) {
  if (spec.sees && !spec.sees(row.batch, row.head, row.query, key)) return false;
  return !spec.bias || spec.bias(row.batch, row.head, row.query, key) != -std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<int> seen_keys(const AttentionSpec& spec, const Row& row) {
  const KeyRange range = visible_keys(spec, row);
  std::vector<int> keys;
  keys.reserve(range.count());
  for (int j = range.begin; j < range.end; ++j) {
    if (sees(spec, row, j)) keys.push_back(j);
  }
  return keys;
}

bool sees_nothing(const AttentionSpec& spec, const Row& row) {
  const KeyRange range = visible_keys(spec, row);
  if (!spec.sees && !spec.bias) return range.empty();
  for (int j = range.begin; j < range.end; ++j) {
    if (sees(spec, row, j)) return false;
  }
  return true;
}

std::string to_string(const Row& row) {
  return "batch " + std::to_string(row.batch) + ", head " + std::to_string(row.head) + ", query " + std::to_string(row.query);
}

std::int64_t flat_index(const AttentionSpec& spec, const Row& row) {
  return (static_cast<std::int64_t>(row.batch) * spec.heads + row.head) * spec.seq_q + row.query;
}

std::vector<Row> all_rows(const AttentionSpec& spec) {
  std::vector<Row> rows;
  for (int batch = 0; batch < spec.batch; ++batch) {
    for (int head = 0; head < spec.heads; ++head) {
      for (int query = 0; query < spec.seq_q; ++query) rows.push_back({batch, head, query});
    }
  }
  return rows;
}

std::vector<Row> sample_rows(const AttentionSpec& spec, int per_head, std::uint64_t seed) {
  if (spec.seq_q <= std::max(per_head, least_sample)) return all_rows(spec);

  // The first query that sees a key is always looked at.
  const auto sampler_of = [&](int batch) {
    return Sampler(spec.seq_q, per_head, seed + batch, spec.causal ? spec.seq_q - spec.keys_of(batch) : 0);
  };
  Sampler sampler = sampler_of(0);
  std::vector<Row> rows;
  for (int batch = 0; batch < spec.batch; ++batch) {
    if (!spec.lengths.empty()) sampler = sampler_of(batch);
    for (int head = 0; head < spec.heads; ++head) {
      for (const int query : sampler.next()) rows.push_back({batch, head, query});
    }
  }
  return rows;
}

std::vector<std::uint8_t> sees_non_finite(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const float> q,
                                          std::span<const float> k, std::span<const float> v) {
  require_valid(spec, Inputs<float>{q, k, v});
  const auto bad = [&](std::span<const float> tensor, std::int64_t row) {
    const auto values = tensor.subspan(row * spec.dim, spec.dim);
    return std::any_of(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  };
  // bad_before[key] counts bad keys before that key, over all heads, so that a range of keys costs one subtraction.
  const std::int64_t keys = kv_size(spec) / spec.dim;
  std::vector<std::int64_t> bad_before(keys + 1, 0);
  for (std::int64_t key = 0; key < keys; ++key) bad_before[key + 1] = bad_before[key] + (bad(k, key) || bad(v, key));

  std::vector<std::uint8_t> flags(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const KeyRange range = visible_keys(spec, rows[r]);
    const double sink = sink_of(spec, rows[r]);
    flags[r] = !(sink < std::numeric_limits<double>::infinity());  // −∞ is no sink
    if (range.empty() || flags[r]) continue;
    const std::int64_t first = kv_offset(spec, rows[r].batch, rows[r].head) / spec.dim;
    flags[r] = bad(q, flat_index(spec, rows[r])) || bad_before[first + range.end] > bad_before[first + range.begin];
    if (!spec.bias && (!flags[r] || !spec.sees)) continue;
    const std::vector<int> seen = seen_keys(spec, rows[r]);
    const auto odd_bias = [&](int j) { return !std::isfinite(spec.bias(rows[r].batch, rows[r].head, rows[r].query, j)); };
    if (spec.bias && std::any_of(seen.begin(), seen.end(), odd_bias)) {
      flags[r] = 1;
      continue;
    }
    flags[r] = !seen.empty() && (bad(q, flat_index(spec, rows[r])) || std::any_of(seen.begin(), seen.end(), [&](int j) {
                                   return bad_before[first + j + 1] > bad_before[first + j];
                                 }));
  }
  return flags;
}

std::vector<std::uint8_t> scores_may_overflow(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const float> q,
                                              std::span<const float> k) {
  require_size(q, q_size(spec), "q");
  require_size(k, kv_size(spec), "k");
  constexpr double limit = std::numeric_limits<float>::max();
  const double factor = std::max(1.0, std::abs(spec.scale) * std::numbers::log2e);
  const auto sizes = [](std::span<const float> tensor) {  // |x|, 0 for what is not finite
    std::vector<float> result(tensor.begin(), tensor.end());
    for (float& x : result) x = std::isfinite(x) ? std::abs(x) : 0;
    return result;
  };
  const std::vector<float> q_sizes = sizes(q), k_sizes = sizes(k);
  const double most = std::ranges::max(q_sizes) * static_cast<double>(std::ranges::max(k_sizes)) * spec.dim;
  std::vector<std::uint8_t> flags(rows.size());
  const double farthest = spec.alibi > 0 ? static_cast<double>(spec.seq_q) + spec.seq_k : 0;  // and slopes are below 1
  const bool small_sinks = std::all_of(spec.sinks.begin(), spec.sinks.end(), [](float sink) {
    return !std::isfinite(sink) || std::abs(sink) * std::numbers::log2e < limit;
  });
  if (std::max(1.0, most) * factor + farthest * std::numbers::log2e < limit && !spec.bias && small_sinks) return flags;
  parallel_for(std::ssize(rows), [&](std::int64_t r) {
    const std::vector<int> seen = seen_keys(spec, rows[r]);
    const double sink = sink_of(spec, rows[r]) * std::numbers::log2e;
    flags[r] = std::isfinite(sink) && (sink >= limit || (sink <= -limit && seen.empty()));
    if (seen.empty() || flags[r]) return;
    const std::vector<double> sums =
        products_of<double>(spec, visible_keys(spec, rows[r]), seen, &q_sizes[flat_index(spec, rows[r]) * spec.dim],
                            &k_sizes[kv_offset(spec, rows[r].batch, rows[r].head)]);
    flags[r] = std::max(1.0, std::ranges::max(sums)) * factor >= limit;
    if (flags[r] || !spec.changes_scores()) return;
    std::vector<double> least(sums.size()), most_of_row(sums.size());
    for (std::size_t n = 0; n < sums.size(); ++n) {
      most_of_row[n] = sums[n] * std::abs(spec.scale);
      least[n] = -most_of_row[n];
    }
    modify_scores(spec, rows[r], seen, least);
    modify_scores(spec, rows[r], seen, most_of_row);
    const auto finite_max = [](const std::vector<double>& scores) {
      double largest = -std::numeric_limits<double>::infinity();
      for (const double s : scores) largest = std::max(largest, std::isfinite(s) ? s : largest);
      return largest;
    };
    flags[r] = finite_max(most_of_row) * std::numbers::log2e >= limit ||
               std::max(finite_max(least) * std::numbers::log2e, sink) <= -limit;
  });
  return flags;
}

Forward forward(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const float> q, std::span<const float> k,
                std::span<const float> v) {
  return forward_in_double(spec, rows, Inputs<float>{q, k, v});
}

Forward forward(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const double> q, std::span<const double> k,
                std::span<const double> v) {
  return forward_in_double(spec, rows, Inputs<double>{q, k, v});
}

std::vector<float> baseline(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const float> q,
                            std::span<const float> k, std::span<const float> v, Round round) {
  return attend_rows<float>(spec, rows, Inputs<float>{q, k, v}, round).o;
}

Rounding fp32_rounding(const AttentionSpec& spec, const std::vector<Row>& rows, std::span<const float> q,
                       std::span<const float> k, std::span<const float> v, const Forward& truth, double smallest) {
  const Inputs<float> in{q, k, v};
  require_valid(spec, in);
  require_size(std::span<const double>(truth.o), std::ssize(rows) * spec.dim, "truth.o");
  require_size(std::span<const double>(truth.lse), std::ssize(rows), "truth.lse");
  const std::size_t elements = rows.size() * spec.dim;
  Rounding result{std::vector<double>(elements), std::vector<double>(elements), std::vector<std::uint8_t>(elements),
                  std::vector<double>(rows.size())};
  const std::vector<double> norms = norms_of_rows(spec, k);
  parallel_for(std::ssize(rows), [&](std::int64_t r) {
    if (!std::isfinite(truth.lse[r])) return;
    add_rounding(spec, rounded_scores(spec, rows[r], q, k, norms), v, &truth.o[r * spec.dim], truth.lse[r], smallest, r,
                 result);
  });
  return result;
}

ScoreRounding::ScoreRounding(const AttentionSpec& spec, std::span<const float> q, std::span<const float> k,
                             std::span<const float> v)
    : spec_(spec), q_(q), k_(k), v_(v), key_norms_(norms_of_rows(spec, k)) {
  require_valid(spec, Inputs<float>{q, k, v});
}

ScoreRounding::Outcomes ScoreRounding::outcomes(const Row& row, std::span<const double> o) const {
  const auto [head, seen, scores, errors, kept, sink] = rounded_scores(spec_, row, q_, k_, key_norms_);
  double heaviest = sink;  // the weights are relative to one that is there in any case
  for (std::size_t j = 0; j < scores.size(); ++j) heaviest = std::max(heaviest, scores[j] - errors[j]);
  Outcomes result;
  result.o.assign(o.begin(), o.end());
  for (std::size_t j = 0; j < scores.size(); ++j) {
    if (!std::isfinite(scores[j])) continue;
    constexpr double most = 600;  // beyond exp(600) a weight is as good as all there is, and does not overflow
    result.keys.push_back({std::exp(scores[j] - errors[j] - heaviest),
                           std::exp(std::min(scores[j] + errors[j] - heaviest, most)), kept[j],
                           &v_[head + static_cast<std::int64_t>(seen[j]) * spec_.dim]});
  }
  if (std::isfinite(sink)) {
    const double off = 4 * fp32_unit * std::abs(sink);
    result.keys.push_back({std::exp(sink - off - heaviest), std::exp(std::min(sink + off - heaviest, 600.0)), 0, nullptr});
  }
  return result;
}

// A weighted mean of numbers is largest where those above it have their largest weights and the others their smallest. So:
// choose the weights by the mean found so far, which can only raise it, until it stays (Dinkelbach 1967).
double ScoreRounding::Outcomes::reach(std::span<const double> direction) const {
  std::vector<std::size_t> columns;
  for (std::size_t d = 0; d < direction.size(); ++d) {
    if (direction[d] != 0) columns.push_back(d);
  }
  std::vector<double> along(keys.size());  // direction · (V_j − O), V_j with the factor of dropout
  for (std::size_t j = 0; j < keys.size(); ++j) {
    for (const std::size_t d : columns) {
      const double value = keys[j].kept > 0 ? keys[j].kept * keys[j].v[d] : 0;
      along[j] += direction[d] * (value - o[d]);
    }
  }
  double mean = 0;  // that of O
  for (;;) {
    double sum = 0, weights = 0;
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const double weight = along[j] > mean ? keys[j].high : keys[j].low;
      sum += weight * along[j];
      weights += weight;
    }
    if (!(sum / weights > mean * (1 + 1e-12))) return mean;
    mean = sum / weights;
  }
}

std::vector<double> linear(const LinearShape& shape, std::span<const float> x, std::span<const float> weight,
                           std::span<const float> bias) {
  return linear_in<double>(shape, x, weight, bias);
}

std::vector<float> linear_baseline(const LinearShape& shape, std::span<const float> x, std::span<const float> weight,
                                   std::span<const float> bias) {
  return linear_in<float>(shape, x, weight, bias);
}

LayerResult<double> layer(const LayerShape& shape, std::span<const float> x, const LayerWeights& weights) {
  return layer_in<double>(shape, x, weights, keep_double);
}

LayerResult<float> layer_baseline(const LayerShape& shape, std::span<const float> x, const LayerWeights& weights) {
  return layer_in<float>(shape, x, weights, keep_fp32);
}

}  // namespace reference
