// Step 09: options of scores, lengths of a padded cache, and pages: alone and together, at the ends of what they take; what is
// hidden, or not there, touches nothing.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/catch.h"
#include "tests/suites/attention_suite.h"
#include "tests/suites/tiers.h"

namespace {

using problem::Attention;
using problem::AttentionInputs;
using problem::Dtype;
using problem::Tensor;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float lowest = std::numeric_limits<float>::lowest();

float lowest_of(Dtype dtype) { return dtype == Dtype::fp16 ? -65504.0f : dtype == Dtype::bf16 ? -0x1.FEp127f : lowest; }

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }

std::vector<run::AttentionVariant> with_options() {
  std::vector<run::AttentionVariant> variants;
  for (const run::AttentionVariant& variant : step().variants) {
    if (variant.supports.bias) variants.push_back(variant);
  }
  return variants;
}

// Numbers from −3 to 3, rounded to the dtype.
std::shared_ptr<const Tensor> numbers(std::vector<std::int64_t> shape, Dtype dtype, int seed = 1) {
  Tensor tensor(std::move(shape));
  std::uint64_t x = static_cast<std::uint64_t>(seed) * 0x9E3779B97F4A7C15u;
  for (float& value : tensor.values) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    value = problem::round_to(dtype, static_cast<float>(x >> 40) * 0x1p-24f * 6 - 3);
  }
  return std::make_shared<const Tensor>(std::move(tensor));
}

// The same, where every `period`th is another number.
std::shared_ptr<const Tensor> with_odd(const std::shared_ptr<const Tensor>& some, float odd, std::size_t period,
                                       std::size_t first = 0) {
  Tensor tensor = *some;
  for (std::size_t n = first; n < tensor.values.size(); n += period) tensor.values[n] = odd;
  return std::make_shared<const Tensor>(std::move(tensor));
}

Attention plain(int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim, Dtype dtype) {
  return {.batch = batch, .heads = heads, .kv_heads = kv_heads, .seq_q = seq_q, .seq_k = seq_k, .dim = dim, .dtype = dtype};
}

template <class Change>
suite::Case changed(Attention a, const Change& change) {
  change(a);
  return {problem::resolve(a)};
}

// Each option alone, at its ends, and all at once.
std::vector<suite::Case> option_cases(Dtype dtype, int dim) {
  std::vector<suite::Case> cases;
  const auto add = [&](const Attention& a, const auto& change) { cases.push_back(changed(a, change)); };
  const Attention few = plain(2, 6, 2, 3, 150, dim, dtype);
  const Attention prompt = plain(1, 14, 2, 7, 256, dim, dtype);  // 14 heads over 2, 7 tokens in 256 places of a cache
  const auto bias = numbers({1, 1, 3, 150}, dtype);
  add(few, [](auto& a) { a.softcap = 2; });
  add(few, [](auto& a) { a.softcap = 1e-30f; });
  add(prompt, [](auto& a) { a.alibi = 8, a.causal = true; });  // 14 is no power of two
  add(few, [](auto& a) { a.alibi = 1024, a.window = 40; });
  add(few, [&](auto& a) { a.bias = bias; });
  add(few, [&](auto& a) { a.bias = numbers({2, 1, 1, 150}, dtype), a.scale = 0.0f; });
  add(few, [&](auto& a) { a.bias = numbers({1, 6, 3, 150}, dtype), a.scale = -1.0f; });
  add(few, [&](auto& a) { a.bias = numbers({2, 6, 3, 150}, dtype); });
  for (const float odd : {-infinity, lowest_of(dtype), infinity, quiet_nan}) {
    add(few, [&](auto& a) { a.bias = with_odd(bias, odd, 3); });
    add(few, [&](auto& a) { a.bias = with_odd(bias, odd, 450, 449); });
    add(few, [&](auto& a) { a.bias = with_odd(bias, odd, 1), a.sinks = numbers({6}, Dtype::fp32); });
  }
  add(few, [&](auto& a) { a.sinks = numbers({6}, Dtype::fp32); });
  for (const float odd : {infinity, -infinity, quiet_nan, lowest, -lowest, 80.0f}) {
    add(few, [&](auto& a) { a.sinks = with_odd(numbers({6}, Dtype::fp32), odd, 6, 1), a.lengths = {0, 33}; });
  }
  add(plain(5, 4, 2, 2, 150, dim, dtype), [](auto& a) { a.lengths = {150, 0, 1, 64, 65}, a.causal = true; });
  add(plain(40, 2, 1, 1, 70, dim, dtype), [](auto& a) {
    for (int b = 0; b < 40; ++b) a.lengths.push_back(b * 37 % 71);
  });
  add(few, [](auto& a) { a.lengths = {0, 0}; });
  add(plain(3, 6, 3, 4, 90, dim, dtype), [&](auto& a) {
    a.lengths = {90, 20, 55}, a.bias = numbers({3, 6, 4, 90}, dtype), a.sinks = numbers({6}, Dtype::fp32);
    a.softcap = 8, a.alibi = 4, a.causal = true, a.window = 60;
    a.pages = problem::make_pages(a, 16, 3);
  });
  for (const int size : {1, 4, 16, 256}) {
    add(plain(3, 4, 1, 2, 300, dim, dtype), [&](auto& a) { a.pages = problem::make_pages(a, size, 5); });
    add(plain(3, 4, 2, 1, 300, dim, dtype), [&](auto& a) {
      a.lengths = {77, 0, 300}, a.pages = problem::make_pages(a, size, 6);
    });
  }
  return cases;
}

