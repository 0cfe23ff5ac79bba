// Step 06: the gradients of every variant are right at every shape, with every mask, in every type; what a row does not depend
// on does not touch it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <set>

#include "common/reference/attention.h"
#include "tests/catch.h"
#include "tests/steps/06_backward/query_tiles.h"
#include "tests/suites/backward_suite.h"
#include "tests/suites/tiers.h"

namespace {

using problem::Attention;
using problem::Backward;
using problem::BackwardInputs;
using problem::Dtype;
using suite::BackwardCase;
using suite::BackwardVariants;
using suite::Case;

const run::BackwardStep& step() { return run::this_step_as<run::BackwardStep>(); }
const run::BackwardVariant& variant_named(const std::string& name) { return run::variant_named(step(), name); }

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

Attention scaled(Attention s, float scale) {
  s.scale = scale;
  return s;
}

bool takes(const run::BackwardVariant& variant, const Attention& s) { return !run::refusal(variant.supports, s); }

// Scalar kernels, for which the simulator needs six times as long.
bool is_scalar(const run::BackwardVariant& variant) { return variant.name == "standard" || variant.name == "recompute"; }

// make test gives the default variant the whole of each list, and others a part: each rung of the ladder differs little from
// its neighbours. make test-all gives them the rest.
std::size_t every(const run::BackwardVariant& variant) {
  return is_scalar(variant) ? 12 : variant.name == step().default_variant ? 1 : 8;
}

BackwardVariants those(const std::function<bool(const run::BackwardVariant&)>& picked) {
  BackwardVariants some;
  std::copy_if(step().variants.begin(), step().variants.end(), std::back_inserter(some), picked);
  return some;
}
BackwardVariants named(const std::vector<std::string>& names) {
  return those([&](const auto& variant) { return std::find(names.begin(), names.end(), variant.name) != names.end(); });
}
BackwardVariants of_tiles() {
  return those([](const auto& variant) { return !is_scalar(variant); });
}

std::vector<BackwardCase> part_of(const std::vector<BackwardCase>& cases, const run::BackwardVariant& variant,
                                  std::size_t first) {
  std::vector<BackwardCase> part;
  for (std::size_t i = first % every(variant); i < cases.size(); i += every(variant)) part.push_back(cases[i]);
  return part;
}

// Every variant passes every case whose type and head dim it takes; or a part of them.
void all_pass(const std::vector<Case>& list, bool all) {
  const std::vector<BackwardCase> cases = suite::ready(step(), list);
  std::size_t first = 0;
  for (const run::BackwardVariant& variant : step().variants) {
    const auto& [dtypes, dims] = std::pair(variant.supports.dtypes, variant.supports.dims);
    const auto served = [&](const BackwardCase& c) {
      return std::find(dtypes.begin(), dtypes.end(), c.shape.dtype) != dtypes.end() &&
             (dims.empty() || std::find(dims.begin(), dims.end(), c.shape.dim) != dims.end());
    };
    std::vector<BackwardCase> some;
    std::copy_if(cases.begin(), cases.end(), std::back_inserter(some), served);
    if (!all) some = part_of(some, variant, first++);
    CHECK(suite::passes(variant, some) == std::ssize(some));
    if (variant.name == step().default_variant && cases.front().shape.dtype != Dtype::fp32) CHECK(some.size() == cases.size());
  }
}

}  // namespace

// ---- shapes ----

TEST_CASE(
    "every variant is right over the shape list, types by turns, large shapes under one mask (a part of it for all but the "
    "default "
    "one), and the default one refuses nothing on it") {
  all_pass(suite::one_mask_each(suite::in_turns(suite::shape_list(Dtype::fp16), suite::shape_list(Dtype::bf16), 0)), false);
}
TEST_CASE("… under the other mask, and with the types the other way round", "[.long]") {
  all_pass(suite::other_masks(suite::in_turns(suite::shape_list(Dtype::fp16), suite::shape_list(Dtype::bf16), 0)), false);
  all_pass(suite::in_turns(suite::shape_list(Dtype::bf16), suite::shape_list(Dtype::fp16), 0), false);
}

