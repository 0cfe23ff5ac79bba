// Step 03 under many schedules and all completion modes.
#include "tests/catch.h"
#include "tests/softmax_suite.h"

TEST_CASE("every softmax is right, and none is reported, under eight schedules in every completion mode") {
  for (const run::SoftmaxVariant& variant : run::this_softmax_step().variants) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      for (const auto mode : {device::AsyncMode::late, device::AsyncMode::eager, device::AsyncMode::random}) {
        device::configure({seed, mode, static_cast<int>(seed % 3)});
        const auto cases = suite::small_softmax_shapes(seed % 2 == 0 ? problem::Dtype::fp32 : problem::Dtype::fp16);
        INFO("seed " << seed);
        CHECK(suite::passes(variant, {cases[seed % cases.size()]}, seed) == 1);
      }
    }
  }
  device::configure({});
}
