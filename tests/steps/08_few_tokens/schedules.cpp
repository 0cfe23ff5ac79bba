// Step 08 under many schedules and all completion modes.
#include "tests/catch.h"
#include "tests/steps/08_few_tokens/permutation.h"
#include "tests/suites/linear_suite.h"
#include "tests/suites/tiers.h"

namespace {

void under_schedules(suite::Seeds seeds) {
  const auto cases = suite::small_linear_shapes(problem::Dtype::fp16);
  for (const run::LinearVariant& variant : suite::plain_variants(run::this_step_as<run::LinearStep>())) {
    suite::under_schedules(seeds, [&](std::uint64_t seed) {
      INFO("seed " << seed);
      CHECK(suite::passes(variant, {cases[seed % cases.size()]}, seed) == 1);
    });
  }
}

}  // namespace

TEST_CASE("every variant is right, and none is reported, under two schedules in every completion mode") {
  under_schedules(suite::two_seeds);
}
TEST_CASE("… and under three more", "[.long]") { under_schedules(suite::three_more_seeds); }

TEST_CASE("routed products are right under schedules in every completion mode") {
  const problem::Linear shape = problem::resolve(problem::Linear{.m = 5, .n = 20, .k = 136, .experts = 3, .top = 2});
  for (const run::LinearVariant& variant : run::this_step_as<run::LinearStep>().variants) {
    if (!variant.supports.experts) continue;
    suite::under_schedules(suite::one_seed, [&](std::uint64_t seed) {
      INFO("seed " << seed);
      CHECK(suite::passes(variant, {{shape}}, seed) == 1);
    });
  }
}

TEST_CASE("many pairs are sorted under any schedule") {
  const std::vector<int> ids = permutation::scattered(5000, 530);
  suite::under_schedules(suite::two_seeds, [&](std::uint64_t seed) {
    INFO("seed " << seed);
    CHECK(permutation::by_expert(ids, 530, true) == permutation::by_stable_sort(ids, 530));
    CHECK(runtime::take_findings().empty());
  });
}
