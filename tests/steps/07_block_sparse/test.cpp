// Step 07: right over shapes, masks and types of heads, forward and backward; rows and columns that are split; what does not
// depend on what.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/catch.h"
#include "tests/suites/attention_suite.h"
#include "tests/suites/backward_suite.h"
#include "tests/suites/tiers.h"

namespace {

using problem::Attention;
using problem::AttentionInputs;
using problem::Dtype;
using problem::SparseMask;
using problem::Tensor;
using suite::Case;

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }
const run::BackwardStep& backward_step() { return *step().backward; }
const run::AttentionVariant& balanced() { return run::variant_named(step(), "balanced"); }

// ---- masks ----

using IsLive = std::function<bool(int head, int row, int column)>;

Attention with_blocks(Attention shape, int block_q, int block_k, const IsLive& is_live) {
  shape = problem::resolve(shape);
  auto mask = std::make_shared<SparseMask>(SparseMask{.block_q = block_q, .block_k = block_k});
  mask->types.assign(shape.heads, static_cast<std::int32_t>(problem::HeadType::block_sparse));
  const int rows = problem::query_blocks(*mask, shape), columns = problem::key_blocks(*mask, shape);
  const int words = problem::words_of_row(*mask, shape);
  mask->live.assign(static_cast<std::size_t>(shape.heads) * rows * words, 0);
  for (int head = 0; head < shape.heads; ++head) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        std::int32_t& word = mask->live[(static_cast<std::size_t>(head) * rows + row) * words + column / 32];
        if (is_live(head, row, column)) word |= static_cast<std::int32_t>(1u << column % 32);
      }
    }
  }
  shape.sparse = mask;
  return problem::resolve(shape);
}

// A pattern, or one of those that are no pattern of the command line.
Attention masked(Attention shape, const std::string& pattern, int block_q, int block_k, std::uint64_t seed = 1) {
  shape = problem::resolve(shape);
  const SparseMask blocks{.block_q = block_q, .block_k = block_k};
  const int last_row = problem::query_blocks(blocks, shape) - 1, last_column = problem::key_blocks(blocks, shape) - 1;
  if (pattern == "one block") {  // of each head: the first, the last, or one between
    return with_blocks(shape, block_q, block_k, [&](int head, int row, int column) {
      return row == last_row * (head % 2) && column == last_column * (head % 3) / 2;
    });
  }
  if (pattern == "last column") {
    return with_blocks(shape, block_q, block_k, [&](int, int, int column) { return column == last_column; });
  }
  if (pattern == "empty columns") {
    return with_blocks(shape, block_q, block_k, [](int head, int, int column) { return column % 2 == head % 2; });
  }
  if (pattern == "empty rows") {
    return with_blocks(shape, block_q, block_k, [](int head, int row, int) { return row % 2 == head % 2; });
  }
  shape.sparse = problem::make_pattern(pattern, shape, block_q, block_k, seed);
  return problem::resolve(shape);
}

const char* patterns[] = {"random:0.5",
                          "one block",
                          "band:1,dense",
                          "sink:3t+local:70t,random:0.3,dense,empty",
                          "last column",
                          "empty,sink:1+local:1",
                          "sink:130t+local:0t",
                          "empty columns",
                          "full-row:0.2",
                          "sink:0t+local:1t",
                          "empty rows",
                          "vertical-slash:1+1",
                          "dense",
                          "empty",
                          "random:1"};
bool by_token(const std::string& pattern) { return pattern.find("t+") != std::string::npos; }

// A shape list under masks: each shape under `of_each` of the patterns, by turns. Head dims, blocks, windows and dropout
// change from one to the next, as far as the variant takes them.
std::vector<Case> masked_list(const run::AttentionSupport& supports, const std::vector<Case>& list, std::size_t of_each,
                              std::size_t first = 0) {
  std::vector<Case> cases;
  std::size_t turn = first;
  for (const Case& plain : list) {
    for (std::size_t n = 0; n < of_each; ++n, ++turn) {
      const char* pattern = patterns[(turn + turn / std::size(patterns)) % std::size(patterns)];
      Attention a = plain.shape;
      a.scale.reset();
      if (a.heads == 1 && n % 2 == 1) a.heads = 2;  // two types
      a.dim = supports.dims[turn % supports.dims.size()];
      if (turn % 7 == 0) a.window = 90;
      if (turn % 4 == 1 && supports.dropout) a.dropout = 64;
      const auto &blocks_q = supports.sparse_q, &blocks_k = supports.sparse_k;
      if (by_token(pattern) && !supports.sparse_tokens) pattern = "random:0.7";
      cases.push_back(
          {masked(a, pattern, blocks_q[turn / 2 % blocks_q.size()], blocks_k[turn / 3 % blocks_k.size()], turn), plain.inputs});
    }
  }
  return cases;
}