TEST_CASE("the scalar variants are right in fp32 at every eighth shape of the list") {
  const auto list = suite::shape_list(Dtype::fp32);
  std::vector<Case> part;
  for (std::size_t i = 0; i < list.size(); i += 8) part.push_back(list[i]);
  const auto cases = suite::ready(step(), part);
  for (const auto& variant : those(is_scalar)) CHECK(suite::passes(variant, cases) == std::ssize(cases));
}
TEST_CASE("the scalar variants are right in fp32 over the shape list, large shapes under one mask", "[.long]") {
  const auto cases = suite::ready(step(), suite::one_mask_each(suite::shape_list(Dtype::fp32)));
  for (const auto& variant : those(is_scalar)) CHECK(suite::passes(variant, cases) == std::ssize(cases));
}

namespace {

// Tiles have 32, 64 or 128 keys and 32, 64 or 128 queries.
std::vector<Case> tile_edges(const std::vector<int>& lengths, const std::vector<int>& dims) {
  std::vector<Case> list;
  std::size_t turn = 0;
  for (const int dim : dims) {
    for (const int seq_q : lengths) {
      for (const int seq_k : lengths) {
        const Dtype dtype = turn % 2 == 0 ? Dtype::fp16 : Dtype::bf16;
        list.push_back({shape(1, 1, 1, seq_q, seq_k, dim, turn % 3 == 0, 0, dtype)});
        ++turn;
      }
    }
  }
  return list;
}

}  // namespace

TEST_CASE("one less than a tile, a tile, and one more: queries and keys, in every second pair, for every head dim of tiles") {
  std::vector<Case> part;
  std::size_t turn = 0;
  for (const Case& c : tile_edges({31, 33, 64, 65, 127, 129}, {32, 64, 96, 128})) {
    if (turn++ % 4 == static_cast<std::size_t>(c.shape.dim / 32 - 1)) part.push_back(c);
  }
  all_pass(part, false);
}
TEST_CASE("… and in every pair, for the head dims of the tuned kernels", "[.long]") {
  all_pass(tile_edges({32, 63, 64, 65, 127, 128, 129}, {64, 128}), false);
}

TEST_CASE("the rungs between pipeline and tuned_128 are right over the whole shape list, and at every edge of a tile",
          "[.long]") {
  std::vector<Case> list = suite::in_turns(suite::shape_list(Dtype::fp16), suite::shape_list(Dtype::bf16), 0);
  for (std::size_t i = 0; i < list.size(); ++i) list[i].shape.dim = i % 4 < 2 ? 96 : 128;
  const std::vector<Case> edges = tile_edges({31, 33, 64, 65, 127, 129}, {96, 128});
  list.insert(list.end(), edges.begin(), edges.end());
  const auto cases = suite::ready(step(), list);
  for (const run::BackwardVariant& variant : named({"column_split", "roles"})) {
    CHECK(suite::passes(variant, cases) == std::ssize(cases));
  }
}

namespace {

// Rows of 2 · dim bytes begin at multiples of 16, 8, 4 and 2 bytes, and each ends elsewhere in its last chunk.
void any_dim(const std::vector<int>& dims, Dtype other, const BackwardVariants& variants) {
  std::vector<Case> list;
  for (const int dim : dims) {
    list.push_back({shape(1, 2, 1, 19, 70, dim, dim % 2 == 0, 0, list.size() % 2 == 0 ? other : Dtype::fp16)});
  }
  const auto cases = suite::ready(step(), list);
  for (const run::BackwardVariant& variant : variants) CHECK(suite::passes(variant, cases) == std::ssize(cases));
}

BackwardVariants of_any_dim() {
  return those([](const auto& variant) { return variant.supports.dims.empty(); });
}

}  // namespace

TEST_CASE("head dims of every kind, of the variants that take any") {
  REQUIRE(of_any_dim().size() == 5);
  any_dim({1, 2, 31, 33, 40, 65, 80, 95, 129, 256}, Dtype::bf16, of_any_dim());
}
TEST_CASE("… and more of them, the scalar variants in fp32, too", "[.long]") {
  any_dim({3, 8, 36, 63, 97, 130, 200, 255}, Dtype::bf16, of_any_dim());
  any_dim({1, 3, 33, 97, 129, 255}, Dtype::fp32, those(is_scalar));
}

// ---- options ----

