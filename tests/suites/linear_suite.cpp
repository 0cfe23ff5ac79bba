#include "tests/suites/linear_suite.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/catch.h"
#include "tests/suites/asked.h"

namespace suite {
namespace {

using problem::Activation;
using problem::Dtype;
using problem::Linear;
using problem::LinearInputKind;
using problem::LinearInputs;
using problem::Tensor;

int rounded_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// With as many tokens as the variant takes at most, and the least padding that makes k and the rows what it takes.
Linear fitted(const run::LinearSupport& supports, Linear shape) {
  shape.m = std::min(shape.m, supports.max_m);
  shape.k = rounded_up(shape.k, supports.k_multiple);
  const auto row = [&](int stride, Dtype dtype) {
    return rounded_up(std::max(stride, shape.k), std::max(1, supports.row_bytes / static_cast<int>(problem::bytes(dtype))));
  };
  shape.lda = row(shape.lda, *shape.dtype_a);
  shape.ldb = row(shape.ldb, shape.dtype);
  return shape;
}

run::Outcome clean(const run::LinearVariant& variant, const Linear& shape, const LinearInputs& inputs,
                   const run::ExecuteOptions& options = {}, const run::LinearTruth* truth = nullptr) {
  run::Outcome outcome = run::execute(variant, shape, inputs, options, truth);
  INFO("variant " << variant.name << ", " << problem::to_string(shape));
  for (const runtime::Finding& finding : outcome.findings) {
    INFO(finding.text);
    REQUIRE(outcome.findings.empty());
  }
  if (outcome.verdict) {
    INFO(outcome.verdict->reason());
    REQUIRE(outcome.verdict->pass());
  }
  return outcome;
}

// The five layouts, by turns. Rows of odd length are only for variants that take rows anywhere.
run::Layout layout_of(int turn, const run::LinearSupport& supports) {
  const run::Layout layouts[] = {
      {}, {.gaps = true}, {.tokens_first = true}, {.gaps = true, .odd = true}, {.tokens_first = true, .gaps = true}};
  run::Layout layout = layouts[turn % static_cast<int>(std::size(layouts))];
  layout.odd &= supports.row_bytes == 1;
  return layout;
}

// Matrix `entry` of a [samples, channels, …] tensor, as a batch of one.
Tensor matrix(const Tensor& tensor, std::int64_t entry) {
  std::vector<std::int64_t> shape = tensor.shape;
  shape[0] = shape[1] = 1;
  Tensor part(shape);
  std::copy_n(tensor.values.begin() + entry * std::ssize(part.values), part.values.size(), part.values.begin());
  return part;
}

// 0 … count − 1 in another order, always the same.
std::vector<int> shuffled(int count) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int i = count - 1; i > 0; --i) std::swap(order[i], order[static_cast<std::int64_t>(i) * 7919 % (i + 1)]);
  return order;
}

// Index i along a dimension comes from order[i]. The dimensions behind it have `inner` elements.
Tensor reordered(const Tensor& tensor, const std::vector<int>& order, std::int64_t inner) {
  Tensor result = tensor;
  const std::int64_t count = std::ssize(order);
  for (std::int64_t e = 0; e < std::ssize(tensor.values); ++e) {
    const std::int64_t outer = e / inner / count, at = e / inner % count;
    result.values[e] = tensor.values[(outer * count + order[at]) * inner + e % inner];
  }
  return result;
}

std::vector<int> inverse(const std::vector<int>& order) {
  std::vector<int> result(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) result[order[i]] = static_cast<int>(i);
  return result;
}

}  // namespace