// Each shape under a mask, in turns of two types.
std::vector<Case> quick_list(const run::AttentionSupport& supports, int turn, std::size_t first = 0) {
  const auto list = suite::in_turns(suite::shape_list(Dtype::fp16), suite::shape_list(Dtype::bf16), turn);
  return masked_list(supports, suite::one_mask_each(list), 1, first);
}

// Every n-th of them.
std::vector<Case> some_of(const std::vector<Case>& cases, std::size_t n, std::size_t first = 0) {
  std::vector<Case> some;
  for (std::size_t i = first % n; i < cases.size(); i += n) some.push_back(cases[i]);
  return some;
}

void all_pass(const run::AttentionVariant& variant, const std::vector<Case>& cases) {
  CHECK(suite::passes(variant, cases) == std::ssize(cases));
}
void gradients_pass(const std::vector<Case>& cases) {
  std::uint64_t seed = 0;
  for (const Case& c : cases) {
    const suite::BackwardCase made = suite::ready(backward_step(), c, ++seed);
    for (const run::BackwardVariant& variant : backward_step().variants) CHECK(suite::passes(variant, {made}) == 1);
  }
}

}  // namespace

// ---- right numbers ----

TEST_CASE("every variant is right over the shape list, masks and types of heads; large shapes are causal or not") {
  std::size_t turn = 0;
  for (const run::AttentionVariant& variant : step().variants) {
    const bool is_rung = variant.name != "balanced";
    const std::vector<Case> cases = quick_list(variant.supports, 0);
    all_pass(variant, is_rung ? some_of(cases, 5, turn++) : cases);
  }
}
TEST_CASE("… the whole list under three masks each, in either type", "[.long]") {
  for (const run::AttentionVariant& variant : step().variants) {
    const std::size_t of_each = variant.name == "balanced" ? 3 : 1;
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      all_pass(variant, masked_list(variant.supports, suite::shape_list(dtype), of_each, dtype == Dtype::fp16 ? 0 : 7));
    }
  }
}

TEST_CASE("gradients are right over the shape list, masks and types of heads; large shapes are causal or not") {
  const auto& supports = backward_step().variants.front().supports;
  gradients_pass(quick_list(supports, 1, 3));
}
TEST_CASE("… gradients over the whole list under two masks each, in either type", "[.long]") {
  const auto& supports = backward_step().variants.front().supports;
  gradients_pass(masked_list(supports, suite::shape_list(Dtype::fp16), 2, 1));
  gradients_pass(masked_list(supports, suite::shape_list(Dtype::bf16), 2, 8));
}

namespace {

// One head of eight is alive: its rows and its columns are eight times the mean.
Attention one_head_alive(int dim, int seq_q, int seq_k, int turn, int live = 0) {
  Attention a{.heads = 8, .kv_heads = 8, .seq_q = seq_q, .seq_k = seq_k, .dim = dim, .causal = turn % 3 == 0};
  a.dtype = turn % 2 ? Dtype::bf16 : Dtype::fp16;
  if (turn % 4 == 1) a.dropout = 64;
  std::string pattern;
  for (int head = 0; head < 8; ++head) pattern += (head > 0 ? "," : "") + std::string(head == live ? "dense" : "empty");
  return masked(a, pattern, turn % 5 == 0 ? 64 : 128, 64, turn);
}

}  // namespace

