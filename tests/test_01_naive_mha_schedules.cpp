// Step 01 under a hundred schedules: results may not depend on the order in which blocks, warps and lanes run, and a correct
// kernel is never reported.
#include "common/run/execute.h"
#include "tests/attention_suite.h"
#include "tests/catch.h"

TEST_CASE("every variant is right, and none is reported, under a hundred schedules, on one worker and on several") {
  // Completion modes make no difference here: no kernel of this step copies asynchronously.
  const auto shapes = suite::small_shapes(problem::Dtype::fp32);
  for (const run::AttentionVariant& variant : run::this_step().variants) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      device::configure({seed, device::AsyncMode::late, static_cast<int>(seed % 3)});
      INFO("seed " << seed);
      CHECK(suite::passes(variant, {shapes[seed % shapes.size()]}, seed) == 1);
    }
  }
  device::configure({});
}
