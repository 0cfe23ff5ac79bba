// Step 03 under many schedules and all completion modes.
#include "tests/catch.h"
#include "tests/suites/softmax_suite.h"
#include "tests/suites/tiers.h"

namespace {

void under_schedules(suite::Seeds seeds) {
  for (const run::SoftmaxVariant& variant : run::this_step_as<run::SoftmaxStep>().variants) {
    suite::under_schedules(seeds, [&](std::uint64_t seed) {
      const auto cases = suite::small_softmax_shapes(seed % 2 == 0 ? problem::Dtype::fp32 : problem::Dtype::fp16);
      INFO("seed " << seed);
      CHECK(suite::passes(variant, {cases[seed % cases.size()]}, seed) == 1);
    });
  }
}

}  // namespace

TEST_CASE("every softmax is right, and none is reported, under two schedules in every completion mode") {
  under_schedules(suite::two_seeds);
}
TEST_CASE("… and under three more", "[.long]") { under_schedules(suite::three_more_seeds); }