TEST_CASE("rows above four times the mean are split, and their parts merged") {
  int turn = 0;
  for (const int dim : {32, 64, 96, 128}) {
    for (const int seq_q : {1, 150}) {
      const int live = turn % 2 * 3;
      const Attention a = one_head_alive(dim, seq_q, 330, turn, live);  // six tiles of keys make two parts
      for (const float odd : {0.0f, INFINITY, std::nanf("")}) {  // in the last tile, which is partial, and in the first one
        if (odd != 0.0f && seq_q == 1) continue;
        AttentionInputs in = problem::make_inputs(a, turn);
        float* v = &in.v.values[live * 330 * dim];
        if (odd != 0.0f) v[329 * dim + 3] = v[5 * dim + 1] = odd;
        const auto outcome = run::execute(balanced(), a, in);
        INFO(problem::to_string(a) << ", " << odd);
        REQUIRE(outcome.findings.empty());
        INFO(outcome.verdict->reason());
        REQUIRE(outcome.verdict->pass());
      }
      ++turn;
    }
  }
}

namespace {

void long_columns_pass(const Attention& a, float odd,
                       std::uint64_t seed) {  // odd: in the last tile of queries, and in the first one
  problem::BackwardInputs in = problem::make_inputs(problem::Backward{a}, seed);
  if (odd != 0.0f) in.d_o.values[(a.seq_q - 1) * a.dim + 3] = in.d_o.values[5 * a.dim + 1] = odd;
  const suite::BackwardCase c = suite::ready(backward_step(), a, std::move(in));
  INFO(odd);
  for (const run::BackwardVariant& variant : backward_step().variants) CHECK(suite::passes(variant, {c}) == 1);
}

}  // namespace

TEST_CASE("columns above four times the mean are split, and their parts added") {
  int turn = 0;
  for (const int dim : {32, 64, 96, 128}) {
    long_columns_pass(one_head_alive(dim, 330, dim % 64 == 0 ? 150 : 70, turn), 0.0f, turn);  // six tiles of queries: two parts
    // A sink, which all queries of a group of heads see: one column of eight is long.
    Attention sink{.heads = 4, .kv_heads = 2, .seq_q = 150, .seq_k = 900, .dim = dim, .dtype = Dtype::fp16};
    if (turn % 2 == 1) sink.dropout = 64;
    long_columns_pass(with_blocks(sink, 128, 64, [](int, int, int column) { return column < 2; }), 0.0f, turn);
    ++turn;
  }
  long_columns_pass(one_head_alive(64, 330, 70, 3), INFINITY, 3);
  long_columns_pass(one_head_alive(128, 330, 70, 3), std::nanf(""), 3);
}

TEST_CASE("packed sequences under masks, forward and backward") {
  int dim = 32;
  for (const char* pattern : {"random:0.5,dense", "sink:5t+local:30t,band:1"}) {
    for (const bool causal : {false, true}) {
      Attention a = suite::packed({17, 97, 0, 130, 33}, causal ? 64 : 128, Dtype::fp16, causal, 0, 2, 2);
      a.dropout = causal ? 30 : 0;
      a = masked(a, pattern, 64, 64, 5);
      all_pass(balanced(), {{a}});
      a.dim = dim;
      a.scale.reset();
      dim += 32;
      gradients_pass({{problem::resolve(a)}});
    }
  }
}

