#include "common/reference/backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/reference/attention_parts.h"
#include "common/reference/dropout.h"
#include "common/reference/sample.h"

namespace reference {
namespace {

constexpr double largest_float = std::numeric_limits<float>::max();
// Smaller numbers are 0 on a GPU: in ex2 (.ftz), in red, and as operands of mma.
constexpr double smallest_float = std::numeric_limits<float>::min();

int group_of(const AttentionSpec& spec) { return spec.heads / spec.kv_heads; }

template <class In>
struct BackwardInputs : Inputs<In> {
  std::span<const In> d_o;
};

template <class In>
void require_valid_backward(const AttentionSpec& spec, const BackwardInputs<In>& in) {
  require_valid<In>(spec, in);
  require(!spec.changes_scores() && spec.sinks.empty() && spec.lengths.empty(), "of options of scores there are no gradients");
  require_size(in.d_o, q_size(spec), "d_o");
}

void require_stored(const AttentionSpec& spec, std::span<const float> o, std::span<const float> lse) {
  require_size(o, q_size(spec), "o");
  require_size(lse, q_size(spec) / spec.dim, "lse");
}

// One query with the keys that it sees, or one key with the queries of one head that see it.
template <class Real>
struct Pairs {
  std::int64_t query = 0;  // the only one, or query 0 of the head: its row of Q
  std::int64_t key = 0;    // the only one, or key 0 of the head: its row of K
  std::vector<int> seen;   // [pairs], the keys, or the queries
  std::vector<Real> s;     // [pairs], scaled
  std::vector<Real> dp;    // [pairs], of P before dropout
  std::vector<Real> kept;  // [pairs], what dropout multiplies P by

  std::int64_t key_of(std::size_t pair) const { return key + seen[pair]; }      // of one query
  std::int64_t query_of(std::size_t pair) const { return query + seen[pair]; }  // of one key

