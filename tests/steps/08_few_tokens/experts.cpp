// Step 08, products that are routed to experts.
#include <algorithm>
#include <filesystem>
#include <limits>

#include "common/run/family/linear_request.h"
#include "tests/catch.h"
#include "tests/steps/08_few_tokens/permutation.h"
#include "tests/suites/linear_suite.h"
#include "tests/suites/tiers.h"

namespace {

using problem::Activation;
using problem::Dtype;
using problem::Linear;
using problem::LinearInputs;
using problem::Tensor;

std::vector<run::LinearVariant> routed_variants() {
  std::vector<run::LinearVariant> routed;
  for (const run::LinearVariant& variant : run::this_step_as<run::LinearStep>().variants) {
    if (variant.supports.experts) routed.push_back(variant);
  }
  return routed;
}

Tensor clean(const run::LinearVariant& variant, const Linear& shape, const LinearInputs& inputs, run::Layout layout = {}) {
  const run::Outcome outcome = run::execute(variant, shape, inputs, {.layout = layout});
  INFO("variant " << variant.name << ", " << problem::to_string(shape));
  for (const runtime::Finding& finding : outcome.findings) {
    INFO(finding.text);
    REQUIRE(outcome.findings.empty());
  }
  INFO(outcome.verdict->reason());
  REQUIRE(outcome.verdict->pass());
  return outcome.output("c");
}

Linear resolved(const Linear& shape) { return problem::resolve(shape); }

Linear small() { return resolved({.m = 9, .n = 37, .k = 72, .bias = true, .experts = 5, .top = 2}); }

void all_are_right(std::initializer_list<Linear> shapes) {
  int turn = 0;
  for (const Linear& shape : shapes) {
    const LinearInputs inputs = problem::make_inputs(resolved(shape), 1);
    for (const run::LinearVariant& variant : routed_variants()) {
      if (!variant.supports.fp32_tokens && shape.dtype_a == Dtype::fp32) continue;
      clean(variant, resolved(shape), inputs, {.tokens_first = turn % 3 == 2, .gaps = turn % 3 > 0});
      ++turn;
    }
  }
}

// Row `from` of a [rows, …] tensor becomes row `to` of the other.
template <class T>
void copy_row(const T& source, std::int64_t from, T& target, std::int64_t to, std::int64_t row) {
  std::copy_n(source.values.begin() + from * row, row, target.values.begin() + to * row);
}

bool is_row_equal(const Tensor& x, std::int64_t i, const Tensor& y, std::int64_t j, std::int64_t row) {
  return std::equal(x.values.begin() + i * row, x.values.begin() + (i + 1) * row, y.values.begin() + j * row);
}

bool is_sorted(const std::vector<int>& ids, int experts, bool many) {
  INFO(ids.size() << " pairs, " << experts << " experts");
  const permutation::Sorted sorted = permutation::by_expert(ids, experts, many);
  CHECK(runtime::take_findings().empty());
  return sorted == permutation::by_stable_sort(ids, experts);
}

}  // namespace

TEST_CASE("routed products are right: some and all experts, one token and many, all types, bias and activations") {
  all_are_right({
      {.m = 8, .n = 40, .k = 64, .experts = 8, .top = 2},
      {.m = 1, .n = 33, .k = 136, .dtype = Dtype::bf16, .experts = 4, .top = 1},
      {.m = 3, .n = 35, .k = 40, .dtype_a = Dtype::fp32, .activation = Activation::gelu, .bias = true, .experts = 3, .top = 3},
      {.m = 21, .n = 130, .k = 8, .dtype_c = Dtype::fp32, .activation = Activation::relu, .experts = 64, .top = 8},
      {.m = 40, .n = 17, .k = 264, .activation = Activation::silu, .bias = true, .experts = 2, .top = 1},
  });
}

TEST_CASE("… and larger ones", "[.long]") {
  all_are_right({{.m = 300, .n = 140, .k = 520, .bias = true, .experts = 3, .top = 1},
                 {.m = 60, .n = 300, .k = 1032, .dtype = Dtype::bf16, .experts = 64, .top = 8},
                 {.m = 17, .n = 1, .k = 2048, .dtype_a = Dtype::fp32, .experts = 300, .top = 4}});
}