// Nothing of these is run: what is too large is refused before there are arrays.
TEST_CASE("what a plan's 32 bits cannot count is refused by name, and nothing below") {
  const auto unmasked = [](int batch, int heads, int kv_heads, int seq, bool causal) {
    return problem::resolve({.batch = batch,
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .seq_q = seq,
                             .seq_k = seq,
                             .causal = causal,
                             .dtype = Dtype::fp16});
  };
  const auto masked_by = [](Attention shape, const SparseMask& mask) {
    shape.sparse = std::make_shared<const SparseMask>(mask);
    return problem::resolve(shape);
  };
  constexpr int million = 1 << 20;  // tokens: 8192 tiles of 128 queries, 16384 of 64 keys
  const Attention all = unmasked(16, 1, 1, million, false);
  SparseMask blocks{.types = {1}, .live = std::vector<std::int32_t>(8192 * 256, 0x55555555)};
  SparseMask streams{.types = {2}, .streaming = {{.sink = 4, .local = 100}}};
  SparseMask of_each{.batches = 16, .types = {1}};
  of_each.live.assign(std::size_t{16} * 8192 * 256, 1);
  const std::string tiles = "2^31 or more live tiles of 128 queries by 64 keys";
  const std::vector<std::pair<Attention, std::string>> cases = {
      {unmasked(1, 31, 31, million, true), ""},  // 31 heads of a little more than 2^26 tiles
      {unmasked(1, 32, 32, million, true), tiles},
      {all, tiles},                   // 2^31
      {masked_by(all, blocks), ""},   // half of them
      {masked_by(all, streams), ""},  // few
      {masked_by(all, of_each), ""},
      {unmasked(1 << 13, 1 << 13, 1, 1, false), ""},
      {unmasked(1 << 13, (1 << 13) + 1, 1, 1, false), "more than 2^26 tiles of queries"},
      {unmasked(65535, 65535, 65535, 1, false), "more than 2^26 tiles of queries"},
  };
  for (const auto& [shape, refused] : cases) {
    for (const run::AttentionVariant& variant : step().variants) {
      INFO(variant.name << ", " << problem::to_string(unmasked(shape.batch, shape.heads, shape.kv_heads, 1, shape.causal)));
      const auto reason = run::refusal(variant.supports, shape);
      if (refused.empty()) {
        CHECK(!reason);
      } else {
        REQUIRE(reason);
        CHECK(reason->find("does not support " + refused) == 0);
      }
    }
  }
  const run::AttentionSupport& backward = backward_step().variants.front().supports;
  CHECK(!run::refusal(backward, unmasked(1, 31, 31, million, true)));
  CHECK(run::refusal(backward, unmasked(1, 32, 32, million, true))->find("2^31 or more live tiles of 64 queries by 128 keys") !=
        std::string::npos);
  CHECK(!run::refusal(backward, unmasked(1 << 13, 1 << 13, 1 << 13, 1, false)));
  CHECK(run::refusal(backward, unmasked(1 << 14, 1 << 13, 1 << 13, 1, false))->find("more than 2^26 tiles of keys") !=
        std::string::npos);
}

TEST_CASE("a variant refuses rows whose distance 32 bits cannot count") {
  const run::DeviceArrays none{run::Arrays{}};
  void* const at = reinterpret_cast<void*>(1 << 20);
  for (const run::AttentionVariant& variant : step().variants) {
    INFO(variant.name);
    const auto refusal_at = [&](std::int64_t stride) {
      const device::AnyHeads<true> near{at, 64, 64, 64}, far{at, 64, 64, stride};
      const Attention s = problem::resolve({.seq_q = 70, .seq_k = 70, .dtype = Dtype::fp16});
      return run::refusal(variant.supports, {s, near, near, far, {at, 64, 64, 64}, nullptr, none});
    };
    CHECK(!refusal_at((1 << 25) - 8));
    REQUIRE(refusal_at(1 << 25));
    CHECK(refusal_at(1 << 25)->find("rows that are 33554432 elements apart") != std::string::npos);
  }
}

TEST_CASE("a mask for each batch entry") {
  for (const int dim : {64, 128}) {
    Attention a{.batch = 3, .heads = 2, .kv_heads = 1, .seq_q = 100, .seq_k = 150, .dim = dim, .dtype = Dtype::fp16};
    a = masked(a, "random:0.4", 64, 64, 1);
    auto mask = std::make_shared<SparseMask>(*a.sparse);
    for (int batch = 1; batch < 3; ++batch) {
      const auto other = problem::make_pattern("random:0.6", a, 64, 64, static_cast<std::uint64_t>(batch + 1));
      mask->live.insert(mask->live.end(), other->live.begin(), other->live.end());
    }
    mask->batches = 3;
    a.sparse = mask;
    a = problem::resolve(a);
    all_pass(balanced(), {{a}});
    gradients_pass({{a}});
  }
}

// ---- what does not depend on what ----

namespace {

void same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  const auto difference = check::first_difference(a, b);
  INFO("first difference at element " << difference.value_or(-1));
  CHECK(!difference);
}

