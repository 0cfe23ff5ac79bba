// Step 07 on real input: Q, K and V of a layer of a real model on its longest input, under the mask that keeps 95 % of the
// probability of every row of blocks (data/minilm_long; tools/learn/probable_blocks.py made the masks).
#include <utility>

#include "common/run/family/attention_files.h"
#include "common/run/family/attention_truth.h"
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"
#include "tests/suites/backward_suite.h"

namespace {

using problem::Attention;
using problem::Dtype;
using problem::HeadType;
using problem::SparseMask;

constexpr const char* data = "data/minilm_long";

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }

struct Real {
  Attention shape;  // resolved, with its mask
  problem::AttentionInputs inputs;
};

// The masks of blocks of 128 × 128 and of 64 × 64.
Real real(int block, Dtype dtype) {
  problem::AttentionInputs in = run::read_attention_inputs(data, dtype);
  Attention a{.heads = 12, .kv_heads = 12, .seq_q = 512, .seq_k = 512, .dim = 32, .dtype = dtype};
  a = problem::resolve(a);
  a.sparse = run::read_sparse_mask(block == 128 ? std::string(data) : std::string(data) + "/blocks_64", a, block, block);
  return {problem::resolve(a), std::move(in)};
}

bool is_live(const Attention& a, int head, int row, int column) { return problem::is_live(*a.sparse, a, 0, head, row, column); }

// The last live block of a row of a block-sparse head that has several: the same shape without it.
Attention one_block_dropped(const Attention& a) {
  SparseMask mask = *a.sparse;
  const int rows = problem::query_blocks(mask, a), columns = problem::key_blocks(mask, a),
            words = problem::words_of_row(mask, a);
  REQUIRE(words == 1);
  for (int head = 0; head < a.heads; ++head) {
    if (mask.type(head) != HeadType::block_sparse) continue;
    for (int row = 0; row < rows; ++row) {
      int live = 0, last = 0;
      for (int column = 0; column < columns; ++column) {
        if (is_live(a, head, row, column)) ++live, last = column;
      }
      if (live < 2) continue;
      mask.live[head * rows + row] &= ~static_cast<std::int32_t>(1u << last);
      Attention dropped = a;
      dropped.sparse = std::make_shared<SparseMask>(mask);
      return problem::resolve(dropped);
    }
  }
  FAIL("no row of blocks has two live ones");
  return a;
}

// Variants of the forward pass that take these heads of 32.
std::vector<run::AttentionVariant> variants(const Attention& a) {
  std::vector<run::AttentionVariant> some;
  for (const run::AttentionVariant& variant : step().variants) {
    if (!run::refusal(variant.supports, a)) some.push_back(variant);
  }
  REQUIRE(!some.empty());
  return some;
}

std::vector<run::BackwardVariant> backward_variants(const problem::Backward& shape) {
  std::vector<run::BackwardVariant> some;
  for (const run::BackwardVariant& variant : step().backward->variants) {
    if (!run::refusal(variant.supports, shape)) some.push_back(variant);
  }
  REQUIRE(!some.empty());
  return some;
}

// dO is close to N(0, 1): the data has none.
suite::BackwardCase backward_case(const Real& of) {
  const problem::Backward shape{of.shape};
  problem::BackwardInputs in = problem::make_inputs(shape, 1);
  in.q = of.inputs.q, in.k = of.inputs.k, in.v = of.inputs.v;
  return suite::ready(*step().backward, of.shape, std::move(in));
}

}  // namespace

TEST_CASE("the real masks are sparse, and have heads that they leave dense") {
  for (const int block : {128, 64}) {
    const Real of = real(block, Dtype::fp16);
    CHECK(of.shape.live_pairs() < 0.95 * 12 * 512 * 512);
    CHECK(of.shape.sparse->has(HeadType::block_sparse));
  }
  CHECK(real(64, Dtype::fp16).shape.live_pairs() < real(128, Dtype::fp16).shape.live_pairs());
}

TEST_CASE("on a real layer every variant is right under the mask that holds 95 % of the probability") {
  for (const auto& [block, dtype] : {std::pair{128, Dtype::fp16}, {64, Dtype::bf16}}) {
    const Real of = real(block, dtype);
    const run::AttentionTruth truth(of.shape, of.inputs);
    for (const run::AttentionVariant& variant : variants(of.shape)) {
      INFO(variant.name << ", blocks of " << block);
      const run::Outcome outcome = run::execute(variant, of.shape, of.inputs, {}, &truth);
      CHECK(outcome.findings.empty());
      INFO(outcome.verdict->reason());
      CHECK(outcome.verdict->pass());
    }
  }
}

TEST_CASE("on a real layer the gradients are right under the mask that holds 95 % of the probability") {
  const suite::BackwardCase c = backward_case(real(64, Dtype::fp16));
  for (const run::BackwardVariant& variant : backward_variants(c.shape)) suite::clean(variant, c);
}

TEST_CASE("on a real layer one live block left out fails the check, forward and backward") {
  for (const int block : {128, 64}) {
    const Real of = real(block, Dtype::fp16);
    const Attention dropped = one_block_dropped(of.shape);
    const run::AttentionTruth truth(of.shape, of.inputs);
    for (const run::AttentionVariant& variant : variants(of.shape)) {
      INFO(variant.name << ", blocks of " << block);
      const run::Outcome outcome = run::execute(variant, dropped, of.inputs, {}, &truth);
      CHECK(outcome.findings.empty());
      CHECK(!outcome.verdict->pass());
    }
  }
  const Real of = real(64, Dtype::fp16);
  const suite::BackwardCase c = backward_case(of);
  const problem::Backward dropped{one_block_dropped(of.shape)};
  for (const run::BackwardVariant& variant : backward_variants(c.shape)) {
    INFO(variant.name);
    const run::Outcome outcome = run::execute(variant, dropped, c.inputs, {}, c.truth.get());
    CHECK(outcome.findings.empty());
    CHECK(!outcome.verdict->pass());
  }
}