TEST_CASE("an expert may have no token or all; a token may name an expert twice, or none that is there") {
  const Linear shape = small();
  const int lowest = std::numeric_limits<int>::min(), highest = std::numeric_limits<int>::max();
  const std::vector<std::vector<int>> routings = {{3}, {0}, {4, 0}, {-1}, {5, 2}, {2, 2, 1, highest, 4, lowest, 6, 0}};
  LinearInputs inputs = problem::make_inputs(shape, 2);
  for (const auto& ids : routings) {
    for (std::size_t i = 0; i < inputs.experts.values.size(); ++i) inputs.experts.values[i] = ids[i % ids.size()];
    for (const run::LinearVariant& variant : routed_variants()) clean(variant, shape, inputs);
  }
}

TEST_CASE("neither the order of the tokens nor the experts' numbers change a bit of a token's result") {
  const Linear shape = small();
  const LinearInputs inputs = problem::make_inputs(shape, 3);
  LinearInputs tokens_moved = inputs, experts_moved = inputs;
  const auto token = [&](int t) { return (t * 4 + 2) % shape.m; };         // 9 and 4 have no common divisor
  const auto expert = [&](int e) { return (e * 2 + 1) % shape.experts; };  // 5 and 2 have none
  for (int t = 0; t < shape.m; ++t) {
    copy_row(inputs.a, t, tokens_moved.a, token(t), shape.k);
    copy_row(inputs.experts, t, tokens_moved.experts, token(t), shape.top);
    copy_row(inputs.routing, t, tokens_moved.routing, token(t), shape.top);
  }
  for (int e = 0; e < shape.experts; ++e) {
    copy_row(inputs.b, e, experts_moved.b, expert(e), std::int64_t{shape.n} * shape.k);
    copy_row(*inputs.bias, e, *experts_moved.bias, expert(e), shape.n);
  }
  for (std::int32_t& id : experts_moved.experts.values) id = expert(id);
  for (const run::LinearVariant& variant : routed_variants()) {
    INFO("variant " << variant.name);
    const Tensor c = clean(variant, shape, inputs);
    CHECK(clean(variant, shape, experts_moved).values == c.values);
    const Tensor moved = clean(variant, shape, tokens_moved);
    for (int t = 0; t < shape.m; ++t) CHECK(is_row_equal(c, t, moved, token(t), shape.n));
  }
}

TEST_CASE("NaN and infinity of a token reach its own row, those of an expert the tokens that name it") {
  const Linear shape = small();
  const LinearInputs inputs = problem::make_inputs(shape, 4);
  const std::int64_t matrix = std::int64_t{shape.n} * shape.k;
  for (const run::LinearVariant& variant : routed_variants()) {
    const Tensor before = clean(variant, shape, inputs);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const bool in_token : {true, false}) {
        LinearInputs changed = inputs;
        const int which = in_token ? shape.m / 2 : inputs.experts.values[0];
        (in_token ? changed.a : changed.b).values[in_token ? which * shape.k + 7 : which * matrix + matrix - 1] = bad;
        const Tensor after = clean(variant, shape, changed);
        for (int t = 0; t < shape.m; ++t) {
          const auto* ids = &inputs.experts.values[static_cast<std::size_t>(t) * shape.top];
          const bool touched = in_token ? t == which : std::find(ids, ids + shape.top, which) != ids + shape.top;
          INFO("variant " << variant.name << ", " << bad << " in " << (in_token ? "token " : "expert ") << which << ", row "
                          << t);
          CHECK(is_row_equal(before, t, after, t, shape.n) != touched);
          CHECK(std::isfinite(after.values[(t + 1) * shape.n - 1]) != touched);
        }
      }
    }
  }
}

TEST_CASE("pairs are sorted as std::stable_sort does it, whatever the ids") {
  for (const auto& [pairs, experts] : {std::pair{1, 1}, {33, 4}, {1025, 7}, {3000, 40}}) {
    CHECK(is_sorted(permutation::scattered(pairs, experts), experts, false));
  }
}

