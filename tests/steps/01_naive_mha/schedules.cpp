// Step 01 under many schedules: results may not depend on the order in which blocks, warps and lanes run, and a correct kernel
// is never reported. Completion modes make no difference here: no kernel of this step copies asynchronously.
#include "common/run/harness/execute.h"
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"

namespace {

void under_schedules(suite::Seeds seeds) {
  const auto shapes = suite::small_shapes(problem::Dtype::fp32);
  for (const run::AttentionVariant& variant : run::this_step_as<run::AttentionStep>().variants) {
    for (std::uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
      runtime::configure({seed, runtime::AsyncMode::late, static_cast<int>(seed % 3)});
      INFO("seed " << seed);
      CHECK(suite::passes(variant, {shapes[seed % shapes.size()]}, seed) == 1);
    }
  }
  runtime::configure({});
}

}  // namespace

TEST_CASE("every variant is right, and none is reported, under six schedules, on one worker and on several") {
  under_schedules({1, 6});
}
TEST_CASE("… and under thirty more", "[.long]") { under_schedules({7, 36}); }
