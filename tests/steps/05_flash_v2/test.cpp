// Step 05: every variant is right at every shape, with every mask, in every type; what rows do not see does not touch them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <set>

#include "common/device/shapes.h"
#include "common/problem/require.h"
#include "common/run/harness/execute.h"
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"
#include "tests/suites/tiers.h"

namespace {

using problem::Attention;
using problem::AttentionInputs;
using problem::Dtype;

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }

bool is_scalar(const run::AttentionVariant& variant) { return variant.name == "scalar"; }

Attention shape(int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim, bool causal, int window = 0,
                Dtype dtype = Dtype::fp16) {
  Attention s;
  s.batch = batch;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.seq_q = seq_q;
  s.seq_k = seq_k;
  s.dim = dim;
  s.causal = causal;
  s.window = window;
  s.dtype = dtype;
  return problem::resolve(s);
}

// The rungs between two milestones of the ladder differ little from their neighbours: make test gives them a part of each list,
// and properties by turns; make test-all gives them the rest.
bool is_between(const run::AttentionVariant& variant) {
  const auto& name = variant.name;
  return name == "edge_masks" || name == "folded_scale" || name == "addresses" || name == "rows_32" || name == "lazy_rescale";
}
std::vector<run::AttentionVariant> between() {
  std::vector<run::AttentionVariant> rungs;
  std::copy_if(step().variants.begin(), step().variants.end(), std::back_inserter(rungs), is_between);
  return rungs;
}
// The milestones, and one of the others.
std::vector<run::AttentionVariant> by_turns(std::size_t turn) {
  std::vector<run::AttentionVariant> rungs;
  std::copy_if(step().variants.begin(), step().variants.end(), std::back_inserter(rungs), std::not_fn(is_between));
  rungs.push_back(between().at(turn));
  return rungs;
}

// Of a list, a variant takes each such case. The simulator needs ten times as long for the scalar one.
std::size_t every(const run::AttentionVariant& variant) { return is_scalar(variant) ? 3 : is_between(variant) ? 5 : 1; }
std::vector<suite::Case> some_of(const std::vector<suite::Case>& all, std::size_t every, std::size_t first = 0) {
  std::vector<suite::Case> cases;
  for (std::size_t i = first; i < all.size(); i += every) cases.push_back(all[i]);
  return cases;
}

// Every variant passes every case, but for head dims that it does not take; some variants take a part of the cases.
void all_pass(const std::vector<suite::Case>& all) {
  for (const run::AttentionVariant& variant : step().variants) {
    const auto& dims = variant.supports.dims;
    const std::vector<suite::Case> cases = some_of(all, every(variant));
    const auto takes = [&](const suite::Case& c) {
      return dims.empty() || std::find(dims.begin(), dims.end(), c.shape.dim) != dims.end();
    };
    CHECK(suite::passes(variant, cases) == std::count_if(cases.begin(), cases.end(), takes));
  }
}

// The shape list in turns of two types.
std::vector<suite::Case> list(int turn) {
  return suite::in_turns(suite::shape_list(Dtype::fp16), suite::shape_list(Dtype::bf16), turn);
}

void list_passes(const std::vector<suite::Case>& cases, bool all) {
  std::size_t first = 0;
  for (const run::AttentionVariant& variant : step().variants) {
    if (is_scalar(variant)) continue;  // in fp32
    const int taken = suite::passes(variant, all ? cases : some_of(cases, every(variant), first++ % every(variant)));
    CHECK((variant.name != step().default_variant || taken == static_cast<int>(cases.size())));
  }
}

// The outputs of a run whose verdict is good.
run::Outcome clean(const run::AttentionVariant& variant, const Attention& s, const AttentionInputs& inputs) {
  run::Outcome outcome = run::execute(variant, s, inputs);
  INFO(variant.name << ", " << problem::to_string(s) << ": " << outcome.verdict->reason());
  REQUIRE(outcome.pass());
  return outcome;
}

