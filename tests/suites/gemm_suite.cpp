#include "tests/suites/gemm_suite.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/catch.h"
#include "tests/suites/asked.h"

namespace suite {
namespace {

using problem::Gemm;
using problem::GemmInputKind;
using problem::GemmInputs;
using problem::Tensor;

Gemm shape_of(int m, int n, int k, problem::Dtype dtype) {
  return problem::resolve(Gemm{.m = m, .n = n, .k = k, .dtype = dtype});
}

// With the least padding that makes k and the row strides multiples of what the variant takes.
Gemm fitted(const run::GemmSupport& supports, Gemm shape) {
  const auto round_up = [](int& value, int multiple) { value = (value + multiple - 1) / multiple * multiple; };
  round_up(shape.k, supports.k_multiple);
  shape.lda = std::max(shape.lda, shape.k);
  shape.ldb = std::max(shape.ldb, shape.k);
  round_up(shape.lda, supports.ld_multiple);
  round_up(shape.ldb, supports.ld_multiple);
  round_up(shape.ldc, supports.ldc_multiple);
  return shape;
}

run::Outcome clean(const run::GemmVariant& variant, const Gemm& shape, const GemmInputs& inputs,
                   const run::ExecuteOptions& options = {}, const run::GemmTruth* truth = nullptr) {
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

// Entry `batch` of a [batch, rows, cols] tensor, as a batch of one.
Tensor entry(const Tensor& tensor, std::int64_t batch) {
  Tensor part({1, tensor.shape[1], tensor.shape[2]});
  std::copy_n(tensor.values.begin() + batch * std::ssize(part.values), part.values.size(), part.values.begin());
  return part;
}

// 0 … count − 1 in another order, always the same.
std::vector<int> shuffled(int count) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int i = count - 1; i > 0; --i) std::swap(order[i], order[static_cast<std::int64_t>(i) * 7919 % (i + 1)]);
  return order;
}

// Row r of every matrix comes from row order[r].
Tensor reordered_rows(const Tensor& tensor, const std::vector<int>& order) {
  Tensor result = tensor;
  const std::int64_t rows = tensor.shape[1], cols = tensor.shape[2];
  for (std::int64_t row = 0; row < tensor.shape[0] * rows; ++row) {
    const std::int64_t from = row / rows * rows + order[row % rows];
    std::copy_n(tensor.values.begin() + from * cols, cols, result.values.begin() + row * cols);
  }
  return result;
}

Tensor reordered_cols(const Tensor& tensor, const std::vector<int>& order) {
  Tensor result = tensor;
  const std::int64_t cols = tensor.shape[2];
  for (std::int64_t e = 0; e < std::ssize(tensor.values); ++e) {
    result.values[e] = tensor.values[e / cols * cols + order[e % cols]];
  }
  return result;
}

}  // namespace

std::vector<GemmCase> gemm_shapes(problem::Dtype dtype) {
  std::vector<GemmCase> cases;
  const auto add = [&](int m, int n, int k) { cases.push_back({shape_of(m, n, k, dtype)}); };
  // Each extent in each place, the other two from elsewhere in the list.
  const int extents[] = {1, 7, 8, 9, 15, 16, 17, 63, 65, 127, 129};
  constexpr std::size_t count = std::size(extents);
  for (std::size_t i = 0; i < count; ++i) {
    add(extents[i], extents[(i + 7) % count], extents[(i + 3) % count]);
    if (extents[i] <= 65) add(extents[i], extents[i], extents[i]);
  }
  const std::array<int, 3> large[] = {{1000, 1, 7},   {1, 1000, 9},   {1, 1, 1000},   {7, 9, 1000},
                                      {1000, 17, 16}, {15, 1000, 8},  {33, 17, 1000}, {1000, 33, 17},
                                      {17, 1000, 65}, {128, 256, 64}, {129, 257, 40}, {192, 128, 96}};
  for (const auto& [m, n, k] : large) add(m, n, k);
  const auto add_shape = [&](Gemm shape, GemmInputKind kind = GemmInputKind::normal) {
    shape.dtype = dtype;
    cases.push_back({problem::resolve(shape), kind});
  };
  add_shape({.batch = 3, .m = 17, .n = 65, .k = 40});
  add_shape({.batch = 5, .batch_a = 1, .m = 63, .n = 9, .k = 72});
  add_shape({.m = 65, .n = 63, .k = 48, .lda = 56, .ldb = 64, .ldc = 80});
  add_shape({.batch = 2, .m = 15, .n = 17, .k = 33, .lda = 37, .ldb = 41, .ldc = 19});
  add_shape({.batch = 2, .batch_a = 1, .m = 129, .n = 63, .k = 64, .lda = 1000, .ldb = 72, .ldc = 136});
  for (const int k : {64, 100, 1000}) add_shape({.m = 33, .n = 24, .k = k}, GemmInputKind::cancelling);
  return cases;
}