  void drop(double weight) {  // of the next pair
    kept.push_back(static_cast<Real>(weight));
    if (weight != 1) dp[kept.size() - 1] *= kept.back();
  }
};

template <class Real, class In>
Pairs<Real> pairs_of(const AttentionSpec& spec, const BackwardInputs<In>& in, const Row& row) {
  Pairs<Real> pairs{.query = flat_index(spec, row),
                    .key = kv_offset(spec, row.batch, row.head) / spec.dim,
                    .seen = seen_keys(spec, row),
                    .s = {},
                    .dp = {},
                    .kept = {}};
  if (pairs.seen.empty()) return pairs;
  const KeyRange range = visible_keys(spec, row.query);
  pairs.s = scores_of<Real>(spec, range, pairs.seen, &in.q[pairs.query * spec.dim], &in.k[pairs.key * spec.dim]);
  pairs.dp = products_of<Real>(spec, range, pairs.seen, &in.d_o[pairs.query * spec.dim], &in.v[pairs.key * spec.dim]);
  for (const int j : pairs.seen) pairs.drop(kept_weight(spec, row.batch, row.head, row.query, j));
  return pairs;
}

template <class Real, class In>
Pairs<Real> pairs_of(const AttentionSpec& spec, const BackwardInputs<In>& in, const KeyRow& row, int head) {
  Pairs<Real> pairs{.query = flat_index(spec, Row{row.batch, head, 0}),
                    .key = flat_index(spec, row),
                    .seen = seeing_queries(spec, row, head),
                    .s = {},
                    .dp = {},
                    .kept = {}};
  if (pairs.seen.empty()) return pairs;
  const QueryRange queries = queries_seeing(spec, row.key);
  const KeyRange range{queries.begin, queries.end};
  pairs.s = scores_of<Real>(spec, range, pairs.seen, &in.k[pairs.key * spec.dim], &in.q[pairs.query * spec.dim]);
  pairs.dp = products_of<Real>(spec, range, pairs.seen, &in.v[pairs.key * spec.dim], &in.d_o[pairs.query * spec.dim]);
  for (const int i : pairs.seen) pairs.drop(kept_weight(spec, row.batch, head, i, row.key));
  return pairs;
}

// Calls body(head) for each query head that reads the key's head.
template <class Body>
void for_each_head_of(const AttentionSpec& spec, const KeyRow& row, const Body& body) {
  const int first = row.kv_head * group_of(spec);
  for (int head = first; head < first + group_of(spec); ++head) body(head);
}

// ---- the truth ----

// What the keys need to know of a query.
struct QuerySums {
  Softmax<double> softmax;
  double d = 0;  // D of the papers: equal to rowsum(dO ∘ O)
};

// Scores become probabilities, in place.
QuerySums sum_up(Pairs<double>& pairs) {
  QuerySums sums{exponentials(pairs.s)};
  if (sums.softmax.empty()) return sums;
  for (std::size_t j = 0; j < pairs.s.size(); ++j) {
    pairs.s[j] /= sums.softmax.sum;
    sums.d += pairs.s[j] * pairs.dp[j];
  }
  return sums;
}

// The sums of all queries that read the key/value heads of some keys.
class SumsOfHeads {
 public:
  template <class In>
  SumsOfHeads(const AttentionSpec& spec, const std::vector<KeyRow>& keys, const BackwardInputs<In>& in)
      : spec_(spec), slots_(static_cast<std::size_t>(spec.batch) * spec.heads, -1) {
    std::vector<Row> heads;
    for (const KeyRow& row : keys) {
      for_each_head_of(spec, row, [&](int head) {
        std::int64_t& slot = slots_[row.batch * spec.heads + head];
        if (slot >= 0) return;
        slot = std::ssize(heads);
        heads.push_back({row.batch, head, 0});
      });
    }
    sums_.resize(heads.size() * spec.seq_q);
    parallel_for(std::ssize(sums_), [&](std::int64_t i) {
      Row row = heads[i / spec.seq_q];
      row.query = static_cast<int>(i % spec.seq_q);
      Pairs<double> pairs = pairs_of<double>(spec, in, row);
      sums_[i] = sum_up(pairs);
    });
  }
  const QuerySums& of(std::int64_t query) const {  // a row of Q
    return sums_[slots_[query / spec_.seq_q] * spec_.seq_q + query % spec_.seq_q];
  }