std::vector<LinearCase> linear_shapes(Dtype dtype) {
  std::vector<LinearCase> cases;
  const auto add = [&](Linear shape, LinearInputKind kind = LinearInputKind::normal) {
    shape.dtype = dtype;
    cases.push_back({problem::resolve(shape), kind});
  };
  // Every number of tokens; n and k of 1, around a warp, a block and a wide load's reach.
  const int extents[] = {1, 3, 8, 31, 33, 64, 127, 129, 255, 257, 300, 7, 16, 1024, 1100, 2100};
  for (int m = 1; m <= 16; ++m) add({.m = m, .n = extents[(3 * m + 5) % 13], .k = extents[m - 1]});
  add({.m = 1, .n = 1, .k = 1, .bias = true});
  add({.m = 1, .n = 1000, .k = 9});
  add({.m = 16, .n = 1, .k = 1000});
  // Types, bias, activations.
  add({.m = 5, .n = 40, .k = 72, .dtype_a = Dtype::fp32, .dtype_c = Dtype::fp32});
  add({.m = 1, .n = 130, .k = 264, .dtype_a = Dtype::fp32, .activation = Activation::gelu, .bias = true});
  add({.m = 3, .n = 33, .k = 40, .dtype_c = Dtype::bf16, .activation = Activation::relu, .bias = true});
  add({.m = 9, .n = 35, .k = 48, .dtype_c = Dtype::fp16, .activation = Activation::silu});
  add({.m = 2, .n = 70, .k = 24, .dtype_c = Dtype::fp32, .activation = Activation::gelu});
  add({.m = 1, .n = 70, .k = 24, .dtype_c = Dtype::fp32, .activation = Activation::silu, .bias = true});
  // Both levels of the batch; weights for each entry, for some together, for all.
  add({.samples = 2, .channels = 3, .m = 4, .n = 17, .k = 40, .bias = true});
  add({.samples = 2,
       .channels = 6,
       .weight_channels = 2,
       .m = 3,
       .n = 9,
       .k = 33,
       .lda = 37,
       .ldb = 41,
       .ldc = 19,
       .bias = true});
  add({.samples = 4, .channels = 3, .weight_samples = 2, .weight_channels = 3, .m = 1, .n = 37, .k = 8});
  add({.samples = 3, .channels = 2, .weight_samples = 1, .weight_channels = 1, .m = 7, .n = 33, .k = 56, .lda = 64});
  add({.samples = 2, .channels = 2, .weight_samples = 1, .m = 2, .n = 5, .k = 16, .ldb = 1000, .ldc = 8});
  for (const int k : {64, 100, 1000}) add({.m = 3, .n = 24, .k = k}, LinearInputKind::cancelling);
  add({.m = 1, .n = 9, .k = 1000, .dtype_c = Dtype::fp32}, LinearInputKind::cancelling);
  return cases;
}

std::vector<run::LinearVariant> plain_variants(const run::LinearStep& step) {
  std::vector<run::LinearVariant> plain;
  for (const run::LinearVariant& variant : step.variants) {
    if (!variant.supports.experts) plain.push_back(variant);
  }
  return plain;
}

std::vector<LinearCase> small_linear_shapes(Dtype dtype) {
  return {
      {problem::resolve(Linear{.samples = 2, .channels = 4, .weight_channels = 2, .m = 5, .n = 19, .k = 40, .dtype = dtype})},
      {problem::resolve(Linear{.m = 1, .n = 39, .k = 520, .dtype = dtype, .activation = Activation::gelu, .bias = true})},
      {problem::resolve(Linear{.m = 16, .n = 33, .k = 136, .dtype = dtype}), LinearInputKind::cancelling}};
}

int passes(const run::LinearVariant& variant, const std::vector<LinearCase>& cases, std::uint64_t seed) {
  int turn = 0, taken = 0;
  for (const LinearCase& c : cases) {
    const Linear shape = fitted(variant.supports, c.shape);
    const run::Layout layout = layout_of(turn++, variant.supports);
    INFO("variant " << variant.name << ", " << problem::to_string(shape) << ", inputs " << static_cast<int>(c.inputs));
    if (const auto reason = run::refusal(variant.supports, shape)) {
      INFO("refused: " << *reason);
      REQUIRE((shape.dtype_a != shape.dtype && !variant.supports.fp32_tokens));
      continue;
    }
    const auto& asked = asked_of<run::LinearTruth>(shape, c.inputs, seed);
    clean(variant, shape, asked.inputs, {.layout = layout}, &asked.truth);
    ++taken;
  }
  return taken;
}