// Of the first head of [batch, heads, rows, dim] or [batch, heads, rows].
std::vector<float> first_head(const Tensor& tensor) {
  const std::int64_t size = std::ssize(tensor.values) / tensor.shape[0] / tensor.shape[1];
  return {tensor.values.begin(), tensor.values.begin() + size};
}

// Other values in all heads but the first.
void change_other_heads(Tensor& tensor, const Tensor& other) {
  const std::int64_t size = std::ssize(tensor.values) / tensor.shape[0] / tensor.shape[1];
  std::copy(other.values.begin() + size, other.values.end(), tensor.values.begin() + size);
}

// NaN in all rows of a head of [1, heads, rows, dim] that are picked.
void spoil(Tensor& tensor, const std::function<bool(int head, int row)>& picked) {
  const auto rows = tensor.shape[2], dim = tensor.shape[3];
  for (std::int64_t row = 0; row < std::ssize(tensor.values) / dim; ++row) {
    if (!picked(static_cast<int>(row / rows), static_cast<int>(row % rows))) continue;
    std::fill_n(tensor.values.begin() + row * dim, dim, std::nanf(""));
  }
}

}  // namespace

TEST_CASE("a mask that is all live gives the output without a mask to the bit") {
  for (const run::AttentionVariant& variant : step().variants) {
    if (variant.name == "test_per_block" || variant.name == "list") continue;  // every tile has a mask, as step 05's have not
    for (const bool causal : {false, true}) {
      Attention dense{.heads = 2, .kv_heads = 1, .seq_q = 150, .seq_k = 280, .dim = 64, .causal = causal, .dtype = Dtype::fp16};
      dense = problem::resolve(dense);
      const AttentionInputs in = problem::make_inputs(dense, 3);
      const auto without = run::execute(variant, dense, in),
                 all = run::execute(variant, masked(dense, "random:1", 128, 128), in);
      INFO(variant.name);
      REQUIRE((without.pass() && all.pass()));
      same_bits(without.output("o").values, all.output("o").values);
      same_bits(without.output("lse").values, all.output("lse").values);
    }
  }
}

TEST_CASE("keys behind a query do not change its row by a bit, under causal masks and others") {
  for (const run::AttentionVariant& variant : step().variants) {
    Attention a{.heads = 2, .kv_heads = 1, .seq_q = 135, .seq_k = 170, .dim = 64, .causal = true, .dtype = Dtype::fp16};
    suite::is_causal(variant, masked(a, "band:2,dense", 128, 64));
  }
}

TEST_CASE("a head does not depend on the others by a bit: not their inputs, and in the backward pass not their keys'") {
  for (const int dim : {64, 128}) {
    Attention a{.heads = 4, .kv_heads = 4, .seq_q = 200, .seq_k = 300, .dim = dim, .dtype = Dtype::fp16};
    a = masked(a, "random:0.5,dense,sink:1+local:1,empty", 128, 64);
    const problem::Backward back{a};
    const problem::BackwardInputs in = problem::make_inputs(back, 5), other = problem::make_inputs(back, 6);
    problem::BackwardInputs changed = in;
    for (Tensor problem::BackwardInputs::*tensor : {&problem::BackwardInputs::q, &problem::BackwardInputs::k,
                                                    &problem::BackwardInputs::v, &problem::BackwardInputs::d_o}) {
      change_other_heads(changed.*tensor, other.*tensor);
    }
    const AttentionInputs forward = {in.q, in.k, in.v}, forward_changed = {changed.q, changed.k, changed.v};
    const run::AttentionTruth truth(a, forward), truth_of_changed(a, forward_changed);
    for (const run::AttentionVariant& variant : step().variants) {
      const auto before = run::execute(variant, a, forward, {}, &truth);
      const auto after = run::execute(variant, a, forward_changed, {}, &truth_of_changed);
      INFO(variant.name << ", dim " << dim);
      REQUIRE((before.pass() && after.pass()));
      for (const char* name : {"o", "lse"}) same_bits(first_head(before.output(name)), first_head(after.output(name)));
    }
    const suite::BackwardCase one = suite::ready(backward_step(), a, in), two = suite::ready(backward_step(), a, changed);
    for (const run::BackwardVariant& variant : backward_step().variants) {
      const run::Outcome before = suite::clean(variant, one), after = suite::clean(variant, two);
      for (const char* name : {"dk", "dv"}) same_bits(first_head(before.output(name)), first_head(after.output(name)));
    }
  }
}

