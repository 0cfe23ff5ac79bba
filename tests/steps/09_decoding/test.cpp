// Step 09: every variant is right at every shape, with one query or many, under every mask, in both types; how the work is
// shared loses no tile; what rows do not see does not touch them.
#include <algorithm>
#include <array>
#include <limits>

#include "steps/09_decoding/choice.h"
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"
#include "tests/suites/tiers.h"

namespace {

using problem::Attention;
using problem::AttentionInputs;
using problem::Dtype;

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }

Attention shape(int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim, bool causal = false, int window = 0,
                Dtype dtype = Dtype::fp16) {
  return problem::resolve(Attention{.batch = batch,
                                    .heads = heads,
                                    .kv_heads = kv_heads,
                                    .seq_q = seq_q,
                                    .seq_k = seq_k,
                                    .dim = dim,
                                    .causal = causal,
                                    .window = window,
                                    .dtype = dtype});
}

// Each way to share and to merge has one of these; the others share theirs with one of them.
bool is_first_of_its_kind(const run::AttentionVariant& variant) {
  constexpr std::array kinds = {"any_dim", "packed_heads", "last_block", "stream_k", "tuned_dependent"};
  return std::ranges::find(kinds, variant.name) != kinds.end();
}

// What decoding meets: one query and a few; groups of 1 to 40 heads, so that an item has 1 to 16 rows and a key/value head up
// to three items; keys around a warp's 16, a tile's 64 and 128, and more tiles than stages.
std::vector<suite::Case> decoding_shapes(Dtype dtype) {
  std::vector<suite::Case> cases;
  const auto add = [&](int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim, bool causal = false, int window = 0) {
    cases.push_back({shape(batch, heads, kv_heads, seq_q, seq_k, dim, causal, window, dtype)});
  };
  add(1, 1, 1, 1, 1, 64);
  add(3, 4, 4, 1, 15, 64);
  add(1, 8, 2, 1, 16, 128);
  add(2, 14, 2, 1, 256, 64);
  add(1, 14, 2, 7, 256, 64, true);  // a prompt of 7 tokens
  add(1, 8, 1, 1, 17, 64);
  add(1, 32, 2, 1, 127, 128);
  add(1, 40, 1, 1, 129, 64);
  add(1, 4, 1, 1, 1000, 64);  // 16 tiles
  add(1, 4, 1, 1, 1500, 128, false, 700);
  add(2, 6, 2, 4, 300, 64, true);
  add(1, 3, 1, 5, 70, 128, true, 33);
  add(1, 2, 2, 20, 9, 64, true);  // the first queries see no key
  add(1, 4, 2, 16, 65, 128);
  return cases;
}

// Work that is in one piece, and in many.
std::vector<Attention> shared_shapes() {
  return {shape(1, 4, 1, 1, 1, 64), shape(1, 8, 2, 1, 1000, 64), shape(3, 6, 2, 4, 300, 64, true), shape(7, 16, 16, 1, 129, 64),
          shape(1, 2, 1, 33, 500, 64, true, 100)};
}

}  // namespace

TEST_CASE("every variant is right over the shapes of decoding, in fp16 and bf16 by turns") {
  const auto cases = suite::in_turns(decoding_shapes(Dtype::fp16), decoding_shapes(Dtype::bf16), 0);
  for (const run::AttentionVariant& variant : step().variants) {
    INFO(variant.name);
    CHECK(suite::passes(variant, cases) == static_cast<int>(cases.size()));
  }
}
TEST_CASE("… in the other type of each", "[.long]") {
  const auto cases = suite::in_turns(decoding_shapes(Dtype::fp16), decoding_shapes(Dtype::bf16), 1);
  for (const run::AttentionVariant& variant : step().variants) {
    CHECK(suite::passes(variant, cases) == static_cast<int>(cases.size()));
  }
}