std::vector<float> bits_of(const run::AttentionVariant& variant, const Attention& a, const AttentionInputs& inputs) {
  const run::Outcome outcome = run::execute(variant, problem::resolve(a), inputs);
  REQUIRE(outcome.findings.empty());
  INFO(variant.name << ": " << outcome.verdict->reason());
  REQUIRE(outcome.verdict->pass());
  std::vector<float> all = outcome.output("o").values;
  const std::vector<float>& lse = outcome.output("lse").values;
  all.insert(all.end(), lse.begin(), lse.end());
  return all;
}

}  // namespace

TEST_CASE("options of scores, lengths and pages: right alone, at their ends, and all at once") {
  CHECK(with_options().size() == 4);
  const auto cases = suite::in_turns(option_cases(Dtype::fp16, 64), option_cases(Dtype::bf16, 64), 0);
  for (const run::AttentionVariant& variant : with_options()) {
    if (variant.name != "any_dim" && variant.name != "tuned") continue;
    INFO(variant.name);
    CHECK(suite::passes(variant, cases) == static_cast<int>(cases.size()));
  }
}
TEST_CASE("… in the other types and dims, and of the other variants", "[.long]") {
  for (const run::AttentionVariant& variant : with_options()) {
    INFO(variant.name);
    if (variant.name == "any_dim") {
      for (const int dim : {1, 33, 200}) CHECK(suite::passes(variant, option_cases(Dtype::fp32, dim)) > 30);
      continue;
    }
    for (const int dim : {32, 64, 128, 256}) {
      for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) CHECK(suite::passes(variant, option_cases(dtype, dim)) > 30);
    }
  }
}

TEST_CASE("what a bias of minus infinity hides, and what lies behind a length, may be anything") {
  for (const run::AttentionVariant& variant : with_options()) {
    Attention a = plain(2, 4, 2, 2, 140, 64, Dtype::fp16);
    a.bias = with_odd(numbers({1, 1, 1, 140}, a.dtype), -infinity, 9, 4);
    a.lengths = {140, 70};
    a = problem::resolve(a);
    const AttentionInputs inputs = problem::make_inputs(a, 3);
    AttentionInputs odd = inputs;
    for (Tensor* tensor : {&odd.k, &odd.v}) {
      for (std::int64_t row = 0; row < 2 * 2 * 140; ++row) {
        const bool gone = row % 140 % 9 == 4 || (row >= 2 * 140 && row % 140 >= 70);
        if (gone) std::fill_n(&tensor->values[row * 64], 64, row % 2 == 0 ? quiet_nan : infinity);
      }
    }
    CHECK(!check::first_difference(bits_of(variant, a, inputs), bits_of(variant, a, odd)));
  }
}

