// Step 08: every variant is right at every shape, in all types; what it cannot serve it refuses by name.
#include <algorithm>

#include "tests/catch.h"
#include "tests/suites/linear_suite.h"
#include "tests/suites/tiers.h"

namespace {

using problem::Dtype;
using problem::Linear;

const run::LinearStep& step() { return run::this_step_as<run::LinearStep>(); }

Linear irregular() {
  return problem::resolve(
      Linear{.samples = 2, .channels = 4, .weight_samples = 1, .weight_channels = 2, .m = 3, .n = 13, .k = 40, .bias = true});
}

void whole_list(int turn) {
  const auto cases = suite::in_turns(suite::linear_shapes(Dtype::fp16), suite::linear_shapes(Dtype::bf16), turn);
  for (const run::LinearVariant& variant : step().variants) {
    const int all = static_cast<int>(cases.size()), with_fp32_tokens = 2;
    CHECK(suite::passes(variant, cases) == all - (variant.supports.fp32_tokens ? 0 : with_fp32_tokens));
  }
}

}  // namespace

TEST_CASE("every variant is right over the whole shape list, in fp16 and bf16 by turns") { whole_list(0); }
TEST_CASE("every variant is right over the whole shape list, in the other type of each shape", "[.long]") { whole_list(1); }

TEST_CASE("batch entries, permutations and numbers that are not finite are handled as a linear layer must") {
  for (const run::LinearVariant& variant : step().variants) {
    suite::entries_are_independent(variant, irregular());
    suite::follows_permutations(variant, irregular());
    suite::contains_non_finite(variant, irregular());
  }
}

// The tensor-core rungs permute k within 32, and must do so alike for tokens and weights. Token t is 1 at one k and 0 elsewhere,
// so it picks one column of B.
TEST_CASE("each k of the tokens meets its own k of the weights") {
  const Linear shape = problem::resolve(Linear{.m = 16, .n = 19, .k = 200});
  const auto weight = [](int j, int k) { return static_cast<float>((37 * k + 101 * j) % 2039); };  // exact in fp16
  problem::LinearInputs inputs = problem::make_inputs(shape, 1);
  for (int i = 0; i < shape.n * shape.k; ++i) {
    inputs.b.values[static_cast<std::size_t>(i)] = weight(i / shape.k, i % shape.k);
  }
  for (const run::LinearVariant& variant : step().variants) {
    if (run::refusal(variant.supports, shape)) continue;
    INFO("variant " << variant.name);
    for (int first = 0; first < shape.k; first += shape.m) {
      const auto k_of = [&](int token) { return (first + token) % shape.k; };
      std::fill(inputs.a.values.begin(), inputs.a.values.end(), 0.0f);
      for (int t = 0; t < shape.m; ++t) inputs.a.values[static_cast<std::size_t>(t * shape.k + k_of(t))] = 1;
      const run::Outcome outcome = run::execute(variant, shape, inputs, {.check = false});
      REQUIRE(outcome.pass());
      const problem::Tensor& c = outcome.output("c");
      for (int i = 0; i < shape.m * shape.n; ++i) {
        INFO("token " << i / shape.n << ", row " << i % shape.n << " of B");
        REQUIRE(c.values[static_cast<std::size_t>(i)] == weight(i % shape.n, k_of(i / shape.n)));
      }
    }
  }
}