float& element(problem::Tensor& tensor, int head, int row, int column) {  // of batch entry 0
  return tensor.values[static_cast<std::size_t>((head * tensor.shape[2] + row) * tensor.shape[3] + column)];
}

// Makes one key the one that every query attends to: its score is far above all others.
AttentionInputs with_dominant_key(const Attention& s, int key) {
  AttentionInputs inputs = problem::make_inputs(s, 51);
  for (int i = 0; i < s.seq_q; ++i) element(inputs.q, 0, i, 0) = 8.0f;
  element(inputs.k, 0, key, 0) = 40.0f;
  return inputs;
}

// O's rows are V's row of the key that dominates.
void attends_to(const run::AttentionVariant& variant, const Attention& s, int key) {
  AttentionInputs inputs = with_dominant_key(s, key);
  run::Outcome outcome = clean(variant, s, inputs);
  problem::Tensor o = outcome.output("o");
  for (int i = 0; i < s.seq_q; ++i) {
    if (key < s.first_key(i) || key >= s.last_key(i)) continue;
    INFO(variant.name << ": row " << i);
    REQUIRE(element(o, 0, i, 3) == Approx(element(inputs.v, 0, key, 3)).margin(0.02));
  }
}

}  // namespace

TEST_CASE(
    "every variant is right over the shape list, types by turns, large shapes under one mask (a rung between two milestones: a "
    "part of it), and the default one refuses nothing on it") {
  list_passes(suite::one_mask_each(list(0)), false);
}
TEST_CASE("every variant is right over the whole shape list, in the other type of each shape; large shapes in both",
          "[.long]") {
  list_passes(suite::other_masks(list(0)), false);
  list_passes(list(1), true);
}

TEST_CASE("the scalar variant is right in fp32 over the whole shape list", "[.long]") {
  const auto cases = suite::shape_list(Dtype::fp32);
  CHECK(suite::passes(step().variants.front(), cases) == static_cast<int>(cases.size()));
}

TEST_CASE("the scalar variant is right in fp32 at every third shape of the list, and at a few shapes in fp16 and bf16") {
  const run::AttentionVariant& scalar = step().variants.front();
  REQUIRE(is_scalar(scalar));
  const auto cases = suite::shape_list(Dtype::fp32);
  for (std::size_t i = 0; i < cases.size(); i += 3) CHECK(suite::passes(scalar, {cases[i]}) == 1);
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) CHECK(suite::passes(scalar, suite::small_shapes(dtype)) == 3);
}

TEST_CASE("one less than a tile, a tile, and one more: queries and keys") {
  std::vector<suite::Case> cases;
  for (const int seq_q : {63, 64, 65}) {
    for (const int seq_k : {31, 32, 33, 63, 64, 65, 127, 129}) {
      cases.push_back({shape(1, 1, 1, seq_q, seq_k, 32, seq_k % 3 == 0, 0, seq_k % 2 == 0 ? Dtype::fp16 : Dtype::bf16)});
    }
  }
  cases.push_back({shape(1, 1, 1, 33, 65, 256, true)});  // of the variants whose tiles differ for long rows
  cases.push_back({shape(1, 1, 1, 65, 31, 256, false)});
  all_pass(cases);
}

TEST_CASE("windows: narrower and wider than a tile, with and without a causal mask, where no key or every key is seen") {
  std::vector<suite::Case> cases;
  for (const bool causal : {false, true}) {
    for (const int window : {1, 100}) cases.push_back({shape(1, 2, 1, 150, 150, 64, causal, window)});
    for (const int window : {7, 1000}) cases.push_back({shape(1, 1, 1, 30, 290, 32, causal, window, Dtype::bf16)});
    cases.push_back({shape(1, 1, 1, 200, 70, 64, causal, 64)});  // the first queries see nothing if causal
  }
  all_pass(cases);
}

TEST_CASE("every window at every shape", "[.long]") {
  std::vector<suite::Case> cases;
  for (const int window : {1, 7, 64, 100, 1000}) {
    for (const bool causal : {false, true}) {
      cases.push_back({shape(1, 2, 1, 150, 150, 64, causal, window)});
      cases.push_back({shape(1, 1, 1, 30, 290, 32, causal, window, Dtype::bf16)});
      cases.push_back({shape(1, 1, 1, 200, 70, 64, causal, window)});
    }
  }
  all_pass(cases);
}