std::vector<GemmCase> small_gemm_shapes(problem::Dtype dtype) {
  return {{problem::resolve({.batch = 2, .m = 17, .n = 39, .k = 40, .dtype = dtype})},
          {problem::resolve({.batch = 2, .batch_a = 1, .m = 65, .n = 9, .k = 33, .lda = 48, .ldb = 40, .dtype = dtype})},
          {shape_of(33, 130, 100, dtype), GemmInputKind::cancelling}};
}

int passes(const run::GemmVariant& variant, const std::vector<GemmCase>& cases, std::uint64_t seed) {
  int taken = 0;
  for (const GemmCase& c : cases) {
    Gemm shape = c.shape;
    if (run::refusal(variant.supports, shape)) shape = fitted(variant.supports, shape);
    INFO("variant " << variant.name << ", " << problem::to_string(shape) << ", inputs " << static_cast<int>(c.inputs));
    if (const auto reason = run::refusal(variant.supports, shape)) {
      const auto& dtypes = variant.supports.dtypes;
      INFO("refused: " << *reason);
      REQUIRE((std::find(dtypes.begin(), dtypes.end(), shape.dtype) == dtypes.end() ||
               (shape.batch > 1 && !variant.supports.batch)));
      continue;
    }
    run::ExecuteOptions options;
    options.layout.gaps = taken % 2 == 1;
    const auto& asked = asked_of<run::GemmTruth>(shape, c.inputs, seed);
    clean(variant, shape, asked.inputs, options, &asked.truth);
    ++taken;
  }
  return taken;
}

void batches_are_independent(const run::GemmVariant& variant, const Gemm& shape) {
  REQUIRE(shape.batch > 1);
  const GemmInputs inputs = problem::make_inputs(shape, 21);
  const run::Outcome all = clean(variant, shape, inputs);
  Gemm single = shape;
  single.batch = single.batch_a = 1;
  for (int batch = 0; batch < shape.batch; ++batch) {
    const run::Outcome alone =
        clean(variant, single, {entry(inputs.a, shape.batch_a == 1 ? 0 : batch), entry(inputs.b, batch)});
    INFO("variant " << variant.name << ", batch entry " << batch << " alone");
    REQUIRE(!check::first_difference(entry(all.output("c"), batch).values, alone.output("c").values));
  }
}

void follows_permutations(const run::GemmVariant& variant, const Gemm& shape) {
  const GemmInputs inputs = problem::make_inputs(shape, 31);
  const run::GemmTruth truth(shape, inputs);
  const auto judged = [&](const GemmInputs& changed, const auto& undo) {
    const run::Outcome outcome = run::execute(variant, shape, changed, {.check = false});
    REQUIRE(outcome.pass());
    const check::TensorVerdict verdict = truth.judge(undo(outcome.output("c")));
    INFO("variant " << variant.name << ": " << verdict.reason);
    REQUIRE(verdict.pass);
  };
  const auto inverse = [](const std::vector<int>& order) {
    std::vector<int> result(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) result[order[i]] = static_cast<int>(i);
    return result;
  };
  const std::vector<int> m = shuffled(shape.m), n = shuffled(shape.n), k = shuffled(shape.k);
  judged({reordered_rows(inputs.a, m), inputs.b}, [&](const Tensor& c) { return reordered_rows(c, inverse(m)); });
  judged({inputs.a, reordered_rows(inputs.b, n)}, [&](const Tensor& c) { return reordered_cols(c, inverse(n)); });
  judged({reordered_cols(inputs.a, k), reordered_cols(inputs.b, k)}, [](const Tensor& c) { return c; });
}

void contains_nan(const run::GemmVariant& variant, const Gemm& shape) {
  const GemmInputs inputs = problem::make_inputs(shape, 41);
  const Tensor before = clean(variant, shape, inputs).output("c");
  const int row = shape.m / 2, col = shape.n - 1, last_k = shape.k - 1;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const bool in_a : {true, false}) {
      GemmInputs changed = inputs;  // in the first batch entry
      (in_a ? changed.a.values[std::int64_t{row} * shape.k + last_k] : changed.b.values[std::int64_t{col} * shape.k]) = bad;
      const Tensor after = clean(variant, shape, changed).output("c");
      std::int64_t wrong = -1;  // an element
      for (std::int64_t e = 0; e < std::ssize(after.values); ++e) {
        const std::int64_t r = e / shape.n;
        const bool touched = in_a ? (shape.batch_a == 1 ? r % shape.m : r) == row : e % shape.n == col && r < shape.m;
        if (touched ? std::isfinite(after.values[e]) : after.values[e] != before.values[e]) wrong = e;
      }
      INFO("variant " << variant.name << ", " << bad << " in " << (in_a ? "A" : "B") << ", element " << wrong);
      REQUIRE(wrong == -1);
    }
  }
}

}  // namespace suite
