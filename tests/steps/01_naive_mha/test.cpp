// Step 01: every variant is right at every shape, under every schedule, and its predicted cost is what its loops do.
#include <cmath>

#include "common/problem/npy.h"
#include "common/run/harness/execute.h"
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"

namespace {

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }

problem::Attention shape(int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim, bool causal) {
  problem::Attention s;
  s.batch = batch;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.seq_q = seq_q;
  s.seq_k = seq_k;
  s.dim = dim;
  s.causal = causal;
  return problem::resolve(s);
}

run::LayerInputs stored_layer() {
  const auto read = [](const char* name) {
    return problem::read_npy(std::string("data/minilm_layer/") + name + ".npy").tensor;
  };
  return {read("x"), read("in_proj_weight"), read("in_proj_bias"), read("out_proj_weight"), read("out_proj_bias")};
}

}  // namespace

namespace {

void all_pass(const std::vector<suite::Case>& cases) {
  for (const run::AttentionVariant& variant : step().variants) {
    CHECK(suite::passes(variant, cases) == static_cast<int>(cases.size()));
  }
}

}  // namespace

TEST_CASE("every variant is right over the shape list, large shapes under one mask, and refuses nothing on it") {
  all_pass(suite::one_mask_each(suite::shape_list(problem::Dtype::fp32)));
}
TEST_CASE("… large shapes under the other mask", "[.long]") {
  all_pass(suite::other_masks(suite::shape_list(problem::Dtype::fp32)));
}

TEST_CASE("keys and values after a position do not change the rows before it, by a bit") {
  for (const run::AttentionVariant& variant : step().variants) {
    suite::is_causal(variant, shape(1, 2, 1, 41, 41, 32, true));
    suite::is_causal(variant, shape(1, 2, 2, 23, 57, 40, true));
  }
}

TEST_CASE("batch entries and heads do not influence each other, by a bit") {
  for (const run::AttentionVariant& variant : step().variants) {
    suite::heads_are_independent(variant, shape(2, 4, 2, 19, 37, 40, false));
  }
}

TEST_CASE("the order of the keys does not matter") {
  for (const run::AttentionVariant& variant : step().variants) {
    suite::ignores_key_order(variant, shape(1, 3, 3, 65, 97, 64, false));
  }
}

TEST_CASE("scores of −∞ add nothing and hide nothing; +∞ and NaN make their row NaN") {
  for (const run::AttentionVariant& variant : step().variants) {
    suite::takes_infinite_scores(variant, shape(1, 1, 1, 17, 39, 32, false));
  }
}

TEST_CASE("scores of any size, alone in their rows") {
  for (const run::AttentionVariant& variant : step().variants) {
    suite::takes_scores_far_from_zero(variant, shape(1, 1, 1, 17, 39, 32, false));
    suite::takes_scores_far_from_zero(variant, shape(1, 2, 1, 9, 20, 2, true));
  }
}

TEST_CASE("a scale of 0 gives uniform rows") {
  problem::Attention s = shape(1, 2, 1, 17, 39, 32, true);
  s.scale = 0.0f;
  for (const run::AttentionVariant& variant : step().variants) REQUIRE(suite::passes(variant, {{s}}) == 1);
}

TEST_CASE("NaN and infinity reach the rows that see them, and no others") {
  for (const run::AttentionVariant& variant : step().variants) suite::contains_nan(variant, shape(2, 2, 1, 31, 45, 32, true));
}

TEST_CASE("the layer gives the model's own output on real input (the tour compares every variant)") {
  const run::LayerInputs inputs = stored_layer();
  const problem::Tensor expected = problem::read_npy("data/minilm_layer/y_model.npy").tensor;
  const problem::Attention layer = shape(1, 12, 12, 207, 207, 32, false);
  float largest = 0.0f;
  for (const float y : expected.values) largest = std::max(largest, std::abs(y));
  const run::LayerTruth truth(layer, inputs);
  const run::Outcome outcome = run::execute_layer(step(), step().variants.back(), layer, inputs, {}, &truth);
  REQUIRE(outcome.pass());
  const problem::Tensor& y = outcome.output("y");
  REQUIRE(y.values.size() == expected.values.size());
  float difference = 0.0f;
  for (std::size_t i = 0; i < y.values.size(); ++i)
    difference = std::max(difference, std::abs(y.values[i] - expected.values[i]));
  CHECK(difference <= 1e-5f * largest);
}

TEST_CASE("a fused kernel would move 1.5 % of what three kernels move: the page's own example") {
  problem::Attention s = shape(1, 16, 16, 4096, 4096, 64, false);
  double moved = 0;
  for (const problem::KernelCost& kernel : step().variants[0].cost(s)) moved += kernel.bytes_read + kernel.bytes_written;
  CHECK(moved == Approx(4.37e9).epsilon(0.005));
  CHECK(s.compulsory_bytes() / moved == Approx(0.0154).epsilon(0.01));
}