TEST_CASE("a negative scale: the maximum is that of the scaled scores") {
  std::vector<suite::Case> cases;
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const int dim : {64, 40, 256}) {
      Attention s = shape(1, 1, 1, 70, 90, dim, true, 0, dtype);
      s.scale = -*s.scale;
      cases.push_back({s});
      cases.push_back({s, problem::InputKind::large});
    }
  }
  all_pass(cases);
}

TEST_CASE(
    "a scale of 0 gives uniform rows, and the smallest scales are no different; where a query sees nothing, nothing is read") {
  std::vector<suite::Case> cases;
  for (const float scale : {0.0f, -0.0f, 1e-45f, -1e-45f, -0.1f, 0x1p-100f}) {
    for (const int dim : {64, 40, 256}) {
      Attention s = shape(1, 1, 1, 40, 90, dim, true, 0, dim == 40 ? Dtype::bf16 : Dtype::fp16);
      s.scale = scale;
      cases.push_back({s});
    }
    Attention empty = shape(1, 1, 1, 256, 64, 64, true);  // the first two tiles of queries see no key at all
    empty.scale = scale;
    cases.push_back({empty});
  }
  all_pass(cases);
}

TEST_CASE("the largest window is no window, and wraps nowhere") {
  std::vector<suite::Case> cases;
  for (const int window : {std::numeric_limits<int>::max(), std::numeric_limits<int>::max() - 100, 1 << 30}) {
    for (const bool causal : {false, true}) {
      cases.push_back({shape(1, 1, 1, 64, 128, 32, causal, window)});
      cases.push_back({shape(1, 1, 1, 100, 70, 64, causal, window)});
      cases.push_back({shape(1, 1, 1, 3, 130, 64, causal, window, Dtype::bf16)});
    }
  }
  all_pass(cases);
}

TEST_CASE("rows at odd addresses: a variant is right there, or refuses them by name") {
  for (const run::AttentionVariant& variant : step().variants) {
    for (const bool tokens_first : {false, true}) {
      const Attention s = shape(2, 2, 1, 70, 90, 64, true);
      run::ExecuteOptions options;
      options.layout = {.tokens_first = tokens_first, .odd = true};
      const auto run_it = [&] { return run::execute(variant, s, problem::make_inputs(s, 81), options); };
      INFO(variant.name);
      if (variant.supports.row_alignment == 1) {
        REQUIRE(run_it().pass());
        continue;
      }
      try {
        run_it();
        FAIL("not refused");
      } catch (const std::invalid_argument& error) {
        REQUIRE(std::string(error.what()).find(variant.name + " does not support rows that begin elsewhere") == 0);
      }
    }
  }
}

// A launch is refused before anything is read, so these rows need no memory: on a GPU, tests/tools/test_far_rows.py runs them.
TEST_CASE("rows far apart: kernels that count bytes in 32 bits refuse them by name, and a single row lies nowhere far") {
  constexpr std::int64_t most = (1 << 25) - 8;  // 32 rows of so many elements of 2 bytes are 512 bytes less than 2^31
  const std::set<std::string> near = {"addresses", "rows_32", "lazy_rescale"};
  const auto refusal_at = [](const run::AttentionVariant& variant, std::int64_t stride, int seq_k) {
    const run::DeviceArrays none{run::Arrays{}};
    void* const at = reinterpret_cast<void*>(1 << 20);
    const std::int64_t close = 32;
    const device::AnyHeads<true> q{at, close, close, close}, k{at, close, close, stride}, v = k;
    return run::refusal(variant.supports,
                        {shape(1, 1, 1, 70, seq_k, 32, true), q, k, v, {at, close, close, close}, nullptr, none});
  };
  for (const run::AttentionVariant& variant : step().variants) {
    INFO(variant.name);
    CHECK(!refusal_at(variant, most, 70));
    CHECK(!refusal_at(variant, std::int64_t{1} << 40, 1));
    for (const std::int64_t stride : {std::int64_t{1} << 25, std::int64_t{1} << 31, std::int64_t{1} << 40}) {
      const auto reason = refusal_at(variant, stride, 70);
      CHECK(reason.has_value() == (near.count(variant.name) == 1));
      if (reason)
        CHECK(reason->find(std::to_string(stride) + " elements apart, which is more than 33554424") != std::string::npos);
    }
  }
}

