// Step 05, dropout: right with every mask, at every head dim, for the smallest and the largest share; variants that do not take
// it refuse it.
#include "common/device/dropout.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/catch.h"
#include "tests/suites/attention_suite.h"

namespace {

using problem::Attention;
using problem::Dtype;

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }

Attention dropped(Attention shape, int n, std::uint64_t seed = 1) {
  shape.dropout = n;
  shape.dropout_seed = seed;
  return problem::resolve(shape);
}

std::vector<run::AttentionVariant> dropping() {
  std::vector<run::AttentionVariant> variants;
  for (const run::AttentionVariant& variant : step().variants) {
    if (variant.supports.dropout) variants.push_back(variant);
  }
  return variants;
}

// Lengths around a tile and around 32, under each kind of mask; the share and the seed change from one to the next.
std::vector<suite::Case> cases(const std::vector<int>& dims, Dtype dtype) {
  std::vector<suite::Case> list;
  std::size_t turn = 0;
  for (const auto& [seq_q, seq_k] : {std::pair{1, 1}, {31, 33}, {64, 64}, {150, 97}, {65, 200}, {129, 128}}) {
    for (const auto& [causal, window] : {std::pair{false, 0}, {true, 0}, {true, 70}}) {
      Attention a{.batch = turn % 4 < 2 ? 1 : 2, .heads = 4, .kv_heads = turn % 3 == 0 ? 4 : 2, .seq_q = seq_q, .seq_k = seq_k};
      a.dim = dims[(turn + turn / 6) % dims.size()];  // so that a head dim meets each mask
      a.causal = causal;
      a.window = window;
      a.dtype = dtype;
      constexpr int shares[] = {26, 128, 1, 200, 255};
      list.push_back({dropped(a, shares[(turn + turn / 5) % 5], turn == 4 ? ~std::uint64_t{0} : turn)});
      ++turn;
    }
  }
  return list;
}

}  // namespace

TEST_CASE("dropout: right under every mask, for shares from 1 to 255 of 256; other variants refuse it by name") {
  CHECK(dropping().size() == 3);
  for (const run::AttentionVariant& variant : step().variants) {
    auto list = cases(variant.name == "scalar"    ? std::vector{33}
                      : variant.name == "any_dim" ? std::vector{40, 33, 128, 200, 90}
                                                  : std::vector{64, 32, 128, 256, 96, 40},
                      Dtype::fp16);
    if (variant.name != "tuned") list.resize(9);  // they have no tiles of their own for dropout
    if (variant.supports.dropout) {
      CHECK(suite::passes(variant, list) == std::ssize(list));
    } else {
      const auto reason = run::refusal(variant.supports, dropped({.heads = 1, .dim = 64, .dtype = Dtype::fp16}, 26));
      CHECK(reason.value_or("").find("does not support dropout;") == 0);
    }
  }
}
TEST_CASE("… in bf16 and fp32, and of packed sequences", "[.long]") {
  for (const run::AttentionVariant& variant : dropping()) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) {
      const std::vector<int> dims = variant.name == "scalar" ? std::vector{64, 33} : std::vector{64, 32, 128, 256, 96, 40};
      const auto& served = variant.supports.dtypes;
      const bool takes = std::find(served.begin(), served.end(), dtype) != served.end();
      CHECK((suite::passes(variant, cases(dims, dtype)) > 0) == takes);
    }
  }
  std::vector<suite::Case> packed = suite::packed_shapes({64, 33}, Dtype::fp16);
  for (suite::Case& c : packed) c.shape = dropped(c.shape, 77);
  CHECK(suite::passes(step().variants.front(), packed) == std::ssize(packed));
  CHECK(run::refusal(run::variant_named(step(), "tuned").supports, packed.front().shape));
}

TEST_CASE("dropout: LSE has the bits that it has without, O another mask for each seed, and NaN stays where it is") {
  Attention plain{.heads = 2, .kv_heads = 2, .seq_q = 70, .seq_k = 140, .dim = 64, .dtype = Dtype::fp16};
  plain = problem::resolve(plain);
  const auto inputs = problem::make_inputs(plain, 4);
  for (const run::AttentionVariant& variant : dropping()) {
    INFO(variant.name);
    const run::Outcome without = run::execute(variant, plain, inputs),
                       some = run::execute(variant, dropped(plain, 26, 1), inputs),
                       others = run::execute(variant, dropped(plain, 26, 2), inputs);
    REQUIRE((without.pass() && some.pass() && others.pass()));
    CHECK_FALSE(check::first_difference(without.output("lse").values, some.output("lse").values));
    CHECK(check::first_difference(some.output("o").values, others.output("o").values));
    Attention causal = plain;
    causal.causal = true;
    suite::contains_nan(variant, dropped(causal, 26));
  }
}

TEST_CASE("dropout: an infinite value makes ∞ where its pair is kept, and NaN where it is left out: 0 · ∞") {
  constexpr int key = 3, column = 1;
  for (const int seq_k : {40, 128}) {  // a tile with a mask, and tiles without
    const Attention a = dropped({.heads = 2, .kv_heads = 2, .seq_q = 50, .seq_k = seq_k, .dim = 32, .dtype = Dtype::fp16}, 128);
    problem::AttentionInputs inputs = problem::make_inputs(a, 4);
    for (int head = 0; head < 2; ++head) {
      inputs.v.values[static_cast<std::size_t>((head * seq_k + key) * a.dim + column)] = std::numeric_limits<float>::infinity();
    }
    for (const run::AttentionVariant& variant : dropping()) {
      INFO(variant.name << ", " << seq_k << " keys");
      const run::Outcome outcome = run::execute(variant, a, inputs);
      CHECK(outcome.pass());
      for (int row = 0; row < 2 * a.seq_q; ++row) {
        const float found = outcome.output("o").values[static_cast<std::size_t>(row * a.dim + column)];
        const bool kept = device::make_dropout(a.dropout_seed, a.dropout).keeps(0, row / a.seq_q, row % a.seq_q, key);
        if (kept ? !std::isinf(found) : !std::isnan(found)) FAIL_CHECK("row " << row << ": " << found);
      }
    }
  }
}