 private:
  const AttentionSpec& spec_;
  std::vector<std::int64_t> slots_;  // [batch, heads]; −1: no key needs that head
  std::vector<QuerySums> sums_;      // [slots, seq_q]
};

template <class In>
Gradients backward_in_double(const AttentionSpec& spec, const BackwardRows& rows, const BackwardInputs<In>& in) {
  require_valid_backward(spec, in);
  const std::int64_t dim = spec.dim;
  Gradients grad{std::vector<double>(rows.queries.size() * dim), std::vector<double>(rows.keys.size() * dim),
                 std::vector<double>(rows.keys.size() * dim)};
  parallel_for(std::ssize(rows.queries), [&](std::int64_t r) {
    Pairs<double> pairs = pairs_of<double>(spec, in, rows.queries[r]);
    const QuerySums sums = sum_up(pairs);
    if (sums.softmax.empty()) return;
    for (std::size_t j = 0; j < pairs.s.size(); ++j) {
      const double ds = spec.scale * pairs.s[j] * (pairs.dp[j] - sums.d);
      add_scaled(ds, &in.k[pairs.key_of(j) * dim], spec.dim, &grad.dq[r * dim]);
    }
  });
  const SumsOfHeads all_sums(spec, rows.keys, in);
  parallel_for(std::ssize(rows.keys), [&](std::int64_t r) {
    for_each_head_of(spec, rows.keys[r], [&](int head) {
      const Pairs<double> pairs = pairs_of<double>(spec, in, rows.keys[r], head);
      for (std::size_t i = 0; i < pairs.s.size(); ++i) {
        const QuerySums& sums = all_sums.of(pairs.query_of(i));
        if (sums.softmax.empty()) continue;
        const double p = sums.softmax.probability(pairs.s[i]);
        add_scaled(spec.scale * p * (pairs.dp[i] - sums.d), &in.q[pairs.query_of(i) * dim], spec.dim, &grad.dk[r * dim]);
        add_scaled(p * pairs.kept[i], &in.d_o[pairs.query_of(i) * dim], spec.dim, &grad.dv[r * dim]);
      }
    });
  });
  return grad;
}

// ---- rounding ----

// Rows of dim elements that hold a NaN or an infinity.
std::vector<std::uint8_t> odd_rows(const AttentionSpec& spec, std::span<const float> tensor) {
  std::vector<std::uint8_t> odd(tensor.size() / spec.dim);
  for (std::size_t i = 0; i < tensor.size(); ++i) odd[i / spec.dim] |= !std::isfinite(tensor[i]);
  return odd;
}

// What rounding does to one pair.
struct PairErrors {
  double p = 0, ds = 0;              // from O and LSE as stored, unscaled
  double p_error = 0, ds_error = 0;  // in fp32, and by the format's smallest numbers
  bool lost = false;
  bool may_overflow = false;  // dS
  bool skipped = false;       // LSE is −∞
};

class ErrorModel {
 public:
  ErrorModel(const AttentionSpec& spec, const BackwardInputs<float>& in, std::span<const float> o, std::span<const float> lse,
             const Format& format)
      : spec_(spec),
        lse_(lse),
        format_(format),
        factor_(256.0 / (256 - spec.dropout)),
        q_norms_(norms_of_rows(spec, in.q)),
        k_norms_(norms_of_rows(spec, in.k)),
        v_norms_(norms_of_rows(spec, in.v)),
        do_norms_(norms_of_rows(spec, in.d_o)),
        o_norms_(norms_of_rows(spec, o)),
        d_(lse.size()) {
    parallel_for(std::ssize(d_), [&](std::int64_t i) { dots(&in.d_o[i * spec.dim], &o[i * spec.dim], 1, spec.dim, &d_[i]); });
  }

  PairErrors of(std::int64_t query, std::int64_t key, double s, double dp, double kept) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    PairErrors pair;
    const double lse = lse_[query];
    pair.skipped = lse == -infinity;
    if (pair.skipped) return pair;
    const double walk = std::sqrt(spec_.dim + 2.0) * fp32_unit, lost_in_sums = spec_.dim * smallest_float;
    const double rho = std::abs(spec_.scale) * (walk * q_norms_[query] * k_norms_[key] + lost_in_sums) +
                       base_2_roundings * fp32_unit * std::abs(lse) + 4 * fp32_unit;
    const double capped = std::min(rho, 600.0);  // so that exp() is a number
    const double noise =
        walk * do_norms_[query] * (kept * v_norms_[key] + o_norms_[query]) + lost_in_sums * std::max(1.0, kept);
    pair.p = s == -infinity ? 0 : std::exp(s - lse);
    pair.ds = pair.p * (dp - d_[query]);
    pair.lost = rho > 0.25 && pair.p * std::exp(capped) > 0x1p-10;
    const double p_fp32 = pair.p * std::expm1(capped);
    // D = rowsum(P ∘ dP) has the errors of P, which do not cancel those of dP.
    const double by_p = pair.p * std::expm1(capped) * (std::abs(dp) + std::abs(d_[query]));
    const double ds_fp32 = pair.p * std::exp(capped) * noise + by_p + 2 * fp32_unit * std::abs(pair.ds) + smallest_float;
    // Below the format's smallest numbers P and dS are lost, P also on its way into dS, and dS may be scaled before. P may be
    // rounded on that way, too.
    const double smallest = std::max(format_.smallest / 2, smallest_float);
    const double lost_of_p = std::min(smallest, pair.p + p_fp32);
    const double lost_of_ds = smallest * std::max(1.0, 1 / std::abs(spec_.scale)) * factor_;
    pair.p_error = p_fp32 + lost_of_p;
    pair.ds_error = ds_fp32 + lost_of_p * std::abs(dp - d_[query]) + format_.unit * std::abs(pair.ds);
    pair.ds_error += std::min(lost_of_ds, std::abs(pair.ds) + pair.ds_error);
    pair.may_overflow = !std::isfinite(d_[query]) ||
                        do_norms_[query] * std::max(factor_ * v_norms_[key], o_norms_[query]) >= largest_float ||
                        (std::abs(pair.ds) + pair.ds_error) * std::max(1.0, std::abs(spec_.scale)) >= format_.largest;
    return pair;
  }

