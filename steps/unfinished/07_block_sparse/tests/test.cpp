// Step 07: right over shapes, masks and types of heads.
#include <cmath>

#include "steps/07_block_sparse/backward.h"
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"
#include "tests/suites/backward_suite.h"

namespace {

using problem::Attention;
using problem::Dtype;

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }

Attention masked(Attention shape, const std::string& pattern, int block_q, int block_k, std::uint64_t seed = 1) {
  shape = problem::resolve(shape);
  shape.sparse = problem::make_pattern(pattern, shape, block_q, block_k, seed);
  return problem::resolve(shape);
}

}  // namespace

TEST_CASE("every variant is right over lengths, masks and types of heads") {
  const char* patterns[] = {"random:0.5",
                            "band:1,dense",
                            "empty,sink:1+local:1",
                            "sink:3t+local:70t,random:0.3,dense,empty",
                            "sink:130t+local:0t",
                            "sink:0t+local:1t",
                            "full-row:0.2",
                            "vertical-slash:1+1",
                            "dense",
                            "random:1"};
  const std::pair<int, int> lengths[] = {{1, 1},     {5, 5},   {64, 128},  {197, 197}, {203, 113},
                                         {113, 203}, {7, 256}, {257, 255}, {239, 1}};
  for (const auto& variant : step().variants) {
    const bool rung = variant.name != "balanced";
    std::vector<suite::Case> cases;
    int turn = 0;
    for (const char* pattern : patterns) {
      if (!variant.supports.sparse_tokens && std::string(pattern).find("t+") != std::string::npos) continue;
      for (const auto& [seq_q, seq_k] : lengths) {
        const int dims[] = {64, 32, 128, 96}, of_rungs[] = {64, 128}, blocks_q[] = {128, 64}, blocks_k[] = {128, 64};
        Attention a{.batch = turn % 5 == 0 ? 2 : 1,
                    .heads = 4,
                    .kv_heads = turn % 2 ? 2 : 4,
                    .seq_q = seq_q,
                    .seq_k = seq_k,
                    .dim = rung ? of_rungs[turn % 2] : dims[turn % 4],
                    .causal = turn % 3 == 0,
                    .window = turn % 7 == 0 ? 90 : 0,
                    .dtype = turn % 2 ? Dtype::bf16 : Dtype::fp16};
        if (turn % 4 == 1 && !rung) a.dropout = 64;
        cases.push_back({masked(a, pattern, rung ? 128 : blocks_q[turn / 2 % 2], blocks_k[turn / 3 % 2], turn)});
        ++turn;
      }
    }
    CHECK(suite::passes(variant, cases) == turn);
  }
}

TEST_CASE("rows above four times the mean are split, and their parts merged") {
  // One head of eight is alive: its rows are eight times the mean. At most ten tiles of keys make two parts.
  const char* pattern = "dense,empty,empty,empty,empty,empty,empty,empty";
  int turn = 0;
  for (const int dim : {32, 64, 96, 128}) {
    for (const int seq_q : {1, 150, 300}) {
      Attention a{.heads = 8, .kv_heads = turn % 2 ? 2 : 8, .seq_q = seq_q, .seq_k = 601, .dim = dim, .causal = turn % 3 == 0};
      a.dtype = turn % 2 ? Dtype::bf16 : Dtype::fp16;
      if (turn % 4 == 1) a.dropout = 64;
      a = masked(a, pattern, turn % 5 == 0 ? 64 : 128, 64, turn);
      for (const float odd : {0.0f, INFINITY, std::nanf("")}) {  // in the last tile, which is partial, and in the first one
        problem::AttentionInputs in = problem::make_inputs(a, turn);
        if (odd != 0.0f) in.v.values[600 * dim + 3] = in.v.values[5 * dim + 1] = odd;
        const auto outcome = run::execute(run::variant_named(step(), "balanced"), a, in);
        INFO(problem::to_string(a) << ", " << odd);
        REQUIRE(outcome.findings.empty());
        INFO(outcome.verdict->reason());
        REQUIRE(outcome.verdict->pass());
      }
      ++turn;
    }
  }
}

