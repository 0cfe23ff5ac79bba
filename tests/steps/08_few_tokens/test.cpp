// Step 08: every variant is right at every shape, in all types; what it cannot serve it refuses by name.
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
  for (const run::LinearVariant& variant : suite::plain_variants(step())) {
    const int all = static_cast<int>(cases.size()), with_fp32_tokens = 2;
    CHECK(suite::passes(variant, cases) == all - (variant.supports.fp32_tokens ? 0 : with_fp32_tokens));
  }
}

}  // namespace

TEST_CASE("every variant is right over the whole shape list, in fp16 and bf16 by turns") { whole_list(0); }
TEST_CASE("every variant is right over the whole shape list, in the other type of each shape", "[.long]") { whole_list(1); }

TEST_CASE("batch entries, permutations and numbers that are not finite are handled as a linear layer must") {
  for (const run::LinearVariant& variant : suite::plain_variants(step())) {
    suite::entries_are_independent(variant, irregular());
    suite::follows_permutations(variant, irregular());
    suite::contains_non_finite(variant, irregular());
  }
}