 private:
  const AttentionSpec& spec_;
  std::span<const float> lse_;
  Format format_;
  double factor_;  // of dropout: P and dS may be multiplied by it before or behind the sums
  std::vector<double> q_norms_, k_norms_, v_norms_, do_norms_, o_norms_;
  std::vector<double> d_;  // D from O as stored, in double
};

// The errors of the sums Σ weight · x in one row, x [dim].
class SumErrors {
 public:
  explicit SumErrors(int dim) : squares_(dim), errors_(dim), bias_(dim), plain_(dim), stored_(dim) {}

  // Errors are taken from x − centre [dim], or from x where there is none.
  void add(double weight, double error, const float* x, const double* centre = nullptr) {
    ++terms_;
    for (std::size_t d = 0; d < stored_.size(); ++d) {
      const double value = x[d], apart = centre ? value - centre[d] : value;
      stored_[d] += weight * value;
      if (!std::isfinite(apart)) continue;
      const double moved = error * apart, size = (std::abs(weight) + error) * apart;
      squares_[d] += size * size;
      errors_[d] += moved * moved;
      bias_[d] += moved;
      plain_[d] += (std::abs(weight) + error) * std::abs(value);
    }
  }

  // Row r of the result; factor: what the sums are multiplied by.
  void finish(std::int64_t r, double factor, const std::vector<double>& truth, bool terms_may_overflow, SumRounding& result) {
    const double times = std::abs(factor), at_least_1 = std::max(1.0, times);
    const auto finite = [](double x) { return std::isfinite(x) ? x : 0; };
    for (std::size_t d = 0; d < stored_.size(); ++d) {
      const std::size_t at = r * stored_.size() + d;
      result.size[at] = std::max(std::abs(truth[at]), finite(times * std::sqrt(squares_[d])));
      result.sum[at] = finite(
          times * (std::sqrt(errors_[d]) + std::abs(bias_[d]) + std::sqrt(terms_) * (fp32_unit * plain_[d] + smallest_float)));
      result.stored[at] = finite(factor * stored_[d] - truth[at]);
      result.may_overflow[at] = terms_may_overflow || plain_[d] * at_least_1 >= largest_float;
    }
  }