namespace {

struct Option {
  const char* name;
  std::function<void(Attention&)> apply;
};

// What excludes each other has the same name.
const std::vector<Option> options = {
    {"mask", [](Attention& s) { s.causal = true; }},           {"window", [](Attention& s) { s.window = 20; }},
    {"heads", [](Attention& s) { s.heads = 2, s.batch = 2; }}, {"lengths", [](Attention& s) { s.seq_k += 53; }},
    {"lengths", [](Attention& s) { s.seq_q += 53; }},          {"scale", [](Attention& s) { s.scale = -0.3f; }},
    {"scale", [](Attention& s) { s.scale = 0.0f; }},           {"dtype", [](Attention& s) { s.dtype = Dtype::bf16; }},
};

// No option, each option, and each pair.
std::vector<Case> pairs_of_options(int dim, int seq) {
  const Attention base = shape(1, 1, 1, seq, seq, dim, false);
  std::vector<Case> list = {{base}};
  for (std::size_t a = 0; a < options.size(); ++a) {
    Attention one = base;
    options[a].apply(one);
    list.push_back({one});
    for (std::size_t b = a + 1; b < options.size(); ++b) {
      if (std::string(options[a].name) == options[b].name) continue;
      Attention two = one;
      options[b].apply(two);
      list.push_back({two});
    }
  }
  return list;
}

void pairs_pass(int dim, int seq, const std::function<bool(const run::BackwardVariant&)>& picked, bool all) {
  const auto cases = suite::ready(step(), pairs_of_options(dim, seq));
  std::size_t first = 0;
  for (const run::BackwardVariant& variant : those(picked)) {
    if (!takes(variant, cases.front().shape)) continue;
    const std::vector<BackwardCase> some = all ? cases : part_of(cases, variant, first++);
    CHECK(suite::passes(variant, some) == std::ssize(some));
  }
}

// Each option in each layout.
void layouts_pass(int dim, const std::function<bool(const run::BackwardVariant&)>& picked, bool all) {
  std::vector<Case> list;
  for (const Option& option : options) {
    Attention s = shape(1, 1, 1, 37, 37, dim, false);
    option.apply(s);
    list.push_back({s});
  }
  const auto cases = suite::ready(step(), list);
  std::size_t first = 0;
  for (const run::BackwardVariant& variant : those(picked)) {
    if (!takes(variant, cases.front().shape)) continue;
    for (const BackwardCase& c : all ? cases : part_of(cases, variant, first++)) {
      for (const bool tokens_first : {false, true}) {
        for (const bool gaps : {false, true}) suite::clean(variant, c, {.layout = {tokens_first, gaps}});
      }
    }
  }
}

bool any_variant(const run::BackwardVariant&) { return true; }
bool is_tuned(const run::BackwardVariant& variant) { return variant.name == "tuned" || variant.name == "tuned_80"; }
bool is_tuned_128(const run::BackwardVariant& variant) { return variant.name == "tuned_128"; }
bool has_tiles(const run::BackwardVariant& variant) { return !is_scalar(variant); }

}  // namespace

TEST_CASE("every option and every pair of options: masks, windows, grouped heads, lengths, scales, types") {
  pairs_pass(32, 40, has_tiles, false);
  pairs_pass(96, 40, is_tuned, false);
  pairs_pass(128, 40, is_tuned_128, false);
  pairs_pass(5, 20, is_scalar, true);
}
TEST_CASE("every option in every memory layout") {
  layouts_pass(32, any_variant, false);
  layouts_pass(128, is_tuned_128, false);
}
TEST_CASE("… and at several tiles, for the head dims of the tuned kernels", "[.long]") {
  for (const int dim : {64, 128}) {
    pairs_pass(dim, 90, has_tiles, false);
    layouts_pass(dim, has_tiles, false);
  }
}

