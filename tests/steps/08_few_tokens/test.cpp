// Step 08: every variant is right at every shape, in all types; what it cannot serve it refuses by name.
#include <algorithm>
#include <array>
#include <string>

#include "steps/08_few_tokens/matrices.h"
#include "tests/catch.h"
#include "tests/suites/linear_suite.h"
#include "tests/suites/tiers.h"

namespace {

using problem::Dtype;
using problem::Linear;

const run::LinearStep& step() { return run::this_step_as<run::LinearStep>(); }

Linear irregular() {
  return problem::resolve(
      Linear{.samples = 2, .channels = 4, .weight_samples = 1, .weight_channels = 2, .m = 3, .n = 13, .k = 40, .bias = true});
}

// Each way to read and to add has one of these; the others share theirs with one of them.
bool is_first_of_its_kind(const std::string& variant) {
  constexpr std::array kinds = {"thread_per_row", "warp_per_row", "wide_loads", "tensor_cores", "cluster", "tuned"};
  return std::ranges::find(kinds, variant) != kinds.end();
}

void have_the_properties(bool first_of_their_kind) {
  for (const run::LinearVariant& variant : suite::plain_variants(step())) {
    if (is_first_of_its_kind(variant.name) != first_of_their_kind) continue;
    suite::entries_are_independent(variant, irregular());
    suite::follows_permutations(variant, irregular());
    suite::contains_non_finite(variant, irregular());
  }
}

void whole_list(int turn) {
  const auto cases = suite::in_turns(suite::linear_shapes(Dtype::fp16), suite::linear_shapes(Dtype::bf16), turn);
  for (const run::LinearVariant& variant : suite::plain_variants(step())) {
    const int all = static_cast<int>(cases.size()), with_fp32_tokens = 2;
    CHECK(suite::passes(variant, cases) == all - (variant.supports.fp32_tokens ? 0 : with_fp32_tokens));
  }
}

}  // namespace

TEST_CASE("every variant is right over the whole shape list, in fp16 and bf16 by turns") { whole_list(0); }
TEST_CASE("every variant is right over the whole shape list, in the other type of each shape", "[.long]") { whole_list(1); }

TEST_CASE("batch entries, permutations and numbers that are not finite are handled as a linear layer must") {
  have_the_properties(true);
  Linear shape = irregular();
  shape.activation = problem::Activation::relu;  // which must not hide a NaN; all variants have one epilogue
  suite::contains_non_finite(run::variant_named(step(), "thread_per_row"), shape);
}
TEST_CASE("… so do the other variants", "[.long]") { have_the_properties(false); }

// The tensor-core rungs permute k within 32, and must do so alike for tokens and weights. Token t is 1 at one k and 0
// elsewhere, so it picks one column of B.
TEST_CASE("each k of the tokens meets its own k of the weights") {
  const Linear shape = problem::resolve(Linear{.m = 16, .n = 19, .k = 200});
  const auto weight = [](int j, int k) { return static_cast<float>((37 * k + 101 * j) % 2039); };  // exact in fp16
  problem::LinearInputs inputs = problem::make_inputs(shape, 1);
  for (int i = 0; i < shape.n * shape.k; ++i) {
    inputs.b.values[static_cast<std::size_t>(i)] = weight(i / shape.k, i % shape.k);
  }
  for (const run::LinearVariant& variant : step().variants) {
    if (run::refusal(variant.supports, shape)) continue;
    INFO("variant " << variant.name);
    for (int first = 0; first < shape.k; first += shape.m) {
      const auto k_of = [&](int token) { return (first + token) % shape.k; };
      std::fill(inputs.a.values.begin(), inputs.a.values.end(), 0.0f);
      for (int t = 0; t < shape.m; ++t) inputs.a.values[static_cast<std::size_t>(t * shape.k + k_of(t))] = 1;
      const run::Outcome outcome = run::execute(variant, shape, inputs, {.check = false});
      REQUIRE(outcome.pass());
      const problem::Tensor& c = outcome.output("c");
      for (int i = 0; i < shape.m * shape.n; ++i) {
        INFO("token " << i / shape.n << ", row " << i % shape.n << " of B");
        REQUIRE(c.values[static_cast<std::size_t>(i)] == weight(i % shape.n, k_of(i / shape.n)));
      }
    }
  }
}

