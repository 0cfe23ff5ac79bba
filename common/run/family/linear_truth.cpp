#include "common/run/family/linear_truth.h"

#include <algorithm>

#include "common/run/family/baseline_rounding.h"
#include "common/run/family/ordinary_rows.h"

namespace run {
namespace {

using check::RowRule;
using problem::Dtype;
using problem::Tensor;

// Comparing all rows costs about this many FLOPs twice, in double and in fp32.
constexpr double most_flops_for_all_rows = 5e9;

Tensor rounded(const Tensor& tensor, Dtype dtype) {
  Tensor result = tensor;
  for (float& x : result.values) x = problem::round_to(dtype, x);
  return result;
}

reference::LinearSpec spec_of(const problem::Linear& shape) {
  const auto entries = static_cast<int>(shape.entries());
  reference::LinearSpec spec;
  spec.batch = spec.batch_a = entries;
  spec.m = shape.m;
  spec.n = shape.n;
  spec.k = shape.k;
  for (int entry = 0; entry < entries && !shape.is_routed(); ++entry) spec.b_of.push_back(shape.weights_of(entry));
  spec.activation = static_cast<reference::Activation>(shape.activation);
  return spec;
}

std::string row_name(const problem::Linear& shape, std::int64_t row) {
  const std::int64_t entry = row / shape.m;
  return "sample " + std::to_string(entry / shape.channels) + ", channel " + std::to_string(entry % shape.channels) +
         ", token " + std::to_string(row % shape.m);
}

// Of routed tokens: each pair of a token and the expert of a slot is a product of its own. A slot that names no expert is
// computed with expert 0, and left out of the sum.
reference::LinearReference routed_reference(const problem::Linear& shape, const reference::GemmRows& rows, const Tensor& tokens,
                                            const problem::LinearInputs& in, std::span<const float> bias) {
  const std::int64_t top = shape.top, k = shape.k;
  reference::LinearSpec spec;
  spec.batch = spec.batch_a = static_cast<int>(std::ssize(rows) * top);
  spec.n = shape.n;
  spec.k = shape.k;
  spec.activation = static_cast<reference::Activation>(shape.activation);
  std::vector<float> a, routing;
  std::vector<bool> named;
  for (const std::int64_t token : rows) {
    for (std::int64_t pair = token * top; pair < (token + 1) * top; ++pair) {
      const int expert = in.experts.values[pair];
      named.push_back(expert >= 0 && expert < shape.experts);
      spec.b_of.push_back(named.back() ? expert : 0);
      routing.push_back(in.routing.values[pair]);
      a.insert(a.end(), tokens.values.begin() + token * k, tokens.values.begin() + (token + 1) * k);
    }
  }
  const std::int64_t matrix = std::int64_t{shape.n} * k;
  const auto last = *std::max_element(spec.b_of.begin(), spec.b_of.end()) + 1;  // the reference wants no more experts
  if (!bias.empty()) bias = bias.first(static_cast<std::size_t>(last * shape.n));
  const std::span<const float> b(in.b.values.data(), static_cast<std::size_t>(last * matrix));
  const auto pairs = reference::linear(spec, reference::all_rows(spec), a, b, bias);
  return reference::routed(pairs, routing, named, shape.top, shape.n, round_to_dtype(*shape.dtype_c));
}

}  // namespace

LinearTruth::LinearTruth(const problem::Linear& shape, const problem::LinearInputs& in)
    : shape_(problem::resolve(shape)), spec_(spec_of(shape_)) {
  const Tensor tokens = rounded(in.a, shape_.dtype);
  const bool all = shape_.flops() <= most_flops_for_all_rows;
  const reference::GemmRows rows = all ? reference::all_rows(spec_) : reference::sample_rows(spec_);
  sample_.rows = rows;
  if (!all) sample_.all_rules = written_rules(tokens, in);
  const std::span<const float> bias = in.bias ? in.bias->values : std::span<const float>();
  if (shape_.is_routed()) {
    reference_ = routed_reference(shape_, rows, tokens, in, bias);
  } else {
    reference_ = reference::linear(spec_, rows, tokens.values, in.b.values, bias, round_to_dtype(*shape_.dtype_c));
  }
}

std::vector<RowRule> LinearTruth::written_rules(const Tensor& tokens, const problem::LinearInputs& in) const {
  const Dtype dtype = *shape_.dtype_c;
  const std::vector<bool> a = ordinary_rows(tokens, dtype), b = ordinary_rows(in.b, dtype);
  const double bias_limit = dtype == Dtype::fp16 ? 0x1p14 : 0x1p126;
  const bool all_bias = !in.bias || std::all_of(in.bias->values.begin(), in.bias->values.end(),
                                                [&](float x) { return std::abs(x) < bias_limit; });
  const bool all_b = all_bias && std::find(b.begin(), b.end(), false) == b.end();
  std::vector<RowRule> rules;
  for (std::size_t row = 0; row < a.size(); ++row) {
    const auto first = in.routing.values.begin() + static_cast<std::ptrdiff_t>(row) * shape_.top;
    const bool ordinary = a[row] && std::all_of(first, first + shape_.top, [](float x) { return std::abs(x) <= 1; });
    rules.push_back(all_b && ordinary ? RowRule::compare : RowRule::written);
  }
  return rules;
}

check::TensorVerdict LinearTruth::judge(const Tensor& c) const {
  const check::Output output{
      .name = "C", .dtype = *shape_.dtype_c, .cols = shape_.n, .values = c.values, .row_name = [this](std::int64_t row) {
        return row_name(shape_, row);
      }};
  return check::judge_sample(output, sample_, [this](const check::Output& rows) {
    const auto& rounding = reference_.rounding;
    return check::judge(rows, {reference_.truth, reference_.baseline, rounding.size, rounding.sum, rounding.may_overflow});
  });
}

}  // namespace run