TEST_CASE("the default takes every length of a prompt, and its other head dims; any_dim takes what nobody else does") {
  const std::vector<suite::Case> other_dims = {{shape(2, 4, 2, 1, 200, 32)},
                                               {shape(1, 4, 1, 2, 150, 256, true)},
                                               {shape(1, 4, 1, 1, 300, 256, false, 0, Dtype::bf16)},
                                               {shape(1, 6, 3, 3, 90, 32, true, 40, Dtype::bf16)}};
  for (const char* name : {"whole_rows", "stream_k", "tuned", "tuned_dependent", "tuned_99k"}) {
    CHECK(suite::passes(run::variant_named(step(), name), other_dims) == 4);
  }
  std::vector<suite::Case> odd;
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    for (const int dim : {1, 33, 96, 255}) odd.push_back({shape(1, 4, 2, 2, 37, dim, true, 0, dtype)});
  }
  CHECK(suite::passes(run::variant_named(step(), "any_dim"), odd) == static_cast<int>(odd.size()));
  CHECK(suite::passes(run::variant_named(step(), "tuned"), suite::one_mask_each(suite::shape_list(Dtype::fp16))) >= 15);
}

TEST_CASE("every variant is right over the whole shape list of attention", "[.long]") {
  for (const run::AttentionVariant& variant : step().variants) {
    INFO(variant.name);
    const auto cases = suite::in_turns(suite::shape_list(Dtype::fp16), suite::shape_list(Dtype::bf16), 0);
    CHECK(suite::passes(variant, is_first_of_its_kind(variant) ? cases : suite::one_mask_each(cases)) >= 10);
  }
}

namespace {

void have_the_properties(bool first_of_their_kind) {
  for (const run::AttentionVariant& variant : step().variants) {
    if (is_first_of_its_kind(variant) != first_of_their_kind) continue;
    INFO(variant.name);
    suite::is_causal(variant, shape(1, 4, 2, 6, 150, 64, true));
    suite::heads_are_independent(variant, shape(2, 4, 2, 1, 137, 64));
    suite::heads_are_independent(variant, shape(2, 6, 2, 7, 80, 64, true));
    suite::ignores_key_order(variant, shape(1, 3, 1, 2, 197, 64));
    suite::takes_infinite_scores(variant, shape(1, 1, 1, 5, 150, 64));
    suite::takes_scores_far_from_zero(variant, shape(1, 2, 1, 3, 150, 64));
    suite::takes_scores_far_from_zero(variant, shape(1, 1, 1, 5, 64, 64, true));
    suite::contains_nan(variant, shape(2, 4, 2, 5, 45, 64, true));
    suite::contains_nan(variant, shape(1, 2, 1, 20, 150, 64, true, 30));
    Attention scaled = shape(1, 2, 1, 3, 145, 64, true);
    for (const float scale : {0.0f, -0.5f}) {
      scaled.scale = scale;
      CHECK(suite::passes(variant, {{scaled}}) == 1);
    }
  }
}

}  // namespace

TEST_CASE("causality, independence, infinities and scores of any size are handled as attention must") {
  have_the_properties(true);
}
TEST_CASE("… so do the other variants", "[.long]") { have_the_properties(false); }

// ---- how the work is shared ----

TEST_CASE("every tile of every item belongs to one block, whatever the grid") {
  for (const Attention& a : shared_shapes()) {
    const decoding::Work work(run::device_shape(a), 64);
    const std::int64_t all = std::int64_t{work.items} * work.tiles;
    for (const int grid : {1, 2, 7, 132, 264}) {
      const decoding::Stream stream{1, all, nullptr};
      std::int64_t next = 0;
      for (int block = 0; block < grid; ++block) {
        CHECK(stream.first_tile(block, grid) == next);
        next = stream.first_tile(block + 1, grid);
        for (std::int64_t tile = stream.first_tile(block, grid); tile < next; ++tile)
          REQUIRE(stream.block_of(tile, grid) == block);
      }
      CHECK(next == all);
    }
    for (const int parts : {1, 2, 3, 50}) {
      int next_tile = work.first_tile;
      for (int part = 0; part < parts; ++part) {
        const decoding::TileRange range = decoding::part_of_tiles(work, part, parts);
        CHECK(range.begin == next_tile);
        next_tile = range.end;
      }
      CHECK(next_tile == work.first_tile + work.tiles);
    }
  }
}