 private:
  double terms_ = 0;
  std::vector<double> squares_, errors_, bias_, plain_, stored_;
};

SumRounding make_rounding(std::size_t elements) {
  return {std::vector<double>(elements), std::vector<double>(elements), std::vector<double>(elements),
          std::vector<std::uint8_t>(elements)};
}

// Where the rows of the inputs lie that hold a NaN or an infinity.
struct OddRows {
  std::vector<std::uint8_t> q, k, v, d_o;
};

void round_query(const AttentionSpec& spec, const BackwardInputs<float>& in, const ErrorModel& model, const OddRows& odd,
                 const Row& row, std::int64_t r, const Gradients& truth, const Format& format, GradientRounding& result) {
  const Pairs<double> pairs = pairs_of<double>(spec, in, row);
  const std::size_t keys = pairs.s.size(), dim = spec.dim;
  double* mean = &result.mean_key[r * dim];
  std::vector<PairErrors> errors(keys);
  bool may_overflow = false;
  double weights = 0, biases = 0, squares = 0;
  for (std::size_t j = 0; j < keys; ++j) {
    const PairErrors& pair = errors[j] = model.of(pairs.query, pairs.key_of(j), pairs.s[j], pairs.dp[j], pairs.kept[j]);
    may_overflow |= pair.may_overflow;
    // 0 · NaN, or nothing: a query whose LSE is −∞ may be skipped.
    if (pair.skipped) may_overflow |= odd.d_o[pairs.query] || odd.k[pairs.key_of(j)] || odd.v[pairs.key_of(j)];
    result.lost_queries[r] |= pair.lost;
    weights += pair.p;
    biases += pair.ds_error;
    squares += pair.ds * pair.ds;
    for (std::size_t d = 0; d < dim; ++d) {
      const double k = in.k[pairs.key_of(j) * dim + d];
      if (std::isfinite(k)) mean[d] += pair.p * k;
    }
  }
  for (std::size_t d = 0; d < dim; ++d) mean[d] = weights > 0 && std::isfinite(mean[d] / weights) ? mean[d] / weights : 0;
  SumErrors sums(spec.dim);
  for (std::size_t j = 0; j < keys; ++j) {
    sums.add(errors[j].ds, errors[j].ds_error, &in.k[pairs.key_of(j) * dim], mean);
  }
  sums.finish(r, spec.scale, truth.dq, may_overflow, result.dq);
  const double along = std::abs(spec.scale) * (biases + 2 * format.unit * std::sqrt(squares));
  result.along[r] = std::isfinite(along) ? along : 0;
}

void round_key(const AttentionSpec& spec, const BackwardInputs<float>& in, const ErrorModel& model, const OddRows& odd,
               const KeyRow& row, std::int64_t r, const Gradients& truth, GradientRounding& result) {
  const std::int64_t dim = spec.dim;
  SumErrors dk(spec.dim), dv(spec.dim);
  bool dk_may_overflow = false, dv_may_overflow = false;
  for_each_head_of(spec, row, [&](int head) {
    const Pairs<double> pairs = pairs_of<double>(spec, in, row, head);
    for (std::size_t i = 0; i < pairs.s.size(); ++i) {
      const std::int64_t query = pairs.query_of(i);
      const PairErrors pair = model.of(query, pairs.key, pairs.s[i], pairs.dp[i], pairs.kept[i]);
      if (pair.skipped) {
        dk_may_overflow |= odd.q[query] || odd.d_o[query] || odd.v[pairs.key];
        dv_may_overflow |= odd.d_o[query];
        continue;
      }
      dk_may_overflow |= pair.may_overflow;
      result.lost_keys[r] |= pair.lost;
      dk.add(pair.ds, pair.ds_error, &in.q[query * dim]);
      dv.add(pair.p * pairs.kept[i], pair.p_error * pairs.kept[i], &in.d_o[query * dim]);
    }
  });
  dk.finish(r, spec.scale, truth.dk, dk_may_overflow, result.dk);
  dv.finish(r, 1, truth.dv, dv_may_overflow, result.dv);
}

}  // namespace

std::string to_string(const KeyRow& row) {
  return "batch " + std::to_string(row.batch) + ", kv head " + std::to_string(row.kv_head) + ", key " + std::to_string(row.key);
}

std::int64_t flat_index(const AttentionSpec& spec, const KeyRow& row) {
  return (static_cast<std::int64_t>(row.batch) * spec.kv_heads + row.kv_head) * spec.seq_k + row.key;
}

std::vector<int> seeing_queries(const AttentionSpec& spec, const KeyRow& row, int head) {
  const QueryRange range = queries_seeing(spec, row.key);
  std::vector<int> queries;
  queries.reserve(range.count());
  for (int i = range.begin; i < range.end; ++i) {
    if (!spec.sees || spec.sees(row.batch, head, i, row.key)) queries.push_back(i);
  }
  return queries;
}

bool is_unseen(const AttentionSpec& spec, const KeyRow& row) {
  const int group = spec.heads / spec.kv_heads;
  for (int head = row.kv_head * group; head < (row.kv_head + 1) * group; ++head) {
    if (!seeing_queries(spec, row, head).empty()) return false;
  }
  return true;
}

