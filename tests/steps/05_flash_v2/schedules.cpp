// Step 05, what only the simulator can tell: results do not depend on the schedule or on when copies land, and device memory
// moves what the formula says.
#include "common/run/harness/execute.h"
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"

namespace {

void under_schedules(suite::Seeds seeds, bool all_shapes) {
  problem::Attention causal;  // three tiles of keys, the last ones peeled; the first queries see none
  causal.heads = 2;
  causal.seq_q = 150;
  causal.seq_k = 140;
  causal.dim = 32;
  causal.causal = true;
  problem::Attention window = causal;  // masks on both sides
  window.causal = false;
  window.seq_q = 70;
  window.seq_k = 200;
  window.window = 75;
  problem::Attention one_tile = causal;
  one_tile.heads = 1;
  one_tile.seq_q = 5;
  one_tile.seq_k = 17;
  one_tile.dim = 64;
  problem::Attention odd = causal;  // refused by those that know whole dims only
  odd.seq_q = 20;
  odd.dim = 33;
  std::vector<suite::Case> cases;
  for (problem::Attention shape : {causal, window, one_tile, odd}) {
    shape.dtype = problem::Dtype::fp16;
    cases.push_back({problem::resolve(shape)});
  }
  for (const run::AttentionVariant& variant : run::this_step_as<run::AttentionStep>().variants) {
    std::vector<suite::Case> taken;
    for (const suite::Case& c : cases) {
      if (!run::refusal(variant.supports, c.shape)) taken.push_back(c);
    }
    CHECK(taken.size() >= 3);
    suite::passes_under_schedules(variant, taken, seeds, all_shapes);
  }
}

}  // namespace

TEST_CASE("every variant is right, and none is reported, under two schedules in every completion mode") {
  under_schedules(suite::two_seeds, false);
}
TEST_CASE("… and under three more, on four shapes", "[.long]") { under_schedules(suite::three_more_seeds, true); }

TEST_CASE("device memory moves what the formula says: 2 Tr Sk d e + 2 Sq d e + 4 Sq bytes a head") {
  // Tr tiles of queries each read K and V; Q is read and O written once; LSE is fp32. Dense, and whole tiles.
  for (const auto& [length, dim] : {std::pair{64, 64}, {192, 64}, {128, 32}, {128, 128}}) {
    problem::Attention asked;
    asked.heads = asked.kv_heads = 2;
    asked.seq_q = asked.seq_k = length;
    asked.dim = dim;
    asked.dtype = problem::Dtype::fp16;
    const problem::Attention s = problem::resolve(asked);
    const problem::AttentionInputs inputs = problem::make_inputs(s, 81);
    for (const run::AttentionVariant& variant : run::this_step_as<run::AttentionStep>().variants) {
      if (run::refusal(variant.supports, s)) continue;
      run::ExecuteOptions options;
      options.check = false;
      options.counters = true;
      const run::Outcome outcome = run::execute(variant, s, inputs, options);
      REQUIRE(outcome.counters.size() == 1);
      const runtime::KernelCounters& counters = outcome.counters.front();
      double moved = static_cast<double>(counters.bytes_stored);
      for (const runtime::LineCounters& line : counters.lines) {
        if (line.space == runtime::Space::global && line.op != runtime::Op::store)
          moved += 32.0 * static_cast<double>(line.sectors);
      }
      const double rows = static_cast<double>(length) / counters.grid[0];  // of a tile of queries
      const double bytes = 2.0 * (length / rows) * length * dim * 2 + 2.0 * length * dim * 2 + 4.0 * length;
      INFO(variant.name << ", length " << length << ", dim " << dim);
      CHECK(moved == 2 * bytes);  // two heads
    }
  }
}

TEST_CASE("packed sequences: no schedule matters") {
  for (const run::AttentionVariant& variant : run::this_step_as<run::AttentionStep>().variants) {
    if (!variant.supports.packed) continue;
    suite::passes_under_schedules(variant, {{suite::packed({65, 3, 90}, 32, problem::Dtype::fp16, true)}}, suite::one_seed,
                                  true);
  }
}

TEST_CASE("dropout: no schedule matters") {
  problem::Attention shape{.heads = 2, .kv_heads = 1, .seq_q = 70, .seq_k = 140, .dim = 32, .causal = true};
  shape.dtype = problem::Dtype::fp16;
  shape.dropout = 51;
  for (const run::AttentionVariant& variant : run::this_step_as<run::AttentionStep>().variants) {
    if (variant.supports.dropout) suite::passes_under_schedules(variant, {{problem::resolve(shape)}}, suite::one_seed, true);
  }
}
