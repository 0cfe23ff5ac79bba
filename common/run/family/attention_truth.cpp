#include "common/run/family/attention_truth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "common/run/family/baseline_rounding.h"

namespace run {
namespace {

using check::RowRule;
using problem::Dtype;
using problem::Tensor;

// Comparing all rows costs about this many FLOPs twice, in double and in fp32, at some 2 GFLOP/s a core.
constexpr double most_flops_for_all_rows = 2e9;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

// Neither a key nor a sink.
bool is_empty(const reference::AttentionSpec& spec, const reference::Row& row) {
  return (spec.sinks.empty() || spec.sinks[row.head] == -infinity) && reference::sees_nothing(spec, row);
}

// What is asked of the rows that are compared. A row with a NaN among its scores has one whatever else overflows.
std::vector<RowRule> compared_rules(const reference::AttentionSpec& spec, const std::vector<reference::Row>& rows,
                                    const reference::Forward& truth, std::span<const float> q, std::span<const float> k) {
  const auto overflow = reference::scores_may_overflow(spec, rows, q, k);
  std::vector<RowRule> rules(rows.size(), RowRule::compare);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (overflow[r] && !std::isnan(truth.lse[r])) rules[r] = RowRule::written;
    if (is_empty(spec, rows[r])) rules[r] = RowRule::empty;
  }
  return rules;
}

// What is asked of all rows, without a truth: none is NaN or infinite unless it sees such a thing, or may overflow.
std::vector<RowRule> written_rules(const problem::Attention& shape, const reference::AttentionSpec& spec,
                                   const problem::AttentionInputs& in) {
  const auto rows = reference::all_rows(spec);
  const auto odd = reference::sees_non_finite(spec, rows, in.q.values, in.k.values, in.v.values);
  const auto overflow = reference::scores_may_overflow(spec, rows, in.q.values, in.k.values);
  const double kept = (256.0 - spec.dropout) / 256;  // what is kept of P is divided by that
  const double limit = (shape.dtype == Dtype::fp16 ? 0x1p15 : 0x1p118 / spec.seq_k) * kept;
  const bool large = std::any_of(in.v.values.begin(), in.v.values.end(), [&](float x) { return std::abs(x) > limit; });
  std::vector<RowRule> rules(rows.size(), RowRule::compare);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (large || odd[r] || overflow[r]) rules[r] = RowRule::written;
    if (is_empty(spec, rows[r])) rules[r] = RowRule::empty;
  }
  return rules;
}

// Of O: what its elements may be, given what is kept of truth, baseline and rounding. The outcomes of a row are kept from one
// call to the next.
check::Expected expected_o(const reference::Forward& truth, const std::vector<float>& baseline,
                           const reference::Rounding& rounding, const reference::ScoreRounding& scores,
                           const std::vector<reference::Row>& rows, std::int64_t dim) {
  check::Expected expected{truth.o, baseline, rounding.size, rounding.sum, rounding.may_overflow};
  expected.nan_for_infinity = true;  // a probability may round to 0
  struct Kept {
    std::int64_t row = -1;
    reference::ScoreRounding::Outcomes outcomes;
  };
  expected.reach = [&, dim, kept = Kept{}](std::int64_t row, std::span<const double> direction) mutable {
    if (kept.row != row) kept = {row, scores.outcomes(rows[row], std::span(truth.o).subspan(row * dim, dim))};
    return kept.outcomes.reach(direction);
  };
  return expected;
}

// Q, K and V of the layer as the attention inside it meets them, rounded to fp32.
problem::AttentionInputs projected(const reference::AttentionSpec& spec, const LayerInputs& in) {
  const std::int64_t seq = spec.seq_q, dim = spec.dim, width = spec.heads * dim;
  const reference::LinearShape linear{spec.batch * spec.seq_q, spec.heads * spec.dim, 3 * spec.heads * spec.dim};
  const auto qkv = reference::linear(linear, in.x.values, in.in_proj_weight.values,
                                     in.in_proj_bias.values);  // [tokens, 3, heads, dim]
  const Tensor empty({spec.batch, spec.heads, seq, dim});
  problem::AttentionInputs parts{empty, empty, empty};
  for (const reference::Row& row : reference::all_rows(spec)) {
    const double* q = &qkv[(row.batch * seq + row.query) * 3 * width + row.head * dim];
    const std::int64_t at = reference::flat_index(spec, row) * dim;
    std::copy_n(q, dim, &parts.q.values[at]);
    std::copy_n(q + width, dim, &parts.k.values[at]);
    std::copy_n(q + 2 * width, dim, &parts.v.values[at]);
  }
  return parts;
}

