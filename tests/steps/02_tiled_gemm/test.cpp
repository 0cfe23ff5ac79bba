// Step 02: every variant is right at every shape, in both types.
#include <algorithm>

#include "common/run/family/gemm.h"
#include "tests/catch.h"
#include "tests/steps/02_tiled_gemm/faulty_products.h"
#include "tests/suites/gemm_suite.h"
#include "tests/suites/tiers.h"

namespace {

const run::GemmStep& step() { return run::this_step_as<run::GemmStep>(); }

problem::Gemm irregular() {
  problem::Gemm g;
  g.batch = 3;
  g.m = 37;
  g.n = 29;
  g.k = 40;
  g.dtype = problem::Dtype::fp16;
  return problem::resolve(g);
}

// The rungs between `pipeline` and `tuned`: each has parts of `tuned`, whose every promise is tested, and so runs a short list.
bool leads_to_tuned(const run::GemmVariant& variant) {
  const auto names = {"large_tiles", "double_buffering", "block_order", "wide_epilogue", "addresses"};
  return std::find(names.begin(), names.end(), variant.name) != names.end();
}

// Several tiles, a batch and rows of C that begin anywhere; more k-tiles than stages; a single row of C.
std::vector<suite::GemmCase> short_list() {
  using problem::Dtype;
  return {{problem::resolve({.batch = 2, .m = 65, .n = 257, .k = 72, .ldc = 259, .dtype = Dtype::fp16})},
          {problem::resolve(problem::Gemm{.m = 129, .n = 7, .k = 328, .ldc = 8, .dtype = Dtype::bf16})},
          {problem::resolve(problem::Gemm{.m = 1, .n = 7, .k = 8, .dtype = Dtype::fp16})}};
}

void whole_list(int turn) {
  const auto cases = suite::in_turns(suite::gemm_shapes(problem::Dtype::fp16), suite::gemm_shapes(problem::Dtype::bf16), turn);
  for (const run::GemmVariant& variant : step().variants) {
    if (!leads_to_tuned(variant)) CHECK(suite::passes(variant, cases) == static_cast<int>(cases.size()));
  }
}

}  // namespace

TEST_CASE("every variant is right over the whole shape list, in fp16 and bf16 by turns") { whole_list(0); }
TEST_CASE("every variant is right over the whole shape list, in the other type of each shape", "[.long]") { whole_list(1); }

TEST_CASE(
    "the rungs between pipeline and tuned are right over several tiles, more k-tiles than stages, and a single row of C") {
  for (const run::GemmVariant& variant : step().variants) {
    if (leads_to_tuned(variant)) CHECK(suite::passes(variant, short_list()) == 3);
  }
}

TEST_CASE("more rows of tiles than a group has, and the last group lower than the others, leave no tile of C out") {
  const auto& variants = step().variants;
  const auto block_order =
      std::find_if(variants.begin(), variants.end(), [](const auto& v) { return v.name == "block_order"; });
  REQUIRE(block_order != variants.end());
  CHECK(suite::passes(*block_order,
                      {{problem::resolve(problem::Gemm{.m = 2056, .n = 264, .k = 8, .dtype = problem::Dtype::fp16})}}) == 1);
}

TEST_CASE("batches, permutations and NaNs are handled as a product must") {
  for (const run::GemmVariant& variant : step().variants) {
    if (leads_to_tuned(variant)) continue;
    suite::batches_are_independent(variant, irregular());
    suite::follows_permutations(variant, irregular());
    suite::contains_nan(variant, irregular());
  }
}

TEST_CASE("a fragment of the wrong layout, swapped registers and a swizzle on one side make C wrong, and nothing else") {
  problem::Gemm shape = irregular();
  shape.k = shape.lda = shape.ldb = 136;
  const problem::GemmInputs inputs = problem::make_inputs(shape, 1);
  for (const run::GemmVariant& variant : faulty::products()) {
    INFO(variant.name);
    const run::Outcome outcome = run::execute(variant, shape, inputs);
    CHECK(outcome.findings.empty());
    CHECK(outcome.verdict->guards_intact);
    if (variant.name == "none") {
      CHECK(outcome.pass());
    } else {
      CHECK_THAT(outcome.verdict->reason(), Catch::Matchers::StartsWith("C: row (batch "));
    }
  }
}