namespace {

// Of every other block of keys nobody sees any, every other block of queries sees none. A query has two tiles of keys at most,
// so that no order of additions matters to dQ.
Attention with_dead_blocks(int dim, int block) {
  Attention a{.heads = 2, .kv_heads = 2, .seq_q = 250, .seq_k = 250, .dim = dim, .dtype = Dtype::fp16};
  return with_blocks(a, block, block, [](int head, int row, int column) { return row % 2 == 0 && column % 2 == head; });
}

problem::BackwardInputs with_nan_in_dead_blocks(problem::BackwardInputs in, int block) {
  for (Tensor* tensor : {&in.k, &in.v}) spoil(*tensor, [&](int head, int j) { return j / block % 2 != head; });
  for (Tensor* tensor : {&in.q, &in.d_o}) spoil(*tensor, [&](int, int i) { return i / block % 2 == 1; });
  return in;
}

void has_no_nan(const run::Outcome& outcome) {
  CHECK(outcome.pass());
  for (const auto& output : outcome.outputs) {
    const auto& values = output.tensor.values;
    CHECK(std::none_of(values.begin(), values.end(), [](float x) { return std::isnan(x); }));
  }
}

void gradients_ignore_nan_in_dead_blocks(int dim, int block) {
  const Attention a = with_dead_blocks(dim, block);
  const problem::BackwardInputs in = problem::make_inputs(problem::Backward{a}, 7);
  const suite::BackwardCase plain = suite::ready(backward_step(), a, in);
  const suite::BackwardCase odd = suite::ready(backward_step(), a, with_nan_in_dead_blocks(in, block));
  for (const run::BackwardVariant& variant : backward_step().variants) {
    const run::Outcome before = suite::clean(variant, plain), after = suite::clean(variant, odd);
    has_no_nan(after);
    if (block < 128) continue;  // half of a tile: its products have NaNs, and the head is computed again, pair by pair
    for (const char* name : {"dq", "dk", "dv"}) {
      INFO(variant.name << ", dim " << dim << ", blocks of " << block << ", " << name);
      same_bits(before.output(name).values, after.output(name).values);
    }
  }
}

}  // namespace

TEST_CASE("NaN where no query may look, and in queries that see nothing, changes no bit of O and LSE") {
  for (const int dim : {32, 64, 96, 128}) {
    for (const int block : {128, 64}) {
      const Attention a = with_dead_blocks(dim, block);
      const problem::BackwardInputs in = problem::make_inputs(problem::Backward{a}, 7),
                                    odd = with_nan_in_dead_blocks(in, block);
      const AttentionInputs forward = {in.q, in.k, in.v}, with_nan = {odd.q, odd.k, odd.v};
      const run::AttentionTruth truth(a, forward), truth_with_nan(a, with_nan);
      for (const run::AttentionVariant& variant : step().variants) {
        if (run::refusal(variant.supports, a)) continue;
        const auto before = run::execute(variant, a, forward, {}, &truth),
                   after = run::execute(variant, a, with_nan, {}, &truth_with_nan);
        INFO(variant.name << ", dim " << dim << ", blocks of " << block);
        has_no_nan(after);
        for (const char* name : {"o", "lse"}) same_bits(before.output(name).values, after.output(name).values);
      }
    }
  }
}

TEST_CASE("NaN where no query may look, and in queries that see nothing, changes no bit of dQ, dK and dV") {
  for (const int dim : {32, 64, 96, 128}) gradients_ignore_nan_in_dead_blocks(dim, 128);
}
TEST_CASE("NaN in a dead block that is half of a tile of keys reaches no gradient") {
  for (const int dim : {32, 64, 96, 128}) gradients_ignore_nan_in_dead_blocks(dim, 64);
}