TEST_CASE("windows: narrower and wider than a tile, with and without a causal mask, where no key or every key is seen") {
  std::vector<Case> list;
  std::size_t turn = 0;
  for (const bool causal : {false, true}) {
    for (const int dim : {32, 64, 96, 128}) {
      const int window = std::vector{1, 7, 64, 100}[turn++ % 4];
      if (turn % 2 == 0) list.push_back({shape(1, 2, 1, 150, 150, dim, causal, window)});
      if (turn % 2 == 1) list.push_back({shape(1, 1, 1, 30, 290, dim, causal, window, Dtype::bf16)});
      list.push_back({shape(1, 1, 1, 200, 70, dim, causal, window)});  // the first queries see nothing if causal
    }
    ++turn;
    list.push_back({shape(1, 1, 1, 90, 100, 40, causal, 30)});
  }
  all_pass(list, false);
}
TEST_CASE("every window at every shape", "[.long]") {
  std::vector<Case> list;
  for (const int window : {1, 31, 65, 127, 1000}) {
    for (const bool causal : {false, true}) {
      for (const int dim : {64, 128}) {
        list.push_back({shape(1, 2, 1, 150, 150, dim, causal, window)});
        list.push_back({shape(1, 1, 1, 30, 290, dim, causal, window, Dtype::bf16)});
        list.push_back({shape(1, 1, 1, 200, 70, dim, causal, window)});
      }
    }
  }
  all_pass(list, false);
}

TEST_CASE("the largest window is no window, and wraps nowhere") {
  std::vector<Case> list;
  for (const int window : {std::numeric_limits<int>::max(), 1 << 30}) {
    for (const bool causal : {false, true}) {
      list.push_back({shape(1, 1, 1, 40, 70, 32, causal, window)});
      list.push_back({shape(1, 1, 1, 70, 40, 128, causal, window)});
      list.push_back({shape(1, 1, 1, 3, 130, 96, causal, window, Dtype::bf16)});
    }
  }
  all_pass(list, false);
}

TEST_CASE("scales of any sign and size, 0 among them") {
  std::vector<Case> list;
  for (const float scale : {0.0f, -0.0f, 1e-45f, -1e-45f, -0.1f, 0x1p-100f, 2.0f}) {
    for (const int dim : {32, 128, 40}) {
      list.push_back({scaled(shape(1, 1, 1, 40, 90, dim, true, 0, dim == 40 ? Dtype::bf16 : Dtype::fp16), scale)});
    }
    list.push_back({scaled(shape(1, 1, 1, 256, 64, 64, true), scale)});  // the first tiles of queries see no key at all
  }
  all_pass(list, false);
}

// Nothing of these is run: what is too large is refused before there are arrays.
TEST_CASE("counts beyond 32 bits are refused by name, and none below") {
  const auto reason = [](int batch, int heads, int kv_heads, int seq_q) {
    const problem::Attention a =
        problem::resolve({.batch = batch, .heads = heads, .kv_heads = kv_heads, .seq_q = seq_q, .dtype = Dtype::fp16});
    std::set<std::string> reasons;
    for (const run::BackwardVariant& variant : step().variants) {
      const std::vector<int>& dims = variant.supports.dims;
      if (!dims.empty() && std::find(dims.begin(), dims.end(), a.dim) == dims.end()) continue;
      const auto refused = run::refusal(variant.supports, a);
      reasons.insert(refused ? refused->substr(0, refused->find(';')) : "");
    }
    REQUIRE(reasons.size() == 1);
    return *reasons.begin();
  };
  CHECK(reason(32768, 65535, 65535, 1) == "");
  CHECK(reason(32769, 65535, 65535, 1) == "does not support 2^31 or more key/value heads in all batch entries");
  CHECK(reason(1, 1 << 15, 1, 1 << 15) == "");
  CHECK(reason(1, 1 << 15, 1, (1 << 15) + 1) ==
        "does not support more than 2^30 queries of the heads that share a key/value head");
  CHECK(reason(1, 1, 1, (1 << 28) - 128) == "");
  CHECK(reason(1, 1, 1, (1 << 28) - 127) == "does not support 2^28 or more queries, counted in whole tiles");
}

TEST_CASE("rows at odd addresses: a variant is right there, or refuses them by name") {
  for (const int dim : {64, 128}) {
    const BackwardCase c = suite::ready(step(), {shape(2, 2, 1, 20, 40, dim, true)});
    for (const run::BackwardVariant& variant : step().variants) {
      if (!takes(variant, c.shape)) continue;
      for (const bool tokens_first : {false, true}) {
        INFO(variant.name);
        const run::ExecuteOptions at_odd_addresses = {.layout = {.tokens_first = tokens_first, .odd = true}};
        if (variant.supports.row_alignment == 1) {
          suite::clean(variant, c, at_odd_addresses);
          continue;
        }
        try {
          run::execute(variant, c.shape, c.inputs, at_odd_addresses, c.truth.get());
          FAIL("not refused");
        } catch (const std::invalid_argument& error) {
          REQUIRE(std::string(error.what()).find(variant.name + " does not support rows that begin elsewhere") == 0);
        }
      }
    }
  }
}

