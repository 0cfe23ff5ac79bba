// Step 05, options of scores: softcap, ALiBi, bias, sinks and lengths of a padded cache, each alone and with the others, under
// every mask and at every head dim; what they hide reaches no row; variants that do not take them refuse them.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>

#include "tests/catch.h"
#include "tests/suites/attention_suite.h"

namespace {

using problem::Attention;
using problem::AttentionInputs;
using problem::Dtype;
using problem::Tensor;

constexpr float infinity = std::numeric_limits<float>::infinity(), quiet_nan = std::numeric_limits<float>::quiet_NaN();

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }

std::vector<run::AttentionVariant> scoring() {
  std::vector<run::AttentionVariant> variants;
  for (const run::AttentionVariant& variant : step().variants) {
    if (variant.supports.softcap) variants.push_back(variant);
  }
  return variants;
}

// Numbers between −most and most, as elements of dtype.
std::shared_ptr<Tensor> numbers(const std::vector<std::int64_t>& shape, Dtype dtype, float most, unsigned seed) {
  auto tensor = std::make_shared<Tensor>(shape);
  std::mt19937 random(seed);
  for (float& x : tensor->values) x = problem::round_to(dtype, most * (static_cast<float>(random()) * 0x1p-31f - 1.0f));
  return tensor;
}

// The same number for all pairs with a key, or for all others.
std::shared_ptr<Tensor> bias_of_keys(const Attention& a, const std::function<float(int)>& of_key) {
  auto bias = std::make_shared<Tensor>(std::vector<std::int64_t>{1, 1, 1, a.seq_k});
  for (int j = 0; j < a.seq_k; ++j) bias->values[static_cast<std::size_t>(j)] = problem::round_to(a.dtype, of_key(j));
  return bias;
}

// A bit for each option.
enum Option : unsigned { softcap = 1, alibi = 2, bias = 4, sinks = 8, lengths = 16 };
constexpr unsigned all_options = 31;

// `turn` chooses what each option is: another softcap and other slopes, a bias that all share or none, that hides keys or not.
Attention with_options(Attention a, unsigned options, unsigned turn) {
  if (options & softcap) a.softcap = turn % 3 == 0 ? 0.5f : turn % 3 == 1 ? 3.0f : 30.0f;
  if (options & alibi) a.alibi = turn % 2 == 0 ? 8.0f : 3.0f;
  if (options & bias) {
    const auto extent = [&](unsigned bit, int n) { return turn / 2 & bit ? 1 : n; };
    auto values = numbers({extent(1, a.batch), extent(2, a.heads), extent(4, a.seq_q), a.seq_k}, a.dtype, 4.0f, turn);
    if (turn % 2 == 0) {
      for (float& x : values->values) x = std::fabs(x) < 1.5f ? -infinity : x;
    }
    a.bias = values;
  }
  if (options & sinks) a.sinks = numbers({a.heads}, Dtype::fp32, 6.0f, turn + 1000);
  if (options & lengths) {
    const unsigned all = static_cast<unsigned>(a.seq_k);
    for (int b = 0; b < a.batch; ++b) {
      const unsigned some = (turn * 37 + 1) % (all + 1);
      a.lengths.push_back(static_cast<int>(b == 1 ? some : b == 2 ? all - 1 : all - turn % 2 * (all / 2)));
    }
  }
  return problem::resolve(a);
}

Attention shape(int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim, Dtype dtype = Dtype::fp16,
                bool causal = false, int window = 0) {
  Attention a{.batch = batch, .heads = heads, .kv_heads = kv_heads, .seq_q = seq_q, .seq_k = seq_k, .dim = dim};
  a.dtype = dtype;
  a.causal = causal;
  a.window = window;
  return a;
}

// Every set of options; lengths around tiles, masks, head dims and numbers of heads change from one to the next. `every`: takes
// each such one.
std::vector<suite::Case> cases(const std::vector<int>& dims, Dtype dtype, unsigned every, unsigned first) {
  constexpr std::pair<int, int> sizes[] = {{7, 130}, {64, 64}, {66, 193}, {1, 1}, {130, 97}, {1, 300}, {65, 32}};
  constexpr std::pair<bool, int> masks[] = {{false, 0}, {true, 0}, {true, 70}, {false, 30}};
  constexpr std::pair<int, int> heads[] = {{3, 1}, {2, 2}, {6, 3}, {1, 1}, {4, 2}};
  std::vector<suite::Case> list;
  for (unsigned turn = first; turn < all_options; turn += every) {
    const unsigned n = turn / every, options = (turn * 11 + 10) % 31 + 1;  // each from 1 to 31 once
    const auto [seq_q, seq_k] = sizes[n % 7];
    const auto [causal, window] = masks[n % 4];
    const auto [all_heads, kv_heads] = heads[n % 5];
    const int batch = options & lengths ? 3 : 1 + static_cast<int>(n % 2);
    list.push_back({with_options(shape(batch, all_heads, kv_heads, seq_q, seq_k, dims[n % dims.size()], dtype, causal, window),
                                 options, n)});
  }
  return list;
}