namespace {

// Rows of 2 · dim bytes begin at multiples of 16, 8, 4 and 2 bytes, and each ends elsewhere in its last chunk.
void widths_of_copies(int turn) {
  const auto cases_of = [](Dtype dtype) {
    std::vector<suite::Case> cases;
    for (const int dim : {1, 2, 4, 8, 33, 36, 38, 72, 95, 97, 100, 130, 132, 200, 255}) {
      cases.push_back({shape(1, 2, 1, 19, 70, dim, dim % 2 == 0, 0, dtype)});
    }
    return cases;
  };
  all_pass(suite::in_turns(cases_of(Dtype::fp16), cases_of(Dtype::bf16), turn));
}

}  // namespace

TEST_CASE("head dims of every width that copies can have, types by turns") { widths_of_copies(0); }
TEST_CASE("head dims of every width that copies can have, in the other type of each", "[.long]") { widths_of_copies(1); }

// ---- what each part of the algorithm is there for; without it, these fail ----

TEST_CASE("the rescale: the largest score comes in the last tile visited") {
  // Tiles go from right to left. Key 0 dominates: O, l and m of all tiles before must shrink to nothing.
  for (const run::AttentionVariant& variant : step().variants) attends_to(variant, shape(1, 1, 1, 70, 200, 64, false), 0);
}

TEST_CASE("the peeled tile: the key on the diagonal is seen, and the next one is not") {
  for (const run::AttentionVariant& variant : step().variants) {
    // A single tile, on the diagonal: each row sees the keys up to its own. Of row 40, key 40 is the last.
    attends_to(variant, shape(1, 1, 1, 64, 64, 64, true), 40);
    attends_to(variant, shape(1, 1, 1, 130, 130, 64, true), 128);
    AttentionInputs inputs = with_dominant_key(shape(1, 1, 1, 130, 130, 64, true), 100);
    const Attention s = shape(1, 1, 1, 130, 130, 64, true);
    problem::Tensor o = clean(variant, s, inputs).output("o");
    // Row 99 must not attend to key 100.
    element(inputs.v, 0, 100, 3) = 1000.0f;
    problem::Tensor changed = clean(variant, s, inputs).output("o");
    REQUIRE(element(o, 0, 99, 3) == element(changed, 0, 99, 3));
    REQUIRE(element(changed, 0, 100, 3) > 900.0f);
  }
}

TEST_CASE("the last tile: ⌈N / B⌉ tiles, not ⌊N / B⌋") {
  for (const run::AttentionVariant& variant : step().variants) attends_to(variant, shape(1, 1, 1, 65, 65, 64, false), 64);
}

