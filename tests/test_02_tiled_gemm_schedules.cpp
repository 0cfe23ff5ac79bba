// Step 02 under many schedules and all completion modes: results may not depend on when copies land.
#include "tests/catch.h"
#include "tests/gemm_suite.h"

TEST_CASE("every variant is right, and none is reported, under thirty schedules in every completion mode") {
  const auto cases = suite::small_gemm_shapes(problem::Dtype::fp16);
  for (const run::GemmVariant& variant : run::this_gemm_step().variants) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      device::configure({seed, static_cast<device::AsyncMode>(seed % 3), static_cast<int>(seed / 3 % 3)});
      INFO("seed " << seed);
      CHECK(suite::passes(variant, {cases[seed % cases.size()]}, seed) == 1);
    }
  }
  device::configure({});
}