bool all_finite(const Tensor& tensor) {
  return std::all_of(tensor.values.begin(), tensor.values.end(), [](float x) { return std::isfinite(x); });
}

double largest_size(const Tensor& tensor) {
  double largest = 0;
  for (const float x : tensor.values) largest = std::max(largest, std::isfinite(x) ? std::abs(static_cast<double>(x)) : 0);
  return largest;
}

}  // namespace

reference::AttentionSpec spec_of(const problem::Attention& a) {
  reference::AttentionSpec spec{.batch = a.batch,
                                .heads = a.heads,
                                .kv_heads = a.kv_heads,
                                .seq_q = a.seq_q,
                                .seq_k = a.seq_k,
                                .dim = a.dim,
                                .causal = a.causal,
                                .window = a.window,
                                .scale = *a.scale,
                                .cu_seqlens = a.cu_seqlens,
                                .dropout = a.dropout,
                                .dropout_seed = a.dropout_seed,
                                .softcap = a.softcap,
                                .alibi = a.alibi,
                                .sinks = a.sinks ? a.sinks->values : std::vector<float>(),
                                .lengths = a.lengths};
  if (a.bias) {
    spec.bias = [bias = a.bias](int batch, int head, int query, int key) {
      const std::vector<std::int64_t>& all = bias->shape;
      const auto at = [&](int n, std::int64_t index) { return all[n] == 1 ? 0 : index; };
      return bias->values[((at(0, batch) * all[1] + at(1, head)) * all[2] + at(2, query)) * all[3] + key];
    };
  }
  if (a.sparse) {
    spec.sees = [a](int batch, int head, int query, int key) { return problem::sees(*a.sparse, a, batch, head, query, key); };
  }
  return spec;
}

AttentionTruth::AttentionTruth(const problem::Attention& shape, problem::AttentionInputs in)
    : shape_(problem::resolve(shape)),
      spec_(spec_of(shape_)),
      in_(std::move(in)),
      scores_(spec_, in_.q.values, in_.k.values, in_.v.values) {
  const bool all = shape_.flops() <= most_flops_for_all_rows;
  rows_ = all ? reference::all_rows(spec_) : reference::sample_rows(spec_);
  if (!all) sample_.all_rules = written_rules(shape_, spec_, in_);
  forward_ = reference::forward(spec_, rows_, std::span<const float>(in_.q.values), in_.k.values, in_.v.values);
  sample_.rules = compared_rules(spec_, rows_, forward_, in_.q.values, in_.k.values);
  for (const reference::Row& row : rows_) sample_.rows.push_back(reference::flat_index(spec_, row));
  baseline_ = reference::baseline(spec_, rows_, in_.q.values, in_.k.values, in_.v.values, round_to_dtype(shape_.dtype));
  rounding_ =
      reference::fp32_rounding(spec_, rows_, in_.q.values, in_.k.values, in_.v.values, forward_, check::ulp(shape_.dtype, 0.0));
}

std::vector<check::TensorVerdict> AttentionTruth::judge(const Tensor& o, const Tensor& lse) const {
  const auto row_name = [this](std::int64_t row) { return to_string(reference::all_rows(spec_)[row]); };
  const check::Output o_rows{.name = "O", .dtype = shape_.dtype, .cols = shape_.dim, .values = o.values, .row_name = row_name};
  const check::Output lse_rows{.name = "LSE", .values = lse.values, .row_name = row_name, .empty_value = minus_infinity};
  const auto judge_o = [&](const check::Output& rows) {
    return check::judge(rows, expected_o(forward_, baseline_, rounding_, scores_, rows_, shape_.dim));
  };
  const auto judge_lse = [&](const check::Output& rows) {
    return check::judge_lse(rows, forward_.lse, shape_.dtype, rounding_.lse);
  };
  return {check::judge_sample(o_rows, sample_, judge_o), check::judge_sample(lse_rows, sample_, judge_lse)};
}