void entries_are_independent(const run::LinearVariant& variant, const Linear& requested) {
  const Linear shape = fitted(variant.supports, requested);
  REQUIRE(shape.entries() > shape.weight_entries());
  const LinearInputs inputs = problem::make_inputs(shape, 21);
  const run::Outcome all = clean(variant, shape, inputs);
  Linear single = shape;
  single.samples = single.channels = single.weight_samples = single.weight_channels = 1;
  for (std::int64_t entry = 0; entry < shape.entries(); ++entry) {
    const std::int64_t weights = shape.weights_of(entry);
    LinearInputs its{matrix(inputs.a, entry), matrix(inputs.b, weights), std::nullopt};
    if (inputs.bias) its.bias = matrix(*inputs.bias, weights);
    const run::Outcome alone = clean(variant, single, its);
    INFO("variant " << variant.name << ", entry " << entry << " alone");
    REQUIRE(!check::first_difference(matrix(all.output("c"), entry).values, alone.output("c").values));
  }
}

void follows_permutations(const run::LinearVariant& variant, const Linear& requested) {
  const Linear shape = fitted(variant.supports, requested);
  const LinearInputs inputs = problem::make_inputs(shape, 31);
  const run::LinearTruth truth(shape, inputs);
  const auto c_of = [&](const LinearInputs& changed) {
    const run::Outcome outcome = run::execute(variant, shape, changed, {.check = false});
    REQUIRE(outcome.pass());
    return outcome.output("c");
  };
  const auto judged = [&](const Tensor& c) {
    const check::TensorVerdict verdict = truth.judge(c);
    INFO("variant " << variant.name << ": " << verdict.reason);
    REQUIRE(verdict.pass);
  };
  const std::vector<int> m = shuffled(shape.m), n = shuffled(shape.n), k = shuffled(shape.k);
  const Tensor c = c_of(inputs);
  LinearInputs changed = inputs;
  changed.a = reordered(inputs.a, m, shape.k);
  INFO("variant " << variant.name << ": tokens in another order");
  REQUIRE(!check::first_difference(reordered(c, m, shape.n).values, c_of(changed).values));

  changed = inputs;
  changed.b = reordered(inputs.b, n, shape.k);
  if (inputs.bias) changed.bias = reordered(*inputs.bias, n, 1);
  judged(reordered(c_of(changed), inverse(n), 1));

  changed = inputs;
  changed.a = reordered(inputs.a, k, 1);
  changed.b = reordered(inputs.b, k, 1);
  judged(c_of(changed));
}

void contains_non_finite(const run::LinearVariant& variant, const Linear& requested) {
  const Linear shape = fitted(variant.supports, requested);
  const LinearInputs inputs = problem::make_inputs(shape, 41);
  REQUIRE(inputs.bias);
  const Tensor before = clean(variant, shape, inputs).output("c");
  const float infinity = std::numeric_limits<float>::infinity();
  const float lowest = shape.dtype == Dtype::fp16 ? -65504.0f : problem::bf16_value(0xff7f);
  enum Place { in_a, in_b, in_bias };
  for (const Place place : {in_a, in_b, in_bias}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity, lowest}) {
      LinearInputs changed = inputs;
      Tensor& tensor = place == in_a ? changed.a : place == in_b ? changed.b : *changed.bias;
      for (const std::int64_t at : {std::int64_t{0}, std::ssize(tensor.values) / 2, std::ssize(tensor.values) - 1}) {
        const float good = std::exchange(tensor.values[at], bad);
        const Tensor after = clean(variant, shape, changed).output("c");
        tensor.values[at] = good;
        std::int64_t wrong = -1;  // an element
        for (std::int64_t e = 0; e < std::ssize(after.values); ++e) {
          const std::int64_t row = e / shape.n, column = e % shape.n;
          const std::int64_t weights = shape.weights_of(row / shape.m) * shape.n + column;  // row of B
          const std::int64_t sees = place == in_a ? row : weights;
          const bool touched = sees == (place == in_bias ? at : at / shape.k);
          if (!touched && after.values[e] != before.values[e]) wrong = e;
          const bool hidden = std::isfinite(after.values[e]);
          if (touched && bad != lowest && shape.activation == Activation::none && hidden) wrong = e;
        }
        INFO("variant " << variant.name << ", " << bad << " in "
                        << (place == in_a   ? "A"
                            : place == in_b ? "B"
                                            : "the bias")
                        << " at " << at << ", element " << wrong);
        REQUIRE(wrong == -1);
      }
    }
  }
}

}  // namespace suite
