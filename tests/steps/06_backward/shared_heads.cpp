// Step 06: query heads that share a key/value head are split over blocks, and their dK and dV added up.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "steps/06_backward/parts.h"
#include "tests/catch.h"
#include "tests/suites/backward_suite.h"

namespace {

using problem::Backward;
using problem::Dtype;

const run::BackwardStep& step() { return run::this_step_as<run::BackwardStep>(); }

Backward shape(int batch, int heads, int kv_heads, int seq, int dim, bool causal = false) {
  Backward a;
  a.batch = batch;
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.seq_q = a.seq_k = seq;
  a.dim = dim;
  a.causal = causal;
  a.dtype = Dtype::fp16;
  return problem::resolve(a);
}

// Those that split.
suite::BackwardVariants splitting() {
  return {run::variant_named(step(), "tuned"), run::variant_named(step(), "deterministic"),
          run::variant_named(step(), "tuned_80")};
}

}  // namespace

TEST_CASE("parts are as few as fill the device, and there are none where a head has keys of its own or enough of them") {
  const auto parts = [](int batch, int heads, int kv_heads, int seq, int dim, bool causal = false) {
    return backward::parts_of(shape(batch, heads, kv_heads, seq, dim, causal));
  };
  // 32 blocks of 128 keys, for 264 places at dim 64, and for 132 at dim 128.
  CHECK(parts(1, 32, 1, 4096, 64) == 8);
  CHECK(parts(1, 32, 1, 4096, 128) == 4);
  CHECK(parts(1, 32, 1, 4096, 64, true) == 32);  // the shorter, the less the last block takes
  CHECK(parts(1, 32, 8, 4096, 64) == 1);
  CHECK(parts(1, 32, 8, 4096, 64, true) == 4);
  CHECK(parts(1, 32, 8, 8192, 128, true) == 4);
  CHECK(parts(16, 32, 8, 4096, 64, true) == 1);  // 4096 blocks
  CHECK(parts(1, 32, 32, 64, 64) == 1);
  CHECK(parts(1, 7, 1, 10, 96) == 7);
  CHECK(parts(1, 65535, 1, 1, 64) <= 16 * 264);
  CHECK(65535 % parts(1, 65535, 1, 1, 64) == 0);
  CHECK(parts(65535, 2, 1, 1, 64) == 1);
  CHECK(parts(1, 6, 2, 100, 40) == 1);  // any_dim serves it
  Backward dropped = shape(1, 6, 2, 100, 64);
  dropped.dropout = 77;
  CHECK(backward::parts_of(dropped) == 1);
  CHECK(backward::parts_of(Backward{suite::packed({5, 9}, 64, Dtype::fp16)}) == 1);
}

namespace {

// In all layouts, or one by turns: tokens first or heads, with gaps or without.
void parts_pass(bool all_layouts) {
  std::size_t turn = 0;
  for (const auto& [batch, heads, kv_heads] : {std::tuple{1, 6, 2}, {2, 3, 1}, {2, 4, 2}}) {
    for (const int dim : {32, 64, 96, 128}) {
      Backward a = shape(batch, heads, kv_heads, 40, dim, turn % 2 == 0);
      a.seq_k = 70;
      if (turn % 3 == 0) a.dtype = Dtype::bf16;
      REQUIRE(backward::parts_of(a) == heads / kv_heads);
      const suite::BackwardCase c = suite::ready(step(), {a});
      std::size_t layout = turn / 4 + turn;  // another for each variant, and for each of a head dim's three shapes
      for (const run::BackwardVariant& variant : splitting()) {
        ++layout;
        for (std::size_t n = 0; n < 4; ++n) {
          if (all_layouts || n == layout % 4)
            suite::clean(variant, c, {.layout = {.tokens_first = n >= 2, .gaps = n % 2 == 1}});
        }
      }
      ++turn;
    }
  }
}

}  // namespace

TEST_CASE("gradients of parts are right in every layout, by turns, and where no strides reach the parts") { parts_pass(false); }
TEST_CASE("… each in all layouts", "[.long]") { parts_pass(true); }

TEST_CASE("parts: masks, windows, empty rows") {
  Backward causal = shape(1, 4, 2, 150, 64, true), window = shape(1, 3, 1, 70, 128);
  causal.seq_k = 140;  // the first queries see no key
  window.seq_k = 200;
  window.window = 30;  // nobody sees the first keys
  for (const Backward& a : {causal, window}) {
    REQUIRE(backward::parts_of(a) > 1);
    suite::empty_rows_are_zero(step(), splitting(), a);
  }
}

TEST_CASE("parts: what a gradient does not depend on does not touch it, NaN stays where it is") {
  suite::heads_are_independent(step(), splitting(), shape(2, 4, 2, 33, 64));
  suite::depends_on_visible_pairs(step(), splitting(), shape(1, 2, 1, 70, 128, true));
  suite::contains_nan(step(), splitting(), shape(1, 4, 2, 40, 64, true), false);
}

// 60 queries with equal weights on two keys give a part of dV 30 · 4000, which no fp16 holds; the other head of the group takes
// it back.
TEST_CASE("parts that overflow, and whose sum does not, are made again") {
  for (const int dim : {64, 128}) {
    const Backward a = shape(1, 2, 1, 60, dim);
    Backward two_keys = a;
    two_keys.seq_k = 2;
    suite::BackwardCase c = suite::ready(step(), {two_keys});
    problem::BackwardInputs inputs = c.inputs;
    std::fill(inputs.q.values.begin(), inputs.q.values.end(), 0.0f);
    for (std::size_t i = 0; i < inputs.d_o.values.size(); ++i) {
      const bool first_head = i < inputs.d_o.values.size() / 2;
      inputs.d_o.values[i] = first_head ? 4000.0f : -3992.0f;
    }
    c = suite::ready(step(), two_keys, inputs);
    for (const run::BackwardVariant& variant : splitting()) {
      INFO(variant.name << ", dim " << dim);
      const run::Outcome outcome = suite::clean(variant, c);
      for (const float x : outcome.output("dv").values) CHECK(std::abs(x) < 1000);
    }
  }
}