// ---- what the algorithm is made of ----

TEST_CASE("tiles of queries: every query that sees a key is in one, and free tiles need no mask") {
  for (const auto& [seq_q, seq_k] : {std::pair{1, 1}, {64, 64}, {65, 63}, {200, 70}, {70, 200}, {130, 130}, {3, 260}}) {
    for (const int window : {0, 1, 5, 64, 90, 300}) {
      for (const bool causal : {false, true}) {
        const Attention problem = shape(1, 1, 1, seq_q, seq_k, 64, causal, window);
        const device::AttentionShape s = run::device_shape(problem);
        const reference::AttentionSpec spec{1, 1, 1, seq_q, seq_k, 64, causal, window};
        for (int key = 0; key < seq_k; ++key) {
          const reference::QueryRange seeing = reference::queries_seeing(spec, key);
          INFO(problem::to_string(problem) << ", window " << window << ", key " << key);
          REQUIRE((seeing.empty() ? s.first_query(key) >= s.end_query(key)
                                  : s.first_query(key) == seeing.begin && s.end_query(key) == seeing.end));
        }
        for (const auto& [keys, queries] : {std::pair{64, 64}, {128, 32}, {128, 64}, {32, 8}, {64, 32}}) {
          for (int first = 0; first < seq_k; first += keys) {
            const tests::QueryTiles tiles = tests::query_tiles(s, first, keys, queries);
            INFO(problem::to_string(problem)
                 << ", window " << window << ", " << keys << " keys from " << first << ", tiles of " << queries);
            REQUIRE((tiles.begin <= tiles.free_begin && tiles.free_begin <= tiles.free_end && tiles.free_end <= tiles.end));
            int some = 0;
            for (int tile = 0; tile < (seq_q + queries - 1) / queries; ++tile) {
              int seen = 0, rows = 0;  // pairs of this tile, and its queries
              for (int i = tile * queries; i < std::min(seq_q, (tile + 1) * queries); ++i) {
                ++rows;
                for (int j = first; j < std::min(seq_k, first + keys); ++j) {
                  seen += j >= problem.first_key(i) && j < problem.last_key(i);
                }
              }
              some += seen > 0;
              if (seen > 0) REQUIRE((tile >= tiles.begin && tile < tiles.end));
              // Queries that do not exist see nothing by their LSE; keys that do not exist need a mask.
              REQUIRE((tile >= tiles.free_begin && tile < tiles.free_end) == (seen == rows * keys));
            }
            REQUIRE(tiles.end - tiles.begin == some);
          }
        }
      }
    }
  }
}

namespace {

double loss(const reference::AttentionSpec& spec, const BackwardInputs& in) {
  const std::span<const float> q = in.q.values, k = in.k.values, v = in.v.values;
  const std::vector<double> o = reference::forward(spec, reference::all_rows(spec), q, k, v).o;
  double sum = 0;
  for (std::size_t i = 0; i < o.size(); ++i) sum += static_cast<double>(in.d_o.values[i]) * o[i];
  return sum;
}

// Central differences of the loss Σ dO ∘ O in each element of a tensor.
std::vector<double> differences(const reference::AttentionSpec& spec, BackwardInputs in,
                                problem::Tensor BackwardInputs::*tensor) {
  std::vector<double> slopes;
  for (float& x : (in.*tensor).values) {
    const float at = x, above = at + 0x1p-10f, below = at - 0x1p-10f;  // an fp32 number, so the step is what they differ by
    x = above;
    const double of_above = loss(spec, in);
    x = below;
    slopes.push_back((of_above - loss(spec, in)) / (static_cast<double>(above) - below));
    x = at;
  }
  return slopes;
}

}  // namespace

