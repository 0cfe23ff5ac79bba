// Step 09 under many schedules and all completion modes.
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"
#include "tests/suites/tiers.h"

namespace {

void under_schedules(suite::Seeds seeds, bool all_shapes) {
  const auto shape = [](int batch, int heads, int kv_heads, int seq_q, int seq_k, bool causal) {
    return problem::resolve(problem::Attention{.batch = batch,
                                               .heads = heads,
                                               .kv_heads = kv_heads,
                                               .seq_q = seq_q,
                                               .seq_k = seq_k,
                                               .dim = 64,
                                               .causal = causal,
                                               .dtype = problem::Dtype::fp16});
  };
  // More tiles than stages, in a cluster; rows that see different keys; items that are cut.
  const std::vector<suite::Case> cases = {
      {shape(1, 4, 1, 1, 900, false)}, {shape(1, 3, 1, 6, 100, true)}, {shape(10, 7, 7, 1, 130, false)}};
  for (const run::AttentionVariant& variant : run::this_step_as<run::AttentionStep>().variants) {
    suite::passes_under_schedules(variant, cases, seeds, all_shapes);
  }
}

}  // namespace

TEST_CASE("every variant is right, and none is reported, under two schedules in every completion mode") {
  under_schedules(suite::two_seeds, false);
}
TEST_CASE("… and under three more, at all three shapes", "[.long]") { under_schedules(suite::three_more_seeds, true); }