TEST_CASE("which keys a query sees: kernels, problem and reference agree, up to the ends of every extent") {
  const int most = problem::max_extent, most_window = std::numeric_limits<int>::max();
  for (const int seq_q : {1, 2, 70, 1000, most - 1, most}) {
    for (const int seq_k : {1, 2, 70, 1000, most - 1, most}) {
      for (const int window : {0, 1, 2, 69, 1000, most - 1, most, most + 1, most_window - 1, most_window}) {
        for (const bool causal : {false, true}) {
          Attention problem;  // not resolved: of the two largest lengths only one fits into a problem
          problem.seq_q = seq_q, problem.seq_k = seq_k;
          problem.causal = causal, problem.window = window, problem.scale = 1.0f;
          const device::AttentionShape s = run::device_shape(problem);
          const reference::AttentionSpec spec{1, 1, 1, seq_q, seq_k, 1, causal, window};
          for (const int i : {0, 1, seq_q / 2, seq_q - 2, seq_q - 1}) {
            if (i < 0 || i >= seq_q) continue;
            INFO(problem::to_string(problem) << ", query " << i);
            const reference::KeyRange seen = reference::visible_keys(spec, i);
            REQUIRE((seen.empty() ? problem.first_key(i) >= problem.last_key(i) : problem.first_key(i) == seen.begin));
            REQUIRE((seen.empty() ? s.first_key(i) >= s.end_key(i) : s.first_key(i) == seen.begin && s.end_key(i) == seen.end));
            if (!seen.empty()) REQUIRE(problem.last_key(i) == seen.end);
            if (window == 0) REQUIRE(s.visible_keys(i) == seen.end);
            for (const int keys : {32, 64}) {
              const flash_v2::KeyTiles tiles = flash_v2::key_tiles(s, i, 1, keys);
              REQUIRE((tiles.begin <= tiles.free_begin && tiles.free_begin <= tiles.free_end && tiles.free_end <= tiles.end));
              if (seen.empty()) REQUIRE(tiles.begin == tiles.end);
              if (!seen.empty()) REQUIRE((tiles.begin == seen.begin / keys && tiles.end == (seen.end - 1) / keys + 1));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("tiles of keys: every visible key is in one, and free tiles need no mask") {
  for (const auto& [seq_q, seq_k] : {std::pair{1, 1}, {64, 64}, {65, 63}, {200, 70}, {70, 200}, {130, 130}, {3, 260}}) {
    for (const int window : {0, 1, 5, 64, 90, 300}) {
      for (const bool causal : {false, true}) {
        const Attention problem = shape(1, 1, 1, seq_q, seq_k, 64, causal, window);
        const device::AttentionShape s = run::device_shape(problem);
        for (const int keys : {32, 64}) {
          for (int first = 0; first < seq_q; first += 64) {
            const int count = std::min(64, seq_q - first);
            const flash_v2::KeyTiles tiles = flash_v2::key_tiles(s, first, count, keys);
            INFO(problem::to_string(problem) << ", window " << window << ", queries from " << first << ", tiles of " << keys);
            REQUIRE((tiles.begin <= tiles.free_begin && tiles.free_begin <= tiles.free_end && tiles.free_end <= tiles.end));
            int some = 0;
            for (int tile = 0; tile < (seq_k + keys - 1) / keys; ++tile) {
              int seen = 0;  // pairs of this tile
              for (int i = first; i < first + count; ++i) {
                for (int j = tile * keys; j < (tile + 1) * keys; ++j) {
                  seen += j >= problem.first_key(i) && j < problem.last_key(i);
                }
              }
              some += seen > 0;
              if (seen > 0) REQUIRE((tile >= tiles.begin && tile < tiles.end));
              const bool free = tile >= tiles.free_begin && tile < tiles.free_end;
              REQUIRE(free == (seen == count * keys));
            }
            REQUIRE(tiles.end - tiles.begin == some);
          }
        }
      }
    }
  }
}

// ---- properties ----

TEST_CASE("keys and values after a position do not change the rows before it, by a bit") {
  for (const run::AttentionVariant& variant : by_turns(0)) {
    suite::is_causal(variant, shape(1, 2, 1, 70, 70, 32, true));
    suite::is_causal(variant, shape(1, 1, 1, 66, 150, 64, true, 0, Dtype::bf16));
  }
}

TEST_CASE("batch entries and heads do not influence each other, by a bit") {
  for (const run::AttentionVariant& variant : by_turns(1)) {
    suite::heads_are_independent(variant, shape(2, 4, 2, 19, 70, 32, false));
  }
}

TEST_CASE("the order of the keys does not matter") {
  for (const run::AttentionVariant& variant : by_turns(2)) {
    suite::ignores_key_order(variant, shape(1, 3, 3, 65, 97, 64, false));
  }
}

TEST_CASE("scores of −∞ add nothing and hide nothing; +∞ and NaN make their row NaN") {
  for (const run::AttentionVariant& variant : by_turns(3)) {
    suite::takes_infinite_scores(variant,
                                 shape(1, 1, 1, 17, 130, 64, false, 0, Dtype::bf16));  // tiles without a mask, and one with
    Attention negative = shape(1, 1, 1, 17, 64, 32, false);
    negative.scale = -0.25f;
    suite::takes_infinite_scores(variant, negative);
  }
}

TEST_CASE("… and so in two tiles of queries, and in both types", "[.long]") {
  for (const run::AttentionVariant& variant : step().variants) {
    suite::takes_infinite_scores(variant, shape(1, 1, 1, 70, 128, 64, false));
    suite::takes_infinite_scores(variant, shape(1, 1, 1, 33, 150, 32, false, 0, Dtype::bf16));
    Attention negative = shape(1, 1, 1, 17, 64, 64, false);
    negative.scale = -0.25f;
    suite::takes_infinite_scores(variant, negative);
  }
}

TEST_CASE("scores of any size, alone in their rows") {
  for (const run::AttentionVariant& variant : by_turns(4)) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      suite::takes_scores_far_from_zero(variant, shape(1, 1, 1, 33, 90, 64, dtype == Dtype::bf16, 0, dtype));
      suite::takes_scores_far_from_zero(variant, shape(1, 1, 1, 17, 1, 32, false, 0, dtype));
    }
    for (const int dim : {2, 96, 256}) {
      const Attention s = shape(1, 1, 1, 17, 70, dim, true, 0, dim == 96 ? Dtype::fp16 : Dtype::bf16);
      if (!refusal(variant.supports, s)) suite::takes_scores_far_from_zero(variant, s);
    }
  }
}

TEST_CASE("scales, windows and scores of any size, in larger problems", "[.long]") {
  std::vector<suite::Case> cases;
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const int dim : {64, 40, 256}) {
      Attention s = shape(1, 2, 1, 70, 90, dim, true, 0, dtype);
      for (const float scale : {-*s.scale, 0.0f, -0.0f, 1e-45f, -1e-45f, -0.1f, 0x1p-100f}) {
        s.scale = scale;
        cases.push_back({s});
      }
      cases.push_back({shape(1, 2, 1, 70, 90, dim, true, 0, dtype), problem::InputKind::large});
    }
  }
  for (const int window : {std::numeric_limits<int>::max(), std::numeric_limits<int>::max() - 100, 1 << 30}) {
    for (const bool causal : {false, true}) {
      cases.push_back({shape(1, 1, 1, 128, 128, 32, causal, window)});
      cases.push_back({shape(1, 1, 1, 150, 70, 64, causal, window)});
    }
  }
  all_pass(cases);
  for (const run::AttentionVariant& variant : step().variants) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      suite::takes_scores_far_from_zero(variant, shape(1, 1, 1, 70, 90, 64, dtype == Dtype::bf16, 0, dtype));
    }
    for (const int dim : {2, 96, 256}) {
      const Attention s = shape(1, 1, 1, 33, 70, dim, true, 0, dim == 96 ? Dtype::fp16 : Dtype::bf16);
      if (!refusal(variant.supports, s)) suite::takes_scores_far_from_zero(variant, s);
    }
  }
}

TEST_CASE("NaN and infinity reach the rows that see them, and no others") {
  for (const run::AttentionVariant& variant : by_turns(2)) {
    suite::contains_nan(variant, shape(2, 2, 1, 31, 45, 32, true));
    suite::contains_nan(variant, shape(1, 1, 1, 80, 140, 64, true, 0, Dtype::bf16));
  }
}

namespace {

void infinities_stay_where_they_are_seen(const std::vector<run::AttentionVariant>& rungs) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const run::AttentionVariant& variant : rungs) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      const Attention s = shape(1, 1, 1, 150, 150, 64, true, 70, dtype);
      const AttentionInputs inputs = problem::make_inputs(s, 61);
      problem::Tensor before = clean(variant, s, inputs).output("o");
      AttentionInputs changed = inputs;
      element(changed.v, 0, 66, 10) = infinity;
      element(changed.v, 0, 67, 11) = -infinity;
      element(changed.v, 0, 70, 12) = infinity;
      element(changed.v, 0, 71, 12) = -infinity;
      problem::Tensor after = clean(variant, s, changed).output("o");
      const auto sees = [&](int i, int key) { return key >= s.first_key(i) && key < s.last_key(i); };
      for (int i = 0; i < s.seq_q; ++i) {
        INFO(variant.name << ", row " << i);
        REQUIRE(element(after, 0, i, 9) == element(before, 0, i, 9));
        REQUIRE(element(after, 0, i, 10) == (sees(i, 66) ? infinity : element(before, 0, i, 10)));
        REQUIRE(element(after, 0, i, 11) == (sees(i, 67) ? -infinity : element(before, 0, i, 11)));
        if (sees(i, 70) && sees(i, 71)) {
          REQUIRE(std::isnan(element(after, 0, i, 12)));
        } else if (sees(i, 70) || sees(i, 71)) {
          REQUIRE(element(after, 0, i, 12) == (sees(i, 70) ? infinity : -infinity));
        } else {
          REQUIRE(element(after, 0, i, 12) == element(before, 0, i, 12));
        }
      }
    }
  }
}