QueryRange queries_seeing(const AttentionSpec& spec, int key) {
  const std::int64_t beside = static_cast<std::int64_t>(key) + spec.seq_q - spec.seq_k;  // the query whose own key it is
  const KeyRange sequence = sequence_of(spec, key);
  std::int64_t begin = sequence.begin;
  std::int64_t end = spec.cu_seqlens.empty() ? spec.seq_q : sequence.end;
  if (spec.causal) begin = std::max(begin, beside);
  if (spec.window > 0) {
    begin = std::max(begin, beside - spec.window + 1);
    end = std::min(end, beside + spec.window);
  }
  if (begin >= end) return {};
  return {static_cast<int>(begin), static_cast<int>(end)};
}

BackwardRows all_backward_rows(const AttentionSpec& spec) {
  BackwardRows rows{all_rows(spec), {}};
  for (int batch = 0; batch < spec.batch; ++batch) {
    for (int kv_head = 0; kv_head < spec.kv_heads; ++kv_head) {
      for (int key = 0; key < spec.seq_k; ++key) rows.keys.push_back({batch, kv_head, key});
    }
  }
  return rows;
}

BackwardRows sample_backward_rows(const AttentionSpec& spec, double most_flops, int per_head, std::uint64_t seed) {
  BackwardRows rows{sample_rows(spec, per_head, seed), {}};
  double pairs = 0;
  for (int query = 0; query < spec.seq_q; ++query) pairs += visible_keys(spec, query).count();
  const double flops = std::max(4.0 * spec.dim * pairs * group_of(spec), 1.0);
  const std::int64_t heads = static_cast<std::int64_t>(spec.batch) * spec.kv_heads;
  const auto sampled = std::min(heads, static_cast<std::int64_t>(std::clamp(most_flops / flops, 2.0, 1e9)));
  const bool all_keys = spec.seq_k <= std::max(per_head, least_sample);
  std::set<int> keys;
  // The last key that the first query sees is always looked at.
  Sampler sampler(spec.seq_k, per_head, seed + 1, spec.causal ? std::clamp(spec.seq_k - spec.seq_q, 0, spec.seq_k - 1) : 0);
  for (int key = 0; all_keys && key < spec.seq_k; ++key) keys.insert(key);
  for (std::int64_t n = 0; n < sampled; ++n) {
    const std::int64_t head = sampled == 1 ? 0 : n * (heads - 1) / (sampled - 1);
    if (!all_keys) keys = sampler.next();
    for (const int key : keys) {
      rows.keys.push_back({static_cast<int>(head / spec.kv_heads), static_cast<int>(head % spec.kv_heads), key});
    }
  }
  return rows;
}

Gradients backward(const AttentionSpec& spec, const BackwardRows& rows, std::span<const float> q, std::span<const float> k,
                   std::span<const float> v, std::span<const float> d_o) {
  return backward_in_double(spec, rows, BackwardInputs<float>{{q, k, v}, d_o});
}

Gradients backward(const AttentionSpec& spec, const BackwardRows& rows, std::span<const double> q, std::span<const double> k,
                   std::span<const double> v, std::span<const double> d_o) {
  return backward_in_double(spec, rows, BackwardInputs<double>{{q, k, v}, d_o});
}

Gradients backward(const AttentionSpec& spec, std::span<const float> q, std::span<const float> k, std::span<const float> v,
                   std::span<const float> d_o) {
  return backward(spec, all_backward_rows(spec), q, k, v, d_o);
}

Gradients backward(const AttentionSpec& spec, std::span<const double> q, std::span<const double> k, std::span<const double> v,
                   std::span<const double> d_o) {
  return backward(spec, all_backward_rows(spec), q, k, v, d_o);
}

