// Step 06, dropout: gradients right with the mask of the forward pass, at every head dim; variants that do not take it refuse
// it.
#include <algorithm>
#include <vector>

#include "tests/catch.h"
#include "tests/suites/backward_suite.h"

namespace {

using problem::Attention;
using problem::Dtype;

const run::BackwardStep& step() { return run::this_step_as<run::BackwardStep>(); }

Attention dropped(Attention shape, int n, std::uint64_t seed = 1) {
  shape.dropout = n;
  shape.dropout_seed = seed;
  return problem::resolve(shape);
}

suite::BackwardVariants dropping(const Attention& shape, bool everything = false) {
  suite::BackwardVariants variants;
  for (const run::BackwardVariant& variant : step().variants) {
    const bool repeats = variant.name == "tuned" && !everything;  // another variant's kernels
    if (!repeats && variant.supports.dropout && !run::refusal(variant.supports, shape)) variants.push_back(variant);
  }
  return variants;
}

// Each case meets the rung that is made for its head dim; the general ones take turns.
void all_pass(const std::vector<int>& dims, Dtype dtype) {
  std::size_t turn = 0;
  for (const auto& [seq_q, seq_k] : {std::pair{1, 1}, {33, 31}, {64, 128}, {97, 150}, {200, 65}}) {
    for (const auto& [causal, window] : {std::pair{false, 0}, {true, 0}, {true, 70}}) {
      Attention a{.batch = turn % 4 < 2 ? 1 : 2, .heads = 4, .kv_heads = turn % 3 == 0 ? 4 : 2, .seq_q = seq_q, .seq_k = seq_k};
      a.dim = dims[turn % dims.size()];
      a.causal = causal;
      a.window = window;
      a.dtype = dtype;
      constexpr int shares[] = {26, 128, 1, 200, 255};
      const suite::BackwardCase made = suite::ready(step(), {dropped(a, shares[(turn + turn / 5) % 5], turn)}, turn + 1);
      for (const run::BackwardVariant& variant : dropping(made.shape, true)) {
        const bool is_general = variant.name == "recompute" || variant.name == "any_dim" || variant.name == "tuned";
        const std::size_t its_turn = variant.name == "recompute" ? 2 : variant.name == "any_dim" ? 4 : 3;
        if (!is_general || turn % 5 == its_turn || dtype == Dtype::fp32) CHECK(suite::passes(variant, {made}) == 1);
      }
      ++turn;
    }
  }
}

}  // namespace

TEST_CASE("dropout: gradients right under every mask, for shares from 1 to 255 of 256; other variants refuse it by name") {
  all_pass({64, 128, 32, 96, 40}, Dtype::fp16);
  int taking = 0;
  for (const run::BackwardVariant& variant : step().variants) {
    const auto& dims = variant.supports.dims;
    const int dim = dims.empty() || std::find(dims.begin(), dims.end(), 64) != dims.end() ? 64 : 128;
    const auto reason = run::refusal(variant.supports, dropped({.heads = 1, .dim = dim, .dtype = Dtype::fp16}, 26));
    if (variant.supports.dropout) {
      CHECK_FALSE(reason);
      ++taking;
    } else {
      CHECK(reason.value_or("").find("does not support dropout;") == 0);
    }
  }
  CHECK(taking == 5);
}
TEST_CASE("… in bf16 and fp32, and of packed sequences", "[.long]") {
  all_pass({64, 128, 32, 96, 40}, Dtype::bf16);
  all_pass({200, 256, 33}, Dtype::fp16);  // any_dim's, in turns
  all_pass({33}, Dtype::fp32);
  for (suite::Case c : suite::packed_shapes({64, 33}, Dtype::fp16)) {
    c.shape = dropped(c.shape, 77);
    const suite::BackwardCase made = suite::ready(step(), c);
    CHECK(suite::passes(run::variant_named(step(), "recompute"), {made}) == 1);
    CHECK(run::refusal(run::variant_named(step(), "tuned").supports, c.shape));
  }
}

namespace {

suite::BackwardVariants those(const Attention& shape, bool scalar) {
  suite::BackwardVariants variants = dropping(shape);
  std::erase_if(variants, [&](const auto& variant) { return (variant.name == "recompute") != scalar; });
  return variants;
}

Attention with_dropout(int dim, int seq_q, int seq_k) {
  Attention a{.heads = 2, .kv_heads = 1, .seq_q = seq_q, .seq_k = seq_k, .dim = dim, .causal = true, .dtype = Dtype::fp16};
  return dropped(a, 51);
}

void depends_on_visible_pairs_alone(int dim, bool scalar) {
  const Attention a = with_dropout(dim, 70, 90);
  suite::depends_on_visible_pairs(step(), those(a, scalar), a);
}
void nan_stays(int dim, bool scalar) {
  const Attention a = with_dropout(dim, 40, 40);
  suite::contains_nan(step(), those(a, scalar), a, false);
}

}  // namespace

// The scalar kernel takes longer than all others together.
TEST_CASE("dropout: a gradient depends on visible pairs alone, and NaN stays where it is") {
  for (const int dim : {32, 128}) {
    depends_on_visible_pairs_alone(dim, false);
    nan_stays(dim, false);
  }
  nan_stays(32, true);
}
TEST_CASE("… and of the scalar variant, with dropout", "[.long]") {
  for (const int dim : {32, 128}) depends_on_visible_pairs_alone(dim, true);
  nan_stays(128, true);
}