LayerTruth::LayerTruth(const problem::Attention& shape, const LayerInputs& in) {
  const problem::Attention a = problem::resolve(shape);
  const problem::Attention plain{.batch = a.batch,
                                 .heads = a.heads,
                                 .kv_heads = a.heads,
                                 .seq_q = a.seq_q,
                                 .seq_k = a.seq_q,
                                 .dim = a.dim,
                                 .causal = a.causal};
  if (a != problem::resolve(plain)) {
    throw std::invalid_argument("a layer has equal heads and kv-heads, equal lengths, no window, scale 1/√dim, and is fp32");
  }
  const reference::LayerShape layer{a.batch, a.seq_q, a.heads, a.heads * a.dim, a.causal};
  const reference::LayerWeights weights{in.in_proj_weight.values, in.in_proj_bias.values, in.out_proj_weight.values,
                                        in.out_proj_bias.values};
  spec_ = spec_of(a);
  layer_ = reference::layer(layer, in.x.values, weights);
  baseline_ = reference::layer_baseline(layer, in.x.values, weights);

  parts_ = projected(spec_, in);
  rows_ = reference::all_rows(spec_);
  forward_ = {layer_.o, layer_.lse};
  rounding_ = reference::fp32_rounding(spec_, rows_, parts_.q.values, parts_.k.values, parts_.v.values, forward_);
  // V was rounded before, in the projection: by the size of a token's values, not of what an element of O adds them up to.
  for (auto row = rounding_.size.begin(); row != rounding_.size.end(); row += spec_.dim) {
    std::fill_n(row, spec_.dim, *std::max_element(row, row + spec_.dim));
  }
  scores_.emplace(spec_, parts_.q.values, parts_.k.values, parts_.v.values);
  head_rules_ = compared_rules(spec_, rows_, forward_, parts_.q.values, parts_.k.values);

  // An infinity, or numbers so large that a sum may overflow, become infinities of either sign in the projections: rows that
  // see such a token are exempt. (Where a token has a NaN, its query, key and value are NaN in every head, and truth says it
  // all.)
  reference::AttentionSpec tokens = spec_;
  tokens.heads = tokens.kv_heads = 1;
  tokens.dim = layer.width;
  Tensor odd = in.x;  // infinite where a token's row is exempt
  const double factor = std::max(1.0, largest_size(in.in_proj_weight)) * std::max(1.0, largest_size(in.out_proj_weight)) *
                        layer.width * layer.width;
  for (float& x : odd.values) x = std::isnan(x) || std::abs(x) * factor < std::numeric_limits<float>::max() ? 0.0f : infinity;
  const auto token_rows = reference::all_rows(tokens);
  const auto exempt = reference::sees_non_finite(tokens, token_rows, odd.values, odd.values, odd.values);
  const bool weights_finite = all_finite(in.in_proj_weight) && all_finite(in.in_proj_bias) && all_finite(in.out_proj_weight) &&
                              all_finite(in.out_proj_bias);
  for (std::size_t token = 0; token < token_rows.size(); ++token) {
    token_rules_.push_back(exempt[token] || !weights_finite ? RowRule::written : RowRule::compare);
  }
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    RowRule& token = token_rules_[reference::flat_index(tokens, {rows_[r].batch, 0, rows_[r].query})];
    if (head_rules_[r] == RowRule::written) token = RowRule::written;
  }
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    head_rules_[r] = token_rules_[reference::flat_index(tokens, {rows_[r].batch, 0, rows_[r].query})];
  }
}

std::vector<check::TensorVerdict> LayerTruth::judge(const Tensor& o, const Tensor& lse, const Tensor& y) const {
  const std::int64_t seq = spec_.seq_q;
  const auto head_row = [this](std::int64_t r) { return to_string(rows_[r]); };
  const auto token = [seq](std::int64_t r) {
    return "batch " + std::to_string(r / seq) + ", token " + std::to_string(r % seq);
  };
  const check::Output o_rows{.name = "O", .cols = spec_.dim, .values = o.values, .rules = head_rules_, .row_name = head_row};
  const check::Output lse_rows{.name = "LSE", .values = lse.values, .rules = head_rules_, .row_name = head_row};
  const check::Output y_rows{
      .name = "y", .cols = std::int64_t{spec_.heads} * spec_.dim, .values = y.values, .rules = token_rules_, .row_name = token};
  return {check::judge(o_rows, expected_o(forward_, baseline_.o, rounding_, *scores_, rows_, spec_.dim)),
          check::judge_lse(lse_rows, forward_.lse, Dtype::fp32, rounding_.lse), check::judge(y_rows, {layer_.y, baseline_.y})};
}

}  // namespace run
