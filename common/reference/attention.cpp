#include "common/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/reference/parts.h"
#include "common/reference/sample.h"

namespace reference {
namespace {

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

// Scores become probabilities, in place; returns their LSE.
template <class Real>
Real softmax(std::vector<Real>& scores) {
  const Real max = *std::max_element(scores.begin(), scores.end());
  Real sum = 0;
  for (Real& s : scores) {
    s = std::exp(s - max);
    sum += s;
  }
  for (Real& s : scores) s /= sum;
  return max + std::log(sum);
}

std::int64_t q_size(const AttentionSpec& spec) {
  return static_cast<std::int64_t>(spec.batch) * spec.heads * spec.seq_q * spec.dim;
}

std::int64_t kv_size(const AttentionSpec& spec) {
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
  require_size(in.q, q_size(spec), "q");
  require_size(in.k, kv_size(spec), "k");
  require_size(in.v, kv_size(spec), "v");
}

// Where the first key of a query head's key/value head lies in K and V.
std::int64_t kv_offset(const AttentionSpec& spec, int batch, int head) {
  const int kv_head = head / (spec.heads / spec.kv_heads);
  return (static_cast<std::int64_t>(batch) * spec.kv_heads + kv_head) * spec.seq_k * spec.dim;
}

// P [visible keys] of one row, which sees at least one key; returns its LSE.
template <class Real, class In>
Real probabilities(const AttentionSpec& spec, KeyRange keys, const In* q_row, const In* k_first, std::vector<Real>& p) {
  p.resize(keys.count());
  dots(q_row, k_first, keys.count(), spec.dim, p.data());
  for (Real& s : p) s *= static_cast<Real>(spec.scale);
  return softmax(p);
}

// One row of O [dim]; returns its LSE. The truth and the baseline differ in Real and in how they round, and in nothing else.
template <class Real, class In, class RoundTo>
Real attend(const AttentionSpec& spec, const Row& row, const Inputs<In>& in, const RoundTo& round, Real* o) {
  std::fill_n(o, spec.dim, Real{0});
  const KeyRange keys = visible_keys(spec, row.query);
  if (keys.empty()) return -std::numeric_limits<Real>::infinity();

  const std::int64_t first = kv_offset(spec, row.batch, row.head) + static_cast<std::int64_t>(keys.begin) * spec.dim;
  std::vector<Real> p;
  const Real lse = probabilities(spec, keys, &in.q[flat_index(spec, row) * spec.dim], &in.k[first], p);
  for (int j = 0; j < keys.count(); ++j) {
    add_scaled(round(p[j]), &in.v[first + static_cast<std::int64_t>(j) * spec.dim], spec.dim, o);
  }
  for (int d = 0; d < spec.dim; ++d) o[d] = round(o[d]);
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

constexpr auto keep_double = [](double x) { return x; };

template <class In>
Forward forward_in_double(const AttentionSpec& spec, const std::vector<Row>& rows, const Inputs<In>& in) {
  auto [o, lse] = attend_rows<double>(spec, rows, in, keep_double);
  return {std::move(o), std::move(lse)};
}

// The entries of fp32_rounding() for one row, whose O is given.
void add_rounding(const AttentionSpec& spec, const Row& row, const Inputs<float>& in, const std::vector<double>& key_norms,
                  const double* o, double& o_error, double& lse_error) {
  const KeyRange keys = visible_keys(spec, row.query);
  if (keys.empty()) return;
  const float* q_row = &in.q[flat_index(spec, row) * spec.dim];
  const std::int64_t first = kv_offset(spec, row.batch, row.head) + static_cast<std::int64_t>(keys.begin) * spec.dim;
  std::vector<double> p;
  probabilities(spec, keys, q_row, &in.k[first], p);

  const double per_norm = 0.5 * std::sqrt(spec.dim) * fp32_unit * std::abs(spec.scale) * norm(q_row, spec.dim);
  const double sum_error = std::sqrt(keys.count()) * fp32_unit;
  std::vector<double> errors(spec.dim, 0.0);
  for (int j = 0; j < keys.count(); ++j) {
    const double score_error = per_norm * key_norms[first / spec.dim + j];
    const double lost = p[j] < 2 * fp32_unit ? 1 : 0;
    const float* v_row = &in.v[first + static_cast<std::int64_t>(j) * spec.dim];
    for (int d = 0; d < spec.dim; ++d) {
      errors[d] += p[j] * (score_error * std::abs(v_row[d] - o[d]) + (sum_error + lost) * std::abs(v_row[d]));
    }
    lse_error += p[j] * score_error;
  }
  o_error = *std::max_element(errors.begin(), errors.end());
}

// What one query adds to the gradients. dk_first and dv_first are the gradients of its first visible key and value.
template <class In>
void add_gradients(const AttentionSpec& spec, KeyRange keys, const In* q_row, const In* k_first, const In* v_first,
                   const In* do_row, double* dq_row, double* dk_first, double* dv_first) {
  std::vector<double> p;
  probabilities(spec, keys, q_row, k_first, p);
  std::vector<double> dp(p.size());
  dots(do_row, v_first, keys.count(), spec.dim, dp.data());
  double row_sum = 0;  // D of the papers: equal to rowsum(dO ∘ O)
  for (int j = 0; j < keys.count(); ++j) row_sum += p[j] * dp[j];
  for (int j = 0; j < keys.count(); ++j) {
    const double ds = spec.scale * p[j] * (dp[j] - row_sum);
    const std::int64_t key = static_cast<std::int64_t>(j) * spec.dim;
    add_scaled(ds, k_first + key, spec.dim, dq_row);
    add_scaled(ds, q_row, spec.dim, dk_first + key);
    add_scaled(p[j], do_row, spec.dim, dv_first + key);
  }
}

template <class In>
Gradients backward_in_double(const AttentionSpec& spec, const Inputs<In>& in, std::span<const In> d_o) {
  require_valid(spec, in);
  require_size(d_o, q_size(spec), "d_o");
  Gradients grad{std::vector<double>(in.q.size()), std::vector<double>(in.k.size()), std::vector<double>(in.v.size())};
  const int group = spec.heads / spec.kv_heads;

  // One key/value head at a time owns its dK and dV; the queries that share it follow one another.
  parallel_for(static_cast<std::int64_t>(spec.batch) * spec.kv_heads, [&](std::int64_t kv) {
    const int batch = static_cast<int>(kv / spec.kv_heads);
    const int first_head = static_cast<int>(kv % spec.kv_heads) * group;
    for (int head = first_head; head < first_head + group; ++head) {
      for (int query = 0; query < spec.seq_q; ++query) {
        const KeyRange keys = visible_keys(spec, query);
        if (keys.empty()) continue;
        const std::int64_t q = flat_index(spec, {batch, head, query}) * spec.dim;
        const std::int64_t k = kv_offset(spec, batch, head) + static_cast<std::int64_t>(keys.begin) * spec.dim;
        add_gradients(spec, keys, &in.q[q], &in.k[k], &in.v[k], &d_o[q], &grad.dq[q], &grad.dk[k], &grad.dv[k]);
      }
    }
  });
  return grad;
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

KeyRange visible_keys(const AttentionSpec& spec, int query) {
  const std::int64_t position = static_cast<std::int64_t>(query) + spec.seq_k - spec.seq_q;  // the query's own key
  std::int64_t begin = 0;
  std::int64_t end = spec.seq_k;
  if (spec.causal) end = std::min(end, position + 1);
  if (spec.window > 0) {
    begin = std::max(begin, position - spec.window + 1);
    end = std::min(end, position + spec.window);
  }
  if (begin >= end) return {};
  return {static_cast<int>(begin), static_cast<int>(end)};
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
  Sampler sampler(spec.seq_q, per_head, seed, spec.causal ? spec.seq_q - spec.seq_k : 0);
  std::vector<Row> rows;
  for (int batch = 0; batch < spec.batch; ++batch) {
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
    const KeyRange range = visible_keys(spec, rows[r].query);
    if (range.empty()) continue;
    const std::int64_t first = kv_offset(spec, rows[r].batch, rows[r].head) / spec.dim;
    flags[r] = bad(q, flat_index(spec, rows[r])) || bad_before[first + range.end] > bad_before[first + range.begin];
  }
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
                       std::span<const float> k, std::span<const float> v, const Forward& truth) {
  const Inputs<float> in{q, k, v};
  require_valid(spec, in);
  require_size(std::span<const double>(truth.o), std::ssize(rows) * spec.dim, "truth.o");
  std::vector<double> key_norms(k.size() / spec.dim);
  for (std::size_t key = 0; key < key_norms.size(); ++key) key_norms[key] = norm(&k[key * spec.dim], spec.dim);
  Rounding result{std::vector<double>(rows.size()), std::vector<double>(rows.size())};
  parallel_for(std::ssize(rows), [&](std::int64_t r) {
    add_rounding(spec, rows[r], in, key_norms, &truth.o[r * spec.dim], result.o[r], result.lse[r]);
  });
  return result;
}

Gradients backward(const AttentionSpec& spec, std::span<const float> q, std::span<const float> k, std::span<const float> v,
                   std::span<const float> d_o) {
  return backward_in_double(spec, Inputs<float>{q, k, v}, d_o);
}

Gradients backward(const AttentionSpec& spec, std::span<const double> q, std::span<const double> k, std::span<const double> v,
                   std::span<const double> d_o) {
  return backward_in_double(spec, Inputs<double>{q, k, v}, d_o);
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