TEST_CASE("the order of pages changes no bit, nor do pages at all; nor what other sequences hold") {
  for (const run::AttentionVariant& variant : with_options()) {
    Attention a = plain(3, 4, 2, 2, 200, 64, Dtype::fp16);
    a.sinks = numbers({4}, Dtype::fp32);  // so that all three have options
    a.lengths = {200, 31, 90};
    const AttentionInputs inputs = problem::make_inputs(problem::resolve(a), 4);
    const std::vector<float> in_one_piece = bits_of(variant, a, inputs);
    for (const int seed : {1, 2}) {
      a.pages = problem::make_pages(a, 16, static_cast<std::uint64_t>(seed), 5);
      CHECK(!check::first_difference(in_one_piece, bits_of(variant, a, inputs)));
    }
    AttentionInputs others = problem::make_inputs(problem::resolve(a), 5);
    for (Tensor AttentionInputs::*tensor : {&AttentionInputs::q, &AttentionInputs::k, &AttentionInputs::v}) {
      const std::int64_t entry = (inputs.*tensor).shape[1] * (inputs.*tensor).shape[2] * 64;
      std::copy_n(&(inputs.*tensor).values[entry], entry, &(others.*tensor).values[entry]);  // the second stays
    }
    const std::vector<float> beside_others = bits_of(variant, a, others);
    const std::int64_t rows = 4 * 2 * 64;
    CHECK(std::equal(&in_one_piece[rows], &in_one_piece[2 * rows], &beside_others[rows]));
  }
}

TEST_CASE("two sequences that begin alike share pages, and have equal rows") {
  for (const run::AttentionVariant& variant : with_options()) {
    Attention a = plain(2, 2, 2, 1, 64, 64, Dtype::bf16);
    a.pages = std::make_shared<const problem::Pages>(problem::Pages{16, 5, {3, 0, 4, 1, 3, 0, 4, 1}});
    a = problem::resolve(a);
    AttentionInputs inputs = problem::make_inputs(a, 8);
    for (Tensor* tensor : {&inputs.q, &inputs.k, &inputs.v}) {
      const std::size_t first = tensor->values.size() / 2;
      std::copy_n(tensor->values.begin(), first, tensor->values.begin() + static_cast<std::ptrdiff_t>(first));
    }
    const std::vector<float> all = bits_of(variant, a, inputs);
    CHECK(std::equal(&all[0], &all[2 * 64], &all[2 * 64]));
  }
}

TEST_CASE("variants without options refuse each by name") {
  const Attention a = plain(2, 2, 1, 1, 40, 64, Dtype::fp16);
  const std::vector<std::pair<suite::Case, const char*>> all = {
      {changed(a, [](auto& x) { x.softcap = 1; }), "a softcap"},
      {changed(a, [](auto& x) { x.alibi = 1; }), "ALiBi"},
      {changed(a,
               [](auto& x) {
                 x.bias = numbers({1, 1, 1, 40}, Dtype::fp16);
               }),
       "a bias"},
      {changed(a, [](auto& x) { x.sinks = numbers({2}, Dtype::fp32); }), "sinks"},
      {changed(a,
               [](auto& x) {
                 x.lengths = {1, 2};
               }),
       "lengths of a padded cache"},
      {changed(a, [](auto& x) { x.pages = problem::make_pages(x, 16, 1); }), "a paged cache"}};
  for (const run::AttentionVariant& variant : step().variants) {
    for (const auto& [c, what] : all) {
      const auto why = run::refusal(variant.supports, c.shape);
      CHECK(why.has_value() == !variant.supports.bias);
      if (why) CHECK_THAT(*why, ContainsSubstring("does not support " + std::string(what) + ";"));
    }
  }
}

TEST_CASE("options under two schedules, in every completion mode") {
  std::vector<suite::Case> cases = option_cases(Dtype::fp16, 64);
  cases.erase(cases.begin(), cases.end() - 9);
  for (const run::AttentionVariant& variant : with_options()) {
    suite::passes_under_schedules(variant, cases, suite::two_seeds, false);
  }
}