std::vector<int> dims_of(const run::AttentionVariant& variant) {
  return variant.name == "any_dim" ? std::vector{40, 33, 128, 200, 90} : std::vector{64, 32, 128, 256, 96, 40};
}

// Runs a shape, with inputs that `change` has changed, against the reference.
void is_right(const run::AttentionVariant& variant, const Attention& a, const std::function<void(AttentionInputs&)>& change) {
  AttentionInputs inputs = problem::make_inputs(a, 9);
  change(inputs);
  const run::Outcome outcome = run::execute(variant, a, inputs);
  INFO(variant.name << ", " << problem::to_string(a) << ": " << outcome.verdict->reason());
  CHECK(outcome.pass());
}
void is_right(const run::AttentionVariant& variant, const Attention& a) {
  is_right(variant, a, [](AttentionInputs&) {});
}

void fill_row(Tensor& tensor, int batch, int head, int row, float x) {
  const std::int64_t at = ((batch * tensor.shape[1] + head) * tensor.shape[2] + row) * tensor.shape[3];
  std::fill_n(tensor.values.begin() + at, tensor.shape[3], x);
}

void every_set_is_right(Dtype dtype, unsigned every, unsigned first) {
  for (const run::AttentionVariant& variant : scoring()) {
    const auto list = cases(dims_of(variant), dtype, every, first);
    CHECK(suite::passes(variant, list) == std::ssize(list));
  }
}

}  // namespace

TEST_CASE("options of scores: each alone is right, and many at once, under every mask") {
  for (const run::AttentionVariant& variant : scoring()) {
    std::vector<suite::Case> list;
    for (const unsigned option : {softcap, alibi, bias, sinks, lengths}) {
      const Dtype dtype = option % 3 == 1 ? Dtype::fp16 : Dtype::bf16;
      list.push_back({with_options(shape(3, 6, 2, 66, 161, variant.name == "tuned" ? 64 : 40, dtype), option, 1)});
    }
    CHECK(suite::passes(variant, list) == 5);
  }
  every_set_is_right(Dtype::fp16, 4, 1);
}
TEST_CASE("… every set of them, in both types", "[.long]") {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    every_set_is_right(dtype, 1, 0);
    every_set_is_right(dtype, 3, 2);  // other shapes for a third of them
  }
}
TEST_CASE("… under all schedules", "[.long]") {
  for (const run::AttentionVariant& variant : scoring()) {
    const auto list = cases(dims_of(variant), Dtype::fp16, 7, 3);
    suite::passes_under_schedules(variant, list, suite::two_seeds, true);
  }
}

TEST_CASE("options of scores: other variants refuse each by name, and all refuse them with dropout and packed sequences") {
  const Attention plain = shape(1, 2, 2, 20, 20, 64);
  const std::pair<unsigned, std::string> options[] = {
      {softcap, "a softcap"}, {alibi, "ALiBi"}, {bias, "a bias"}, {sinks, "sinks"}, {lengths, "lengths of a padded cache"}};
  CHECK(scoring().size() == 2);
  for (const run::AttentionVariant& variant : step().variants) {
    const auto reason = [&](const Attention& a) { return run::refusal(variant.supports, problem::resolve(a)).value_or(""); };
    for (const auto& [option, name] : options) {
      Attention a = with_options(plain, option, 1);
      if (variant.name == "scalar") a.dtype = Dtype::fp32;
      if (!variant.supports.softcap) {
        CHECK(reason(a).find("does not support " + name + ";") == 0);
        continue;
      }
      CHECK(reason(a).empty());
      a.dropout = 26;
      CHECK(reason(a).find("does not support options of scores with dropout;") == 0);
      if (option == lengths) continue;  // no packed sequences have them
      a.dropout = 0;
      a.cu_seqlens = {0, 5, 20};
      CHECK(reason(a).find("does not support options of scores with packed sequences;") == 0);
    }
  }
}

TEST_CASE("options of scores: scales of 0 and below, and far from 1") {
  for (const run::AttentionVariant& variant : scoring()) {
    for (const float scale : {0.0f, -1.0f, 1e6f}) {
      Attention a = shape(1, 2, 1, 65, 90, 64);
      a.scale = scale;
      is_right(variant, with_options(a, bias | sinks, 1));
      is_right(variant, with_options(a, softcap | bias, 2));
    }
  }
}

TEST_CASE("ALiBi: the slopes of 12 and 14 heads are those of 8 and every second one of 16") {
  for (const run::AttentionVariant& variant : scoring()) {
    is_right(variant, with_options(shape(1, 12, 4, 3, 97, 32), alibi, 0));
    is_right(variant, with_options(shape(2, 14, 2, 2, 80, 64, Dtype::bf16, true), alibi | lengths, 1));
  }
}