// Every fourth key has a NaN, in a column of its own: the first and the last key of each tile are among them; with these shifts
// also the last chunk of a tile of V, and the last element of O.
struct NansInV {
  int window, rest, shift;
};

void nans_stay_where_they_are_seen(const std::vector<run::AttentionVariant>& rungs, const std::vector<NansInV>& all) {
  for (const run::AttentionVariant& variant : rungs) {
    for (const auto& [window, rest, shift] : all) {
      const Attention s = shape(1, 1, 1, 256, 256, 64, true, window);
      AttentionInputs inputs = problem::make_inputs(s, 62);
      const auto column = [&, shift = shift](int key) { return (key / 4 + shift) % s.dim; };
      for (int key = rest; key < s.seq_k; key += 4) element(inputs.v, 0, key, column(key)) = std::nanf("");
      problem::Tensor o = clean(variant, s, inputs).output("o");
      for (int i = 0; i < s.seq_q; ++i) {
        std::vector<bool> expected(s.dim);
        for (int key = rest; key < s.last_key(i); key += 4) {
          if (key >= s.first_key(i)) expected[column(key)] = true;
        }
        int wrong = -1;  // a column
        for (int t = 0; t < s.dim; ++t) {
          if (std::isnan(element(o, 0, i, t)) != expected[t]) wrong = t;
        }
        INFO(variant.name << ", window " << window << ", row " << i << ", column " << wrong);
        REQUIRE(wrong == -1);
      }
    }
  }
}

}  // namespace

