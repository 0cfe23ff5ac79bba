// Step 01 under many schedules: results may not depend on the order in which blocks, warps and lanes run.
#include "common/run/execute.h"
#include "tests/attention_suite.h"
#include "tests/catch.h"

TEST_CASE("every variant is right under eight schedules, on one worker and on several") {
  // Completion modes make no difference here: no kernel of this step copies asynchronously.
  for (const run::AttentionVariant& variant : run::this_step().variants) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      device::configure({seed, device::AsyncMode::late, static_cast<int>(seed % 3)});
      INFO("seed " << seed);
      CHECK(suite::passes(variant, suite::small_shapes(problem::Dtype::fp32), seed) == 3);
    }
  }
  device::configure({});
}
