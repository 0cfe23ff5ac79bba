// Step 02 under many schedules and all completion modes: results may not depend on when copies land.
#include "tests/catch.h"
#include "tests/suites/gemm_suite.h"
#include "tests/suites/tiers.h"

namespace {

void under_schedules(suite::Seeds seeds) {
  const auto cases = suite::small_gemm_shapes(problem::Dtype::fp16);
  for (const run::GemmVariant& variant : run::this_step_as<run::GemmStep>().variants) {
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