TEST_CASE("the scalar variants agree with finite differences in fp32: masks, windows, grouped heads, empty rows") {
  std::vector<Attention> shapes = {
      shape(1, 1, 1, 5, 5, 3, false, 0, Dtype::fp32), shape(2, 4, 2, 7, 12, 8, true, 0, Dtype::fp32),
      shape(1, 2, 1, 11, 6, 5, true, 0, Dtype::fp32), shape(1, 2, 2, 9, 13, 6, true, 4, Dtype::fp32),
      shape(1, 3, 1, 9, 9, 4, false, 3, Dtype::fp32)};
  shapes.push_back(scaled(shape(1, 2, 1, 6, 40, 4, true, 0, Dtype::fp32), -0.7f));
  for (const Attention& s : shapes) {
    const BackwardCase c = suite::ready(step(), {s}, 61);
    const reference::AttentionSpec spec = run::spec_of(s);
    const std::vector<double> dq = differences(spec, c.inputs, &BackwardInputs::q),
                              dk = differences(spec, c.inputs, &BackwardInputs::k),
                              dv = differences(spec, c.inputs, &BackwardInputs::v);
    for (const run::BackwardVariant& variant : those(is_scalar)) {
      const run::Outcome outcome = suite::clean(variant, c);
      const auto agrees = [&](const char* name, const std::vector<double>& expected) {
        const auto& values = outcome.output(name).values;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          INFO(variant.name << ", " << problem::to_string(s) << ": " << name << "[" << i << "]");
          REQUIRE(values[i] == Approx(expected[i]).epsilon(1e-4).margin(2e-5));
        }
      };
      agrees("dq", dq);
      agrees("dk", dk);
      agrees("dv", dv);
    }
  }
}

TEST_CASE("LSE and O are the ones given: shifted LSE shrinks P, and with it dV") {
  // P = exp(S − LSE): with ln 2 added to every LSE, dV is half of what it was. The verdict rejects such an LSE.
  for (const Attention& problem : {shape(1, 2, 1, 20, 40, 32, true), shape(1, 2, 1, 20, 40, 128, true)}) {
    const BackwardCase c = suite::ready(step(), {problem}, 62);
    BackwardCase shifted = c;
    for (float& lse : shifted.inputs.lse.values) lse += 0.693147181f;
    for (const run::BackwardVariant& variant : step().variants) {
      if (!takes(variant, problem)) continue;
      const run::ExecuteOptions unchecked = {.check = false};
      const auto dv = run::execute(variant, c.shape, c.inputs, unchecked).output("dv").values;
      const auto halved = run::execute(variant, c.shape, shifted.inputs, unchecked).output("dv").values;
      double most = 0;
      for (std::size_t i = 0; i < dv.size(); ++i) most = std::max(most, std::abs(halved[i] - 0.5 * dv[i]));
      INFO(variant.name << ", dim " << problem.dim);
      CHECK(most < 0.01);
    }
  }
}

TEST_CASE("gradients made from a wrong O or LSE are rejected") {
  suite::rejects_wrong_forward(step(), step().variants, shape(1, 2, 1, 17, 25, 32, true));
  suite::rejects_wrong_forward(step(), {variant_named("tuned_128")}, shape(1, 2, 1, 17, 25, 128, true));
}

// ---- properties ----

namespace {

void properties(const BackwardVariants& variants, int dim) {
  suite::depends_on_visible_pairs(step(), variants, shape(1, 1, 1, 80, 140, dim, true));
  suite::depends_on_visible_pairs(step(), variants, shape(1, 1, 1, 40, 140, dim, false, 30, Dtype::bf16));
  suite::heads_are_independent(step(), variants, shape(2, 4, 2, 19, 70, dim, false));
  suite::empty_rows_are_zero(step(), variants, shape(1, 2, 1, 110, 40, dim, true));
  suite::empty_rows_are_zero(step(), variants, shape(1, 2, 2, 40, 140, dim, true, 40, Dtype::bf16));
  suite::empty_rows_are_zero(step(), variants, shape(1, 1, 1, 140, 40, dim, false, 30));
}

BackwardVariants scalar_and_tuned() {
  return those([](const auto& variant) { return is_scalar(variant) || variant.name == "tuned"; });
}

}  // namespace

