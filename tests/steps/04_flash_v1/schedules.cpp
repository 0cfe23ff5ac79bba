// Step 04 under many schedules: results may not depend on the order in which blocks, warps and lanes run, and a correct kernel
// is never reported.
#include "common/run/harness/execute.h"
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"

namespace {

void under_schedules(suite::Seeds seeds, bool all_shapes) {
  for (const run::AttentionVariant& variant : run::this_step_as<run::AttentionStep>().variants) {
    if (!variant.demonstration.empty()) continue;
    for (const problem::Dtype dtype : {problem::Dtype::fp32, problem::Dtype::bf16}) {
      if (run::refusal(variant.supports, suite::small_shapes(dtype)[1].shape)) continue;  // the tensor cores' has no fp32
      std::vector<suite::Case> shapes = suite::small_shapes(dtype);
      for (suite::Case& c : shapes) c.shape.dim = c.shape.dim == 32 ? 32 : 64;  // what every variant takes
      suite::passes_under_schedules(variant, shapes, seeds, all_shapes);
    }
  }
}

}  // namespace

TEST_CASE("every variant is right, and none is reported, under two schedules in every completion mode") {
  under_schedules(suite::two_seeds, false);
}
TEST_CASE("… and under three more, on three shapes", "[.long]") { under_schedules(suite::three_more_seeds, true); }