TEST_CASE("an infinity in V becomes an infinity in the rows that see it, in every tile, and both signs become NaN") {
  infinities_stay_where_they_are_seen(by_turns(3));
}
TEST_CASE("a NaN in every fourth row of V is where its key is seen, and nowhere else") {
  nans_stay_where_they_are_seen(by_turns(1), {{150, 0, 0}, {150, 3, 0}, {0, 3, 20}});
}
// Mutants meet this one by its name (mutants.json).
TEST_CASE("NaNs in V are where their keys are seen, and nowhere else", "[.long]") {
  nans_stay_where_they_are_seen(step().variants, {{0, 0, 0}, {0, 3, 0}, {0, 3, 20}, {150, 0, 0}, {150, 3, 0}, {150, 3, 20}});
}

TEST_CASE("every property, of every rung between two milestones", "[.long]") {
  for (const run::AttentionVariant& variant : between()) {
    suite::is_causal(variant, shape(1, 1, 1, 66, 150, 64, true, 0, Dtype::bf16));
    suite::heads_are_independent(variant, shape(2, 4, 2, 19, 70, 32, false));
    suite::ignores_key_order(variant, shape(1, 3, 3, 65, 97, 64, false));
    suite::takes_infinite_scores(variant, shape(1, 1, 1, 17, 130, 64, false, 0, Dtype::bf16));
    suite::takes_scores_far_from_zero(variant, shape(1, 1, 1, 33, 90, 64, true));
    suite::contains_nan(variant, shape(1, 1, 1, 80, 140, 64, true, 0, Dtype::bf16));
  }
  infinities_stay_where_they_are_seen(between());
}