TEST_CASE("bias: −∞ for whole tiles and whole rows, +∞, NaN, and the least numbers") {
  for (const run::AttentionVariant& variant : scoring()) {
    const Attention plain = shape(1, 2, 1, 66, 200, 64, Dtype::bf16);
    const float least = std::numeric_limits<float>::lowest() / 1.01f;
    const std::function<float(int)> biases[] = {
        [](int j) { return j >= 60 ? -infinity : 1.0f; },          // the tiles that come first
        [](int j) { return j < 130 ? -infinity : 1.0f; },          // and last
        [](int) { return -infinity; },                             // no key is left
        [=](int j) { return j >= 60 ? least : j % 3 * 1.0f; },     // as if they were hidden, but for infinities of V
        [](int j) { return j % 2 == 0 ? -60000.0f : -59990.0f; },  // nothing larger beside them
        [](int j) { return j == 70 ? infinity : 0.0f; },
        [](int j) { return j == 199 ? quiet_nan : 0.0f; }};
    for (const auto& of_key : biases) {
      Attention a = plain;
      a.bias = bias_of_keys(a, of_key);
      is_right(variant, problem::resolve(a));
      a.causal = true;
      is_right(variant, with_options(a, sinks, 1));
    }
  }
}

TEST_CASE("what a bias hides, and what lies behind a length, reaches no row: NaN and infinities in K and V") {
  for (const run::AttentionVariant& variant : scoring()) {
    for (const unsigned others : {0u, softcap | alibi | sinks}) {
      Attention a = shape(2, 4, 2, 66, 150, 64, Dtype::fp16, others != 0);
      auto hiding = numbers({2, 4, 66, 150}, a.dtype, 2.0f, 3);
      std::vector<int> odd = {0, 3, 64, 100, 148};  // in each tile some keys that half of the rows do not see
      for (std::int64_t row = 0; row < 2 * 4 * 66; ++row) {
        for (const int j : odd) {
          if ((row + j) % 2 == 0) hiding->values[static_cast<std::size_t>(row * 150 + j)] = -infinity;
        }
      }
      a.bias = hiding;
      a.lengths = {149, 77};
      a = with_options(a, others, 1);
      const auto behind_lengths = [&](AttentionInputs& inputs) {
        for (int b = 0; b < 2; ++b) {
          for (int j = a.lengths[static_cast<std::size_t>(b)]; j < a.seq_k; ++j) {
            fill_row(inputs.k, b, 0, j, quiet_nan);
            fill_row(inputs.v, b, 1, j, j % 2 == 0 ? quiet_nan : infinity);
          }
        }
      };
      is_right(variant, a, [&](AttentionInputs& inputs) {
        behind_lengths(inputs);
        for (const int j : odd) fill_row(inputs.v, j % 2, 0, j, j % 3 == 0 ? quiet_nan : -infinity);
      });
      is_right(variant, a, [&](AttentionInputs& inputs) {
        behind_lengths(inputs);
        for (const int j : odd) fill_row(inputs.k, j % 2, 1, j, quiet_nan);
      });
    }
  }
}

TEST_CASE("sinks: infinite ones, NaN, and those of rows that see nothing") {
  for (const run::AttentionVariant& variant : scoring()) {
    for (const auto& [seq_q, seq_k] : {std::pair{70, 140}, {20, 7}}) {  // of 20 queries, 13 see no key
      Attention a = shape(2, 8, 2, seq_q, seq_k, 32, Dtype::fp16, true);
      a.sinks = std::make_shared<Tensor>(std::vector<std::int64_t>{8});
      const_cast<Tensor&>(*a.sinks).values = {infinity, -infinity, quiet_nan, 0.0f, 2e38f, -2e38f, 50.0f, -3.0f};
      is_right(variant, problem::resolve(a));
      a.lengths = {0, seq_k / 2};
      is_right(variant, problem::resolve(a));
    }
  }
}

TEST_CASE("a padded cache gives, bit by bit, what each of its entries gives alone") {
  const std::vector<std::int32_t> all = {150, 0, 1, 64, 97};
  for (const run::AttentionVariant& variant : scoring()) {
    Attention padded = shape(5, 2, 1, 66, 150, 32, Dtype::fp16, true, 120);
    padded = with_options(padded, alibi, 0);
    padded.lengths = all;
    const AttentionInputs inputs = problem::make_inputs(padded, 5);
    const run::Outcome together = run::execute(variant, padded, inputs);
    REQUIRE(together.pass());
    for (int b = 0; b < 5; ++b) {
      const int length = all[static_cast<std::size_t>(b)];
      if (length == 0) continue;
      const auto rows = [&](const Tensor& tensor, int count) {  // the first ones of each head
        Tensor part({1, tensor.shape[1], count, tensor.shape[3]});
        const std::int64_t row = tensor.shape[3];
        for (std::int64_t h = 0; h < tensor.shape[1]; ++h) {
          std::copy_n(tensor.values.begin() + (b * tensor.shape[1] + h) * tensor.shape[2] * row, count * row,
                      part.values.begin() + h * count * row);
        }
        return part;
      };
      Attention one = padded;
      one.batch = 1;
      one.lengths.clear();
      one.seq_k = length;
      const run::Outcome alone =
          run::execute(variant, one, {rows(inputs.q, 66), rows(inputs.k, length), rows(inputs.v, length)});
      REQUIRE(alone.pass());
      INFO(variant.name << ", entry " << b);
      CHECK_FALSE(check::first_difference(rows(together.output("o"), 66).values, alone.output("o").values));
    }
  }
}
