// Step 02: every variant is right at every shape, in both types.
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

void whole_list(int turn) {
  const auto cases = suite::in_turns(suite::gemm_shapes(problem::Dtype::fp16), suite::gemm_shapes(problem::Dtype::bf16), turn);
  for (const run::GemmVariant& variant : step().variants) {
    CHECK(suite::passes(variant, cases) == static_cast<int>(cases.size()));
  }
}

}  // namespace

TEST_CASE("every variant is right over the whole shape list, in fp16 and bf16 by turns") { whole_list(0); }
TEST_CASE("every variant is right over the whole shape list, in the other type of each shape", "[.long]") { whole_list(1); }

TEST_CASE("batches, permutations and NaNs are handled as a product must") {
  for (const run::GemmVariant& variant : step().variants) {
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