// Three products, one behind the other: each reads what the one before writes, and writes what that one reads.
TEST_CASE("a chain of dependent launches gives the bits that it gives when the host waits after each") {
  const Linear shape = problem::resolve(Linear{.m = 5, .n = 136, .k = 136});
  const problem::LinearInputs inputs = problem::make_inputs(shape, 6);
  const auto chain = [&](const run::LinearVariant& variant, bool host_waits) {
    run::DeviceArrays arrays(run::LinearFamily::arrays(shape) + variant.scratch_of(shape),
                             run::LinearFamily::given(shape, inputs));
    arrays.prepare();
    const run::LinearLaunch there = run::LinearFamily::bind(shape, arrays);
    run::LinearLaunch back = there;
    back.a = there.c;
    back.c = const_cast<void*>(there.a);
    const auto launch = [&](const run::LinearLaunch& product) {
      variant.launch(product);
      if (host_waits) runtime::synchronize();
    };
    launch(there);
    launch(back);
    launch(there);
    runtime::synchronize();
    return arrays.download().front().tensor.values;
  };
  for (const run::LinearVariant& variant : suite::plain_variants(step())) {
    if (run::refusal(variant.supports, shape)) continue;
    INFO("variant " << variant.name);
    CHECK(chain(variant, false) == chain(variant, true));
    CHECK(runtime::take_findings().empty());
  }
}

TEST_CASE("more batch entries than y of a grid has are all computed") {
  // The channels of a sample share its weights. y and z of the grid have one block too many.
  const Linear shape = problem::resolve(Linear{.samples = 21847, .channels = 3, .weight_channels = 1, .m = 1, .n = 1, .k = 8});
  REQUIRE(shape.entries() > run::most_grid_y);
  REQUIRE(shape.entries() % 2 == 1);
  const problem::LinearInputs inputs = problem::make_inputs(shape, 5);
  const run::Outcome outcome = run::execute(run::variant_named(step(), "thread_per_row"), shape, inputs);
  INFO(outcome.verdict->reason());
  CHECK(outcome.pass());
}

TEST_CASE("blocks that take rows in turns compute each row once") {
  const Linear shape = problem::resolve(Linear{.m = 1, .n = 2121, .k = 8});  // more rows than wide_loads has warps
  const run::Outcome outcome = run::execute(run::variant_named(step(), "wide_loads"), shape, problem::make_inputs(shape, 7));
  CHECK(outcome.pass());
}

TEST_CASE("rows are found with 64 bits, whichever stride is large") {
  constexpr std::int64_t far = std::int64_t{1} << 33;
  const few_tokens::Matrices<const float> rows{nullptr, 7 * far, 3 * far, far};
  CHECK(rows.offset(1, 0, 0) == 7 * far);
  CHECK(rows.offset(0, 2, 0) == 6 * far);
  CHECK(rows.offset(2, 1, 3) == 20 * far);
}

TEST_CASE("what a variant does not take is refused by name") {
  const auto reason = [](const char* variant, const Linear& shape) {
    return run::refusal(run::variant_named(step(), variant).supports, problem::resolve(shape)).value_or("");
  };
  for (const run::LinearVariant& variant : suite::plain_variants(step())) {
    CHECK_THAT(
        reason(variant.name.c_str(), {.m = variant.supports.max_m + 1, .n = 8, .k = 8}),
        Catch::Matchers::StartsWith("does not support m " + std::to_string(variant.supports.max_m + 1) + "; it supports "));
  }
  CHECK(reason("thread_per_row", {.m = 16, .n = 3, .k = 897, .lda = 901, .ldb = 899}) == "");
  CHECK_THAT(reason("wide_loads", {.n = 8, .k = 897}), Catch::Matchers::StartsWith("does not support k 897; "));
  CHECK_THAT(reason("wide_loads", {.n = 8, .k = 896, .lda = 900}), Catch::Matchers::StartsWith("does not support lda 900; "));
  CHECK(reason("wide_loads", {.n = 8, .k = 896, .lda = 900, .dtype_a = Dtype::fp32}) == "");  // 16 bytes are 4 elements
  CHECK_THAT(reason("wide_loads", {.n = 8, .k = 896, .ldb = 897}), Catch::Matchers::StartsWith("does not support ldb 897; "));
  CHECK_THAT(reason("in_flight_8k", {.n = 8, .k = 8, .dtype_a = Dtype::fp32}),
             Catch::Matchers::StartsWith("does not support tokens of fp32; "));
  CHECK_THAT(reason("warp_per_row", {.samples = 70000, .channels = 70000}),
             Catch::Matchers::StartsWith("does not support samples · channels 4900000000; "));
}

TEST_CASE("rows that begin elsewhere than a wide load needs are refused when they are launched") {
  const std::string name = "wide_loads";
  const run::LinearVariant& variant = run::variant_named(step(), name);
  const Linear shape = problem::resolve(Linear{.channels = 2, .m = 2, .n = 3, .k = 8});
  const problem::LinearInputs inputs = problem::make_inputs(shape, 1);
  CHECK_THROWS_WITH(
      run::execute(variant, shape, inputs, {.layout = {.odd = true}}),
      Catch::Matchers::StartsWith("wide_loads does not support rows of A that begin elsewhere than at multiples of 16 "
                                  "bytes; it supports fp16, bf16"));
}