TEST_CASE("many pairs are sorted so, too: parts that are whole or cut, and more experts than a block counts") {
  for (const auto& [pairs, experts] : {std::pair{1, 1}, {33, 4}, {4096, 7}, {4097, 64}, {9000, 512}, {5000, 1300}}) {
    CHECK(is_sorted(permutation::scattered(pairs, experts), experts, true));
  }
}

TEST_CASE("many pairs are sorted if all name one expert, if most experts have none, and if no pair names any") {
  for (const int expert : {0, 37, 511, 512, 599}) CHECK(is_sorted(std::vector(4500, expert), 600, true));
  for (const int nobody : {-1, 600, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    CHECK(is_sorted(std::vector(4500, nobody), 600, true));
  }
  std::vector<int> few = permutation::scattered(4500, 600);
  for (int& id : few) id = id / 100 * 100;  // of 600 experts 6 have pairs
  CHECK(is_sorted(few, 600, true));
}

TEST_CASE("… a million of them, for few and many experts", "[.long]") {
  for (const int experts : {1, 64, 1024}) CHECK(is_sorted(permutation::scattered(1 << 20, experts), experts, true));
}

TEST_CASE("what a routed product cannot be is refused by name") {
  const auto refused = [](Linear shape, const std::string& why) {
    CHECK_THROWS_WITH(problem::resolve(shape), ContainsSubstring(why));
  };
  refused({.experts = 2, .top = 3}, "top is 3; it must be at most experts, 2");
  refused({.experts = 2}, "top is 0");
  refused({.top = 1}, "top is 1; without experts it must be 0");
  refused({.samples = 2, .experts = 2, .top = 1}, "samples is 2; with experts it must be 1");
  refused({.channels = 2, .experts = 2, .top = 1}, "channels is 2; with experts it must be 1");
  refused({.weight_channels = 3, .experts = 2, .top = 1}, "weight_channels is 3");
  for (const run::LinearVariant& variant : run::this_step_as<run::LinearStep>().variants) {
    const Linear plain = resolved({.m = 1, .n = 8, .k = 8});
    const auto reason = run::refusal(variant.supports, variant.supports.experts ? plain : small());
    INFO("variant " << variant.name);
    REQUIRE(reason);
    CHECK_THAT(*reason,
               ContainsSubstring(variant.supports.experts ? "a product without experts" : "does not support experts 5"));
  }
}

TEST_CASE("a routing comes from files, and an id that is no expert's is refused with its place") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "flashsteps_experts";
  std::filesystem::create_directories(folder);
  const Linear shape = resolved({.m = 3, .n = 4, .k = 8, .experts = 5, .top = 2});
  LinearInputs inputs = problem::make_inputs(shape, 5);
  const auto read = [&] {
    problem::write_npy(folder / "a.npy", inputs.a, Dtype::fp16);
    problem::write_npy(folder / "b.npy", inputs.b, Dtype::fp16);
    problem::write_npy(folder / "experts.npy", inputs.experts, problem::Element::int32());
    problem::write_npy(folder / "routing.npy", inputs.routing, Dtype::fp32);
    return run::read_linear_inputs(folder, Dtype::fp16, Dtype::fp16);
  };
  const LinearInputs from_files = read();
  CHECK(from_files.experts.values == inputs.experts.values);
  CHECK(from_files.routing.values == inputs.routing.values);
  const run::LinearStep& step = run::this_step_as<run::LinearStep>();
  run::CommonOptions options;
  options.input = folder;
  CHECK(run::make_request(step, {}, options).shape == shape);
  for (const int bad : {-1, 5}) {
    inputs.experts.values[3] = bad;
    CHECK_THROWS_WITH(read(),
                      ContainsSubstring("token 1, slot 1 names expert " + std::to_string(bad) + "; b.npy has 5 experts"));
  }
  inputs.experts.values[3] = 0;
  read();
  std::filesystem::remove(folder / "routing.npy");
  CHECK_THROWS_WITH(run::read_linear_inputs(folder, Dtype::fp16, Dtype::fp16), ContainsSubstring("routing.npy"));
  std::filesystem::remove_all(folder);
}