TEST_CASE("packed sequences under masks") {
  for (const char* pattern : {"random:0.5,dense", "sink:5t+local:30t,band:1"}) {
    for (const bool causal : {false, true}) {
      Attention a = suite::packed({17, 97, 0, 130, 33}, causal ? 64 : 128, Dtype::fp16, causal, 0, 2, 2);
      a.dropout = causal ? 30 : 0;
      a.sparse = problem::make_pattern(pattern, a, 64, 64, 5);
      CHECK(suite::passes(run::variant_named(step(), "balanced"), {{problem::resolve(a)}}) == 1);
    }
  }
}

TEST_CASE("a mask that is all live gives step 05's output to the bit, and a NaN in a dead block changes no bit") {
  for (const auto& variant : step().variants) {
    if (variant.name == "test_per_block" || variant.name == "list") continue;  // every tile has a mask, as step 05's have not
    Attention dense{.heads = 2, .kv_heads = 1, .seq_q = 300, .seq_k = 420, .dim = 64, .causal = true, .dtype = Dtype::fp16};
    dense = problem::resolve(dense);
    const problem::AttentionInputs in = problem::make_inputs(dense, 3);
    const auto without = run::execute(variant, dense, in), all = run::execute(variant, masked(dense, "random:1", 128, 128), in);
    CHECK(without.output("o").values == all.output("o").values);
    const Attention sparse = masked(dense, "band:1", 128, 128);
    const auto before = run::execute(variant, sparse, in);
    problem::AttentionInputs odd = in;
    for (int j = 0; j < 128; ++j)
      odd.v.values[j * 64 + 3] = odd.k.values[j * 64 + 5] = std::nanf("");  // queries from 256 − 120 on see none of it
    const auto after = run::execute(variant, sparse, odd);
    for (int head = 0; head < 2; ++head) {
      for (int i = 128; i < 300; ++i) {
        for (int d = 0; d < 64; ++d) {
          const std::size_t at = (head * 300 + i) * 64 + d;
          CHECK(before.output("o").values[at] == after.output("o").values[at]);
        }
      }
    }
  }
}

TEST_CASE("gradients are right over lengths, masks and types of heads") {
  const char* patterns[] = {"random:0.5",
                            "band:1,dense",
                            "empty,sink:1+local:1",
                            "sink:3t+local:70t,random:0.3,dense,empty",
                            "sink:130t+local:0t",
                            "sink:0t+local:1t",
                            "full-row:0.2",
                            "vertical-slash:1+1",
                            "dense",
                            "random:1"};
  const std::pair<int, int> lengths[] = {{1, 1},     {5, 5},   {64, 128},  {197, 197}, {203, 113},
                                         {113, 203}, {7, 256}, {257, 255}, {239, 1}};
  for (const auto& variant : block_sparse::backward_step().variants) {
    int turn = 0;
    for (const char* pattern : patterns) {
      for (const auto& [seq_q, seq_k] : lengths) {
        const int dims[] = {64, 32, 128, 96}, blocks_q[] = {128, 64}, blocks_k[] = {128, 64};
        Attention a{.batch = turn % 5 == 0 ? 2 : 1,
                    .heads = 4,
                    .kv_heads = turn % 2 ? 2 : 4,
                    .seq_q = seq_q,
                    .seq_k = seq_k,
                    .dim = dims[turn % 4],
                    .causal = turn % 3 == 0,
                    .window = turn % 7 == 0 ? 90 : 0,
                    .dtype = turn % 2 ? Dtype::bf16 : Dtype::fp16};
        if (turn % 4 == 1) a.dropout = 64;
        const problem::Backward shape{masked(a, pattern, blocks_q[turn / 2 % 2], blocks_k[turn / 3 % 2], turn)};
        INFO(pattern << ", " << problem::to_string(shape));
        problem::BackwardInputs in = problem::make_inputs(shape, turn);
        run::run_forward(block_sparse::backward_step(), shape, in);
        const run::Outcome outcome = run::execute(variant, shape, in);
        for (const runtime::Finding& finding : outcome.findings) {
          INFO(finding.text);
          REQUIRE(outcome.findings.empty());
        }
        INFO(outcome.verdict->reason());
        REQUIRE(outcome.verdict->pass());
        ++turn;
      }
    }
  }
}
