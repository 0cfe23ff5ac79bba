// Step 07, what only the simulator can tell: results do not depend on the schedule or on when copies land, and dK and dV do not
// by a bit. The plan's kernels and those that merge parts run under the same schedules.
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"
#include "tests/suites/backward_suite.h"

namespace {

using problem::Attention;

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }

Attention masked(Attention shape, const std::string& pattern, int dim, int block_q, int block_k) {
  shape.dim = dim;
  shape.dtype = problem::Dtype::fp16;
  shape = problem::resolve(shape);
  shape.sparse = problem::make_pattern(pattern, shape, block_q, block_k, 3);
  return problem::resolve(shape);
}

// Whole and partial tiles, rows and columns without any, dead halves of a tile of keys, and a head whose rows and columns are
// split.
std::vector<Attention> shapes(int dim, int block_q, bool by_token) {
  Attention causal{.heads = 4, .kv_heads = 2, .seq_q = 150, .seq_k = 270, .causal = true};
  Attention uneven{.heads = 8, .kv_heads = 8, .seq_q = 70, .seq_k = 330};
  Attention window{.heads = 2, .kv_heads = 1, .seq_q = 200, .seq_k = 140, .window = 75};
  const char* types = by_token ? "random:0.5,sink:3t+local:70t,empty,sink:1+local:1" : "random:0.5,dense,empty,sink:1+local:1";
  return {masked(causal, types, dim, block_q, 64),
          masked(uneven, "dense,empty,empty,empty,empty,empty,empty,empty", dim, block_q, 64),
          masked(window, "band:1,random:0.7", dim, block_q, 128)};
}

void forward_under_schedules(suite::Seeds seeds, bool all_shapes) {
  for (const run::AttentionVariant& variant : step().variants) {
    const bool is_rung = variant.name != "balanced";
    std::vector<suite::Case> cases;
    int turn = 0;
    for (const Attention& shape : shapes(is_rung ? 64 : 32, 128, variant.supports.sparse_tokens)) cases.push_back({shape});
    if (!is_rung) {
      for (const Attention& shape : shapes(128, 64, true)) {
        if (turn++ != 1 || all_shapes) cases.push_back({shape});
      }
    }
    suite::passes_under_schedules(variant, cases, seeds, all_shapes);
  }
}

void backward_under_schedules(suite::Seeds seeds, bool all_shapes) {
  const run::BackwardStep& backward = *step().backward;
  for (const int dim : {32, 128}) {  // each kernel has one of them
    std::vector<suite::BackwardCase> cases;
    for (const Attention& shape : shapes(dim, dim == 32 ? 128 : 64, true)) cases.push_back(suite::ready(backward, {shape}));
    for (const run::BackwardVariant& variant : backward.variants) {
      suite::passes_under_schedules(variant, cases, seeds, all_shapes);
    }
  }
}

}  // namespace

TEST_CASE("every variant is right, and none is reported, under two schedules in every completion mode") {
  forward_under_schedules(suite::two_seeds, false);
}
TEST_CASE("… and under three more, on three shapes", "[.long]") { forward_under_schedules(suite::three_more_seeds, true); }

TEST_CASE("gradients are right, dK and dV to the bit, under two schedules in every completion mode") {
  backward_under_schedules(suite::two_seeds, false);
}
TEST_CASE("… gradients under three more, on three shapes", "[.long]") {
  backward_under_schedules(suite::three_more_seeds, true);
}

TEST_CASE("packed sequences and dropout under masks: no schedule matters") {
  Attention a = suite::packed({65, 3, 90}, 32, problem::Dtype::fp16, true, 0, 2, 2);
  a.dropout = 51;
  a.sparse = problem::make_pattern("random:0.6,sink:5t+local:30t", a, 64, 64, 5);
  a = problem::resolve(a);
  suite::passes_under_schedules(run::variant_named(step(), "balanced"), {{a}}, suite::one_seed, true);
  const run::BackwardStep& backward = *step().backward;
  const suite::BackwardCase c = suite::ready(backward, {a});
  for (const run::BackwardVariant& variant : backward.variants)
    suite::passes_under_schedules(variant, {c}, suite::one_seed, true);
}