TEST_CASE(
    "gradients of heads that stream by token: rows that an odd element spoiled are repaired from the keys of the sink, and "
    "those near them") {
  for (const int dim : {64, 128}) {
    Attention a{.heads = 1, .kv_heads = 1, .seq_q = 300, .seq_k = 300, .dim = dim, .causal = true, .dtype = Dtype::fp16};
    a.sparse = std::make_shared<const SparseMask>(SparseMask{.types = {3}, .streaming = {{.sink = 20, .local = 70}}});
    const problem::BackwardInputs in = problem::make_inputs(problem::Backward{a}, 7);
    for (const auto& [tensor, row] : {std::pair{&problem::BackwardInputs::k, 150}, {&problem::BackwardInputs::d_o, 200}}) {
      problem::BackwardInputs odd = in;
      (odd.*tensor).values[static_cast<std::size_t>(row * dim + 3)] = std::nanf("");
      const suite::BackwardCase c = suite::ready(backward_step(), a, odd);
      for (const run::BackwardVariant& variant : backward_step().variants) {
        INFO(variant.name << ", dim " << dim << ", row " << row);
        CHECK(suite::clean(variant, c).pass());
      }
    }
  }
}

TEST_CASE("what is not finite in V, at either end of a partial tile, reaches the rows that see it, and no others") {
  for (const run::AttentionVariant& variant : step().variants) {
    Attention a{.heads = 1, .kv_heads = 1, .seq_q = 192, .seq_k = 192, .dim = 64, .causal = true, .dtype = Dtype::fp16};
    a = masked(a, "dense", 128, 64);
    AttentionInputs in = problem::make_inputs(a, 3);
    const int keys[] = {0, 63, 64, 127, 128, 191};  // each in a column of its own
    for (int n = 0; n < 6; ++n) in.v.values[keys[n] * 64 + n] = n % 2 ? std::nanf("") : INFINITY;
    const run::Outcome outcome = run::execute(variant, a, in);
    INFO(variant.name);
    CHECK(outcome.pass());
    for (int i = 0; i < 192; ++i) {
      for (int n = 0; n < 6; ++n) CHECK(std::isfinite(outcome.output("o").values[i * 64 + n]) == (i < keys[n]));
    }
  }
}

TEST_CASE("NaN in V's dead tile beside a partial one reaches nobody") {
  Attention a{.heads = 1, .kv_heads = 1, .seq_q = 384, .seq_k = 384, .dim = 64, .dtype = Dtype::fp16};
  a.window = 200;
  a = with_blocks(a, 128, 64, [](int, int, int column) { return column != 2; });
  AttentionInputs in = problem::make_inputs(a, 3);
  in.v.values[64 * 64] = in.v.values[127 * 64] = std::nanf("");  // so that the partial tile's NaNs are put back
  for (const int key : {128, 191}) in.v.values[key * 64 + 1] = std::nanf("");
  for (const run::AttentionVariant& variant : step().variants) {
    const run::Outcome outcome = run::execute(variant, a, in);
    INFO(variant.name);
    CHECK(outcome.pass());
    for (int i = 0; i < 384; ++i) CHECK(std::isfinite(outcome.output("o").values[i * 64 + 1]));
  }
}

TEST_CASE("NaN in a block reaches the rows that see it, and changes no bit of others") {
  for (const run::AttentionVariant& variant : step().variants) {
    Attention a{.heads = 2, .kv_heads = 1, .seq_q = 300, .seq_k = 420, .dim = 64, .causal = true, .dtype = Dtype::fp16};
    a = masked(a, "band:1", 128, 128);
    const AttentionInputs in = problem::make_inputs(a, 3);
    AttentionInputs odd = in;
    for (int j = 0; j < 128; ++j) odd.v.values[j * 64 + 3] = odd.k.values[j * 64 + 5] = std::nanf("");
    const auto before = run::execute(variant, a, in), after = run::execute(variant, a, odd);
    INFO(variant.name);
    CHECK(after.pass());
    bool reached = false;
    for (int head = 0; head < 2; ++head) {
      for (int i = 0; i < 300; ++i) {
        for (int d = 0; d < 64; ++d) {
          const std::size_t at = (head * 300 + i) * 64 + d;
          const float x = before.output("o").values[at], y = after.output("o").values[at];
          if (i >= 128) CHECK(x == y);  // queries from 256 − 120 on see none of it
          reached |= std::isnan(y);
        }
      }
    }
    CHECK(reached);
  }
}