TEST_CASE("what a row does not see does not change it by a bit: queries, keys, heads, batch entries; empty rows are 0") {
  properties(named({"two_kernels", "tuned"}), 32);
  properties({variant_named("tuned_128")}, 128);
}
TEST_CASE("… with kernels that take any head dim") {
  const auto variants = scalar_and_tuned();
  suite::depends_on_visible_pairs(step(), variants, shape(1, 2, 1, 37, 41, 7, true));
  suite::heads_are_independent(step(), variants, shape(2, 4, 2, 9, 20, 7, false));
  suite::empty_rows_are_zero(step(), variants, shape(1, 2, 1, 50, 20, 7, true));
  suite::empty_rows_are_zero(step(), variants, shape(1, 2, 1, 20, 50, 7, false, 5));
}
TEST_CASE("… with every variant of head dim 64", "[.long]") { properties(of_tiles(), 64); }

TEST_CASE("NaN and infinity in Q, K, V or dO reach the gradients that depend on them, and no others") {
  suite::contains_nan(step(), of_tiles(), shape(1, 1, 1, 20, 24, 32, true), false);
  suite::contains_nan(step(), {variant_named("tuned")}, shape(1, 1, 1, 40, 70, 32, true), false);
  suite::contains_nan(step(), {variant_named("tuned_128")}, shape(1, 1, 1, 20, 70, 128, true, 15, Dtype::bf16), false);
  suite::contains_nan(step(), scalar_and_tuned(), shape(1, 2, 1, 9, 13, 7, true), false);
}
TEST_CASE("… with windows, empty rows and two heads that share keys", "[.long]") {
  suite::contains_nan(step(), of_tiles(), shape(1, 2, 1, 40, 30, 64, true), false);
  suite::contains_nan(step(), of_tiles(), shape(1, 1, 1, 40, 70, 128, false, 20, Dtype::bf16), false);
}
TEST_CASE("… with rows of more columns, and more partners, than a warp takes at a time", "[.long]") {
  suite::contains_nan(step(), {variant_named("any_dim")}, shape(1, 1, 1, 150, 300, 200, true), false);
  suite::contains_nan(step(), {variant_named("any_dim")}, shape(1, 1, 1, 150, 300, 33, true, 140, Dtype::bf16), false);
  suite::contains_nan(step(), {variant_named("tuned_64")}, shape(1, 2, 1, 600, 600, 32, true), false);
}

TEST_CASE("a dS that fp16 does not hold spoils no row whose gradients it holds") {
  const Backward a = suite::ready(step(), {shape(1, 1, 1, 4, 2, 32, false)}).shape;
  problem::BackwardInputs inputs = suite::ready(step(), {a}).inputs;
  const auto fill = [](problem::Tensor& x, float first_row, float others) {
    std::fill(x.values.begin(), x.values.end(), others);
    std::fill_n(x.values.begin(), 32, first_row);
  };
  fill(inputs.q, 0x1p-6f, 0x1p-6f);
  fill(inputs.k, 0x1p-4f, -0x1p-4f);
  fill(inputs.v, 0.5f, -0.5f);
  fill(inputs.d_o, 12000, 12000);
  const BackwardCase c = suite::ready(step(), a, inputs);
  for (const run::BackwardVariant& variant : of_tiles()) {
    if (!takes(variant, a)) continue;
    INFO(variant.name);
    const run::Outcome outcome = suite::clean(variant, c);
    // P is ½, dP ± 32 · 12000 / 2: dS is ±96,000, less what D takes. The checker leaves such rows out.
    for (const float x : outcome.output("dq").values) CHECK(std::abs(x - 2115) < 20);
    for (const float x : outcome.output("dk").values) CHECK(std::abs(std::abs(x) - 1058) < 10);
  }
}

TEST_CASE("dK and dV have the same bits twice, whatever dQ's sums do; a deterministic variant repeats dQ, too") {
  const BackwardCase c = suite::ready(step(), {shape(1, 2, 1, 70, 140, 32, true)}, 71);
  const BackwardCase longer_rows = suite::ready(step(), {shape(1, 2, 1, 70, 140, 128, true)}, 72);
  for (const run::BackwardVariant& variant : step().variants) {
    suite::repeats(variant, takes(variant, c.shape) ? c : longer_rows);
  }
  for (const run::BackwardVariant& variant : step().variants) {
    CHECK(variant.deterministic ==
          (variant.name == "standard" || variant.name == "two_kernels" || variant.name == "deterministic"));
  }
}