TEST_CASE("the choice: whole rows where items fill the SMs, clusters where they are few, and else all share all") {
  const auto choice = [](int batch, int kv_heads, int keys) {
    const Attention a = shape(batch, 4 * kv_heads, kv_heads, 1, keys, 128);
    return decoding::choose(decoding::Work(run::device_shape(a), 128), 132);
  };
  using decoding::Way;
  CHECK(choice(16, 8, 4096).way == Way::rows);  // 128 items
  CHECK(choice(16, 8, 4096).blocks == 128);
  CHECK(choice(64, 8, 1000).way == Way::rows);  // 512: four for each of 128 blocks
  CHECK(choice(64, 8, 1000).blocks == 128);
  CHECK(choice(1, 8, 4096).way == Way::cluster);
  CHECK(choice(1, 8, 4096).blocks == 8);
  CHECK(choice(1, 8, 32768).way == Way::cluster);  // 64 blocks read as fast as 132
  CHECK(choice(1, 1, 4096).way == Way::cluster);
  CHECK(choice(1, 1, 131072).way == Way::stream);  // 8 blocks do not
  CHECK(choice(4, 8, 131072).way == Way::stream);
  CHECK(choice(4, 8, 131072).blocks == 128);      // four for each item
  CHECK(choice(20, 8, 4096).way == Way::stream);  // 160: a second wave would have 28
  CHECK(choice(20, 8, 4096).blocks == 132);
  CHECK(choice(1, 1, 1).way == Way::rows);
}

TEST_CASE("more items than fit on the device at once are all computed, whole and cut") {
  const std::vector<suite::Case> cases = {{shape(23, 6, 6, 1, 20, 64)}, {shape(5, 60, 30, 1, 65, 64)}};  // 138 and 150 items
  for (const char* name : {"whole_rows", "stream_k", "split_kv", "tuned", "tuned_dependent"}) {
    INFO(name);
    CHECK(suite::passes(run::variant_named(step(), name), cases) == 2);
  }
}

// ---- dependent launches ----

// Each launch reads as queries what the one before wrote as O.
TEST_CASE("a chain of dependent launches gives the bits that it gives when the host waits after each") {
  for (const Attention& a : {shape(1, 4, 1, 1, 700, 64), shape(10, 7, 7, 1, 130, 64), shape(23, 6, 6, 1, 20, 64)}) {
    const AttentionInputs inputs = problem::make_inputs(a, 6);
    const auto chain = [&](const run::AttentionVariant& variant, bool host_waits) {
      run::DeviceArrays arrays(run::AttentionFamily::arrays(a) + variant.scratch_of(a), run::AttentionFamily::given(a, inputs));
      arrays.prepare();
      const run::AttentionLaunch there = run::AttentionFamily::bind(a, arrays);
      run::AttentionLaunch back = there;
      back.q = {there.o.data, there.o.batch_stride, there.o.head_stride, there.o.row_stride};
      back.o = {const_cast<void*>(there.q.data), there.q.batch_stride, there.q.head_stride, there.q.row_stride};
      for (const run::AttentionLaunch* launch : std::array<const run::AttentionLaunch*, 3>{&there, &back, &there}) {
        variant.launch(*launch);
        if (host_waits) runtime::synchronize();
      }
      runtime::synchronize();
      return arrays.download().front().tensor.values;
    };
    for (const char* name : {"dependent", "tuned_dependent", "stream_k"}) {
      INFO(name << ", " << problem::to_string(a));
      const run::AttentionVariant& variant = run::variant_named(step(), name);
      CHECK(chain(variant, false) == chain(variant, true));
      CHECK(runtime::take_findings().empty());
    }
  }
}

// ---- refusals ----

TEST_CASE("what a variant does not take is refused by name") {
  const auto reason = [](const char* variant, const Attention& a) {
    return run::refusal(run::variant_named(step(), variant).supports, a).value_or("");
  };
  CHECK_THAT(reason("cluster", shape(1, 1, 1, 1, 8, 32)), Catch::Matchers::StartsWith("does not support dim 32; "));
  CHECK_THAT(reason("tuned", shape(1, 1, 1, 1, 8, 96)), Catch::Matchers::StartsWith("does not support dim 96; "));
  CHECK_THAT(reason("tuned", shape(1, 1, 1, 1, 8, 64, false, 0, Dtype::fp32)), ContainsSubstring("fp32"));
  CHECK_THAT(reason("stream_k", shape(60000, 60000, 60000, 1, 1, 64)), ContainsSubstring("so many queries"));
  CHECK_THAT(reason("any_dim", shape(60000, 60000, 1, 1, 1, 64)), ContainsSubstring("so many queries"));
  CHECK(reason("any_dim", shape(1, 3, 1, 1, 8, 77, false, 0, Dtype::fp32)) == "");
}
