#include "common/run/truth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace run {
namespace {

using check::RowRule;
using problem::Dtype;
using problem::Tensor;

// Comparing all rows costs about this many FLOPs twice, in double and in fp32, at some 2 GFLOP/s a core.
constexpr double most_flops_for_all_rows = 2e9;

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

reference::AttentionSpec spec_of(const problem::Attention& a) {
  return {a.batch, a.heads, a.kv_heads, a.seq_q, a.seq_k, a.dim, a.causal, a.window, *a.scale};
}

// What is asked of every row.
std::vector<RowRule> row_rules(const reference::AttentionSpec& spec, const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto rows = reference::all_rows(spec);
  const auto exempt = reference::sees_non_finite(spec, rows, q.values, k.values, v.values);
  std::vector<RowRule> rules(rows.size(), RowRule::compare);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (exempt[r]) rules[r] = RowRule::written;
    if (reference::visible_keys(spec, rows[r].query).empty()) rules[r] = RowRule::empty;
  }
  return rules;
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

}  // namespace

reference::Round round_to_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16:
      return [](float x) { return problem::round_to(Dtype::fp16, x); };
    case Dtype::bf16:
      return [](float x) { return problem::round_to(Dtype::bf16, x); };
    case Dtype::fp32:
      break;
  }
  return reference::keep_fp32;
}

AttentionTruth::AttentionTruth(const problem::Attention& shape, const problem::AttentionInputs& in)
    : shape_(problem::resolve(shape)), spec_(spec_of(shape_)), rules_(row_rules(spec_, in.q, in.k, in.v)) {
  rows_ = shape_.flops() <= most_flops_for_all_rows ? reference::all_rows(spec_) : reference::sample_rows(spec_);
  forward_ = reference::forward(spec_, rows_, std::span<const float>(in.q.values), in.k.values, in.v.values);
  baseline_ = reference::baseline(spec_, rows_, in.q.values, in.k.values, in.v.values, round_to_dtype(shape_.dtype));
  rounding_ = reference::fp32_rounding(spec_, rows_, in.q.values, in.k.values, in.v.values, forward_);
}

template <class T>
std::vector<T> AttentionTruth::compared(const std::vector<T>& all, std::int64_t columns) const {
  std::vector<T> chosen;
  chosen.reserve(rows_.size() * columns);
  for (const reference::Row& row : rows_) {
    const auto first = all.begin() + reference::flat_index(spec_, row) * columns;
    chosen.insert(chosen.end(), first, first + columns);
  }
  return chosen;
}

std::vector<check::TensorVerdict> AttentionTruth::judge(const Tensor& o, const Tensor& lse) const {
  check::Output whole_o{.name = "O", .dtype = shape_.dtype, .cols = shape_.dim, .values = o.values, .rules = rules_};
  check::Output whole_lse{.name = "LSE", .values = lse.values, .rules = rules_, .empty_value = minus_infinity};
  whole_o.row_name = whole_lse.row_name = [all = reference::all_rows(spec_)](std::int64_t r) { return to_string(all[r]); };
  check::TensorVerdict o_verdict = check::judge_written(whole_o);
  check::TensorVerdict lse_verdict = check::judge_written(whole_lse);

  const auto rules = compared(rules_, 1);
  const auto o_values = compared(o.values, shape_.dim);
  const auto lse_values = compared(lse.values, 1);
  check::Output some_o = whole_o, some_lse = whole_lse;
  some_o.values = o_values;
  some_lse.values = lse_values;
  some_o.rules = some_lse.rules = rules;
  some_o.row_name = some_lse.row_name = [this](std::int64_t r) { return to_string(rows_[r]); };
  if (o_verdict.pass) o_verdict = check::judge(some_o, {forward_.o, baseline_, rounding_.o});
  if (lse_verdict.pass) lse_verdict = check::judge_lse(some_lse, forward_.lse, shape_.dtype, rounding_.lse);
  return {o_verdict, lse_verdict};
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

  const problem::AttentionInputs parts = projected(spec_, in);
  rounding_ = reference::fp32_rounding(spec_, reference::all_rows(spec_), parts.q.values, parts.k.values, parts.v.values,
                                       {layer_.o, layer_.lse});

  // A token that is not finite makes its query, key and value so, in every head; a weight that is not spoils every row.
  reference::AttentionSpec tokens = spec_;
  tokens.heads = tokens.kv_heads = 1;
  tokens.dim = layer.width;
  token_rules_ = row_rules(tokens, in.x, in.x, in.x);
  if (!(all_finite(in.in_proj_weight) && all_finite(in.in_proj_bias) && all_finite(in.out_proj_weight) &&
        all_finite(in.out_proj_bias))) {
    std::fill(token_rules_.begin(), token_rules_.end(), RowRule::written);
  }
  for (const reference::Row& row : reference::all_rows(spec_)) {
    head_rules_.push_back(token_rules_[reference::flat_index(tokens, {row.batch, 0, row.query})]);
  }
}

std::vector<check::TensorVerdict> LayerTruth::judge(const Tensor& o, const Tensor& lse, const Tensor& y) const {
  const std::int64_t seq = spec_.seq_q;
  const auto head_row = [all = reference::all_rows(spec_)](std::int64_t r) { return to_string(all[r]); };
  const auto token = [seq](std::int64_t r) {
    return "batch " + std::to_string(r / seq) + ", token " + std::to_string(r % seq);
  };
  const check::Output o_rows{.name = "O", .cols = spec_.dim, .values = o.values, .rules = head_rules_, .row_name = head_row};
  const check::Output lse_rows{.name = "LSE", .values = lse.values, .rules = head_rules_, .row_name = head_row};
  const check::Output y_rows{
      .name = "y", .cols = std::int64_t{spec_.heads} * spec_.dim, .values = y.values, .rules = token_rules_, .row_name = token};
  return {check::judge(o_rows, {layer_.o, baseline_.o, rounding_.o}),
          check::judge_lse(lse_rows, layer_.lse, Dtype::fp32, rounding_.lse), check::judge(y_rows, {layer_.y, baseline_.y})};
}

}  // namespace run
