// Step 03: every variant is right at every shape, in both types.
#include "common/run/family/softmax.h"
#include "common/run/family/softmax_truth.h"
#include "common/run/harness/rows_buffer.h"
#include "tests/catch.h"
#include "tests/suites/softmax_suite.h"
#include "tests/suites/tiers.h"

namespace {

using problem::Dtype;
using problem::Softmax;

const run::SoftmaxStep& step() { return run::this_step_as<run::SoftmaxStep>(); }

void whole_list(int turn) {
  const auto cases = suite::in_turns(suite::softmax_shapes(Dtype::fp32), suite::softmax_shapes(Dtype::fp16), turn);
  for (const run::SoftmaxVariant& variant : step().variants) {
    CHECK(suite::passes(variant, cases) == static_cast<int>(cases.size()));
  }
}

}  // namespace

TEST_CASE("every variant is right over the whole shape list, in fp32 and fp16 by turns") { whole_list(0); }
TEST_CASE("every variant is right over the whole shape list, in the other type of each shape", "[.long]") { whole_list(1); }

namespace {

void behaves_as_a_softmax(const run::SoftmaxVariant& variant, int cols, Dtype dtype) {
  const Softmax shape = problem::resolve({.rows = 3, .cols = cols, .dtype = dtype});
  suite::follows_permutations_and_shifts(variant, shape);
  suite::contains_nan_and_infinity(variant, shape);
  suite::takes_the_largest_scores(variant, shape);
}

// Rows that some variants take in parts: each variant in one type.
void long_rows(int turn) {
  for (const run::SoftmaxVariant& variant : step().variants) {
    behaves_as_a_softmax(variant, 36001, turn++ % 2 == 0 ? Dtype::fp32 : Dtype::fp16);
  }
}

}  // namespace

TEST_CASE("rows, permutations, shifts, NaN and infinity are handled as a softmax must, in short rows and in parts") {
  for (const run::SoftmaxVariant& variant : step().variants) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::fp16}) {
      suite::rows_are_independent(variant, problem::resolve({.rows = 5, .cols = 203, .ldx = 208, .ldy = 216, .dtype = dtype}));
      behaves_as_a_softmax(variant, 203, dtype);
      suite::takes_the_largest_scores(variant, problem::resolve({.rows = 5, .cols = 5, .dtype = dtype}));
    }
    suite::rows_are_independent(variant, problem::resolve({.rows = 2, .cols = 40000, .dtype = Dtype::fp16}));
  }
  long_rows(0);
}
TEST_CASE("… and long rows in the other type of each variant", "[.long]") { long_rows(1); }

TEST_CASE("rows of more parts than a warp has lanes are right") {
  // A part holds 8192 fp32 columns: 33 parts, whose states one warp merges.
  for (const run::SoftmaxVariant& variant : step().variants) {
    const bool in_parts = variant.name == "split_rows" || variant.name == "held_parts" || variant.name == "in_turns";
    if (in_parts)
      CHECK(suite::passes(variant, {{problem::resolve({.rows = 2, .cols = 33 * 8192, .dtype = Dtype::fp32})}}) == 1);
  }
}

TEST_CASE("every size of file 5 is right just below and at the end of what it holds") {
  const run::SoftmaxVariant& vectorised = step().variants[4];
  REQUIRE(vectorised.name == "vectorised");
  for (const int chunks : {32, 128, 512, 1024, 2048, 4096, 8192}) {
    for (const int more : {-1, 0, 1}) {
      const Softmax shape = problem::resolve({.rows = 2, .cols = chunks * 8 + more, .dtype = Dtype::fp16});
      CHECK(suite::passes(vectorised, {{shape}}) == 1);
    }
  }
}

TEST_CASE("a launch is right in scratch memory as the launch before has left it") {
  for (const run::SoftmaxVariant& variant : step().variants) {
    for (const int cols : {203, 36001}) {
      const Softmax shape = problem::resolve({.rows = 3, .cols = cols, .dtype = Dtype::fp16});
      run::RowsBuffer x("x", {shape.rows, cols}, {shape.ldx}, shape.dtype),
          y("y", {shape.rows, cols}, {shape.ldy}, shape.dtype);
      const run::DeviceArrays scratch(variant.scratch_of(shape));
      for (const int seed : {1, 2, 3, 4}) {
        CAPTURE(variant.name, cols, seed);
        const problem::Tensor inputs = problem::make_inputs(shape, seed);
        x.upload(inputs);
        y.poison();
        variant.launch({shape, x.data(), y.data(), scratch});
        runtime::synchronize();
        CHECK(run::SoftmaxTruth(shape, inputs).judge(y.download()).pass);
        CHECK(runtime::take_findings().empty());
      }
    }
  }
}
