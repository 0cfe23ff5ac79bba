// Step 06, what only the simulator can tell: gradients do not depend on the schedule or on when copies land, and dK and dV do
// not by a bit.
#include <algorithm>
#include <tuple>

#include "tests/catch.h"
#include "tests/suites/backward_suite.h"

namespace {

void under_schedules(suite::Seeds seeds, bool all_shapes) {
  problem::Attention causal;  // two tiles of keys, the last queries in a ragged tile; the first queries see none
  causal.heads = 2;
  causal.seq_q = 150;
  causal.seq_k = 140;
  causal.causal = true;
  problem::Attention window = causal;  // masks on both sides
  window.causal = false;
  window.seq_q = 200;
  window.seq_k = 70;
  window.window = 75;
  problem::Attention one_tile = causal;
  one_tile.heads = 1;
  one_tile.seq_q = 5;
  one_tile.seq_k = 17;
  const run::BackwardStep& step = run::this_step_as<run::BackwardStep>();
  for (const int dim : {32, 96, 128, 33}) {  // every kernel has one of them
    std::vector<suite::BackwardCase> cases;
    for (problem::Attention shape : {causal, window, one_tile}) {
      shape.dim = dim;
      shape.dtype = problem::Dtype::fp16;
      cases.push_back(suite::ready(step, {problem::resolve(shape)}));
    }
    for (const run::BackwardVariant& variant : step.variants) {
      if (run::refusal(variant.supports, cases.front().shape)) continue;
      // 32 for most; 96 and 33 for those kernels that have nothing else; 128 for its own. Of any head dim: any_dim.
      const auto& name = variant.name;
      const int own = name == "column_split" || name == "roles" || name == "tuned_128" ? 128
                      : name == "tuned" || name == "tuned_80"                          ? 96
                      : name == "standard" || name == "recompute" || name == "any_dim" ? 33
                                                                                       : 32;
      if (!all_shapes && dim != own) continue;
      suite::passes_under_schedules(variant, cases, seeds, all_shapes);
    }
  }
}

}  // namespace

TEST_CASE("every variant is right, and none is reported, under two schedules in every completion mode") {
  under_schedules(suite::two_seeds, false);
}
TEST_CASE("… and under three more", "[.long]") { under_schedules(suite::three_more_seeds, false); }

TEST_CASE("packed sequences: no schedule matters") {
  const run::BackwardStep& step = run::this_step_as<run::BackwardStep>();
  for (const int dim : {32, 128}) {
    const suite::BackwardCase c = suite::ready(step, {suite::packed({65, 3, 90}, dim, problem::Dtype::fp16, true)});
    for (const run::BackwardVariant& variant : step.variants) {
      if (variant.name == "recompute" || run::refusal(variant.supports, c.shape)) continue;
      suite::passes_under_schedules(variant, {c}, suite::one_seed, true);
    }
  }
}

TEST_CASE("dropout: no schedule matters") {
  const run::BackwardStep& step = run::this_step_as<run::BackwardStep>();
  for (const int dim : {32, 128}) {
    problem::Attention shape{.heads = 2, .kv_heads = 1, .seq_q = 150, .seq_k = 140, .dim = dim, .causal = true};
    shape.dtype = problem::Dtype::fp16;
    shape.dropout = 51;
    const suite::BackwardCase c = suite::ready(step, {problem::resolve(shape)});
    for (const run::BackwardVariant& variant : step.variants) {
      if (variant.name == "recompute" || run::refusal(variant.supports, c.shape)) continue;
      suite::passes_under_schedules(variant, {c}, suite::one_seed, true);
    }
  }
}

namespace {

problem::Attention shared_keys(int batch, int heads, int kv_heads) {
  problem::Attention shape{.batch = batch, .heads = heads, .kv_heads = kv_heads, .seq_q = 70, .seq_k = 140, .causal = true};
  shape.dim = batch == 1 ? 128 : 64;
  shape.dtype = problem::Dtype::fp16;
  return shape;
}
constexpr const char* in_parts[] = {"tuned", "tuned_80", "deterministic"};

}  // namespace

TEST_CASE("query heads that share keys: parts are added where strides reach them, and no schedule matters") {
  const run::BackwardStep& step = run::this_step_as<run::BackwardStep>();
  for (const auto& [batch, heads, kv_heads] : {std::tuple{1, 4, 2}, {2, 3, 1}, {2, 4, 2}}) {
    const problem::Attention shape = shared_keys(batch, heads, kv_heads);
    problem::Attention few = shape;  // to count launches of, which takes long
    few.seq_q = 10;
    few.seq_k = 20;
    const suite::BackwardCase c = suite::ready(step, {problem::resolve(shape)}),
                              counted = suite::ready(step, {problem::resolve(few)});
    for (const char* name : in_parts) {
      const run::BackwardVariant& variant = run::variant_named(step, name);
      for (const bool tokens_first : {false, true}) {
        INFO(name << ", " << problem::to_string(counted.shape) << (tokens_first ? ", tokens first" : ""));
        const run::Outcome outcome =
            suite::clean(variant, counted, {.counters = true, .layout = {.tokens_first = tokens_first}});
        const auto launches = std::count_if(outcome.counters.begin(), outcome.counters.end(), [](const auto& of_kernel) {
          return of_kernel.kernel.find("add_parts") != std::string::npos;
        });
        // Heads of all batch entries are equally far apart only where nothing but heads lies between the entries.
        CHECK(launches == (batch == 1 || kv_heads == 1 || !tokens_first ? 1 : 0));
      }
      suite::clean(variant, c, {.layout = {.tokens_first = true}});
      if (batch == 1 || kv_heads == 1) suite::passes_under_schedules(variant, {c}, suite::one_seed, true);
    }
  }
}
TEST_CASE("… nor for two such groups in each of two batch entries", "[.long]") {
  const run::BackwardStep& step = run::this_step_as<run::BackwardStep>();
  const suite::BackwardCase c = suite::ready(step, {problem::resolve(shared_keys(2, 4, 2))});
  for (const char* name : in_parts) suite::passes_under_schedules(run::variant_named(step, name), {c}, suite::one_seed, true);
}