GradientsBaseline backward_baseline(const AttentionSpec& spec, const BackwardRows& rows, std::span<const float> q,
                                    std::span<const float> k, std::span<const float> v, std::span<const float> d_o,
                                    std::span<const float> o, std::span<const float> lse, Round round) {
  const BackwardInputs<float> in{{q, k, v}, d_o};
  require_valid_backward(spec, in);
  require_stored(spec, o, lse);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::int64_t dim = spec.dim;
  const auto scale = static_cast<float>(spec.scale);
  std::vector<float> d(lse.size());
  parallel_for(std::ssize(d), [&](std::int64_t i) { dots(&d_o[i * dim], &o[i * dim], 1, spec.dim, &d[i]); });

  GradientsBaseline grad{std::vector<float>(rows.queries.size() * dim), std::vector<float>(rows.keys.size() * dim),
                         std::vector<float>(rows.keys.size() * dim)};
  const auto finish = [&](std::vector<float>& tensor, std::int64_t row, float factor) {
    for (std::int64_t i = row * dim; i < (row + 1) * dim; ++i) tensor[i] = round(factor * tensor[i]);
  };
  parallel_for(std::ssize(rows.queries), [&](std::int64_t r) {
    const Pairs<float> pairs = pairs_of<float>(spec, in, rows.queries[r]);
    if (pairs.s.empty() || lse[pairs.query] == -infinity) return;
    for (std::size_t j = 0; j < pairs.s.size(); ++j) {
      const float p = std::exp(pairs.s[j] - lse[pairs.query]);
      add_scaled(round(p * (pairs.dp[j] - d[pairs.query])), &k[pairs.key_of(j) * dim], spec.dim, &grad.dq[r * dim]);
    }
    finish(grad.dq, r, scale);
  });
  parallel_for(std::ssize(rows.keys), [&](std::int64_t r) {
    for_each_head_of(spec, rows.keys[r], [&](int head) {
      const Pairs<float> pairs = pairs_of<float>(spec, in, rows.keys[r], head);
      for (std::size_t i = 0; i < pairs.s.size(); ++i) {
        const std::int64_t query = pairs.query_of(i);
        if (lse[query] == -infinity) continue;
        const float p = std::exp(pairs.s[i] - lse[query]);
        add_scaled(round(p * (pairs.dp[i] - d[query])), &q[query * dim], spec.dim, &grad.dk[r * dim]);
        add_scaled(round(p) * pairs.kept[i], &d_o[query * dim], spec.dim, &grad.dv[r * dim]);
      }
    });
    finish(grad.dk, r, scale);
    finish(grad.dv, r, 1);
  });
  return grad;
}

GradientRounding backward_rounding(const AttentionSpec& spec, const BackwardRows& rows, std::span<const float> q,
                                   std::span<const float> k, std::span<const float> v, std::span<const float> d_o,
                                   std::span<const float> o, std::span<const float> lse, const Gradients& truth,
                                   const Format& format) {
  const BackwardInputs<float> in{{q, k, v}, d_o};
  require_valid_backward(spec, in);
  require_stored(spec, o, lse);
  const std::size_t queries = rows.queries.size(), keys = rows.keys.size(), dim = spec.dim;
  require_size(std::span<const double>(truth.dq), queries * dim, "truth.dq");
  require_size(std::span<const double>(truth.dk), keys * dim, "truth.dk");
  require_size(std::span<const double>(truth.dv), keys * dim, "truth.dv");
  GradientRounding result{make_rounding(queries * dim),       make_rounding(keys * dim),    make_rounding(keys * dim),
                          std::vector<double>(queries * dim), std::vector<double>(queries), std::vector<std::uint8_t>(queries),
                          std::vector<std::uint8_t>(keys)};
  const ErrorModel model(spec, in, o, lse, format);
  const OddRows odd{odd_rows(spec, q), odd_rows(spec, k), odd_rows(spec, v), odd_rows(spec, d_o)};
  parallel_for(std::ssize(rows.queries),
               [&](std::int64_t r) { round_query(spec, in, model, odd, rows.queries[r], r, truth, format, result); });
  parallel_for(std::ssize(rows.keys), [&](std::int64_t r) { round_key(spec, in, model, odd, rows.keys[r], r, truth, result); });
  return result;
}

}  // namespace reference