TEST_CASE("LSE gives the probabilities: P = exp(S − LSE) adds up to one in each row") {
  const Attention s = shape(1, 1, 1, 40, 70, 64, true);
  const AttentionInputs inputs = problem::make_inputs(s, 71);
  for (const run::AttentionVariant& variant : step().variants) {
    const run::Outcome outcome = clean(variant, s, inputs);
    for (int i = 0; i < s.seq_q; ++i) {
      double sum = 0;
      for (int j = 0; j < s.last_key(i); ++j) {
        double score = 0;
        for (int t = 0; t < s.dim; ++t) {
          score += static_cast<double>(inputs.q.values[static_cast<std::size_t>(i * s.dim + t)]) *
                   inputs.k.values[static_cast<std::size_t>(j * s.dim + t)];
        }
        sum += std::exp(*s.scale * score - outcome.output("lse").values[static_cast<std::size_t>(i)]);
      }
      REQUIRE(sum == Approx(1.0).epsilon(2e-3));
    }
  }
}

// ---- what it costs ----

TEST_CASE("Q scaled in fp16 beforehand: the errors that the page shows") {
  // Q' = Q · scale · log2(e), rounded to the dtype, with ln 2 as the scale: then the kernel's c is 1. Against scaling S, in
  // fp32.
  struct Error {
    double o, lse;  // mean |error|
  };
  for (const auto kind : {problem::InputKind::normal, problem::InputKind::large}) {
    const Attention s = shape(1, 4, 4, 128, 256, 64, false);
    const AttentionInputs inputs = problem::make_inputs(s, 91, kind);
    const run::AttentionTruth truth(s, inputs);
    const auto error_of = [&](const Attention& problem, const AttentionInputs& given) {
      const auto& variants = step().variants;
      const auto best =
          std::find_if(variants.begin(), variants.end(), [](const auto& v) { return v.name == step().default_variant; });
      const run::Outcome outcome = run::execute(*best, problem, given, {}, &truth);
      REQUIRE(outcome.findings.empty());
      return Error{outcome.verdict->tensors[0].mean_error, outcome.verdict->tensors[1].mean_error};
    };
    AttentionInputs scaled = inputs;
    for (float& q : scaled.q.values) q = problem::round_to(s.dtype, q * *s.scale * 1.44269504f);
    Attention in_base_2 = s;
    in_base_2.scale = 0.693147181f;
    const Error after = error_of(s, inputs), before = error_of(in_base_2, scaled);
    INFO("O " << after.o << " and " << before.o << ", LSE " << after.lse << " and " << before.lse);
    const bool large = kind == problem::InputKind::large;
    CHECK(before.o > (large ? 10.0 : 1.01) * after.o);  // O's own rounding hides it where scores are small
    CHECK(before.lse > (large ? 500 : 200) * after.lse);
  }
}

TEST_CASE("a running maximum that starts at 0 would lose rows whose scores are all far below") {
  for (const run::AttentionVariant& variant : by_turns(4)) {
    for (const bool causal : {false, true}) {
      const Attention s = shape(1, 2, 1, 97, 203, 64, causal);
      AttentionInputs inputs = problem::make_inputs(s, 51);
      for (float& x : inputs.q.values) x = std::abs(x) + 1.0f;
      for (float& x : inputs.k.values) x = -std::abs(x) - 8.0f;  // scores of −100 and less
      for (problem::Tensor* tensor : {&inputs.q, &inputs.k}) {
        for (float& x : tensor->values) x = problem::round_to(s.dtype, x);
      }
      clean(variant, s, inputs);
    }
  }
}
