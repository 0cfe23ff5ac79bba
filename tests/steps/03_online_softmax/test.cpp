// Step 03: every variant is right at every shape, in both types.
#include <algorithm>

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

const run::SoftmaxVariant& variant(const std::string& name) {
  const auto& all = step().variants;
  return *std::find_if(all.begin(), all.end(), [&](const auto& v) { return v.name == name; });
}

// Rungs that share each of their parts with the rung before or behind them: the whole lists are those' to pass.
const std::vector<std::string> between = {"wide_loads", "messages", "as_they_come", "in_shared"};

std::vector<run::SoftmaxVariant> on_whole_lists() {
  std::vector<run::SoftmaxVariant> others;
  std::copy_if(step().variants.begin(), step().variants.end(), std::back_inserter(others),
               [](const auto& v) { return std::find(between.begin(), between.end(), v.name) == between.end(); });
  return others;
}

void whole_list(int turn) {
  const auto cases = suite::in_turns(suite::softmax_shapes(Dtype::fp32), suite::softmax_shapes(Dtype::fp16), turn);
  for (const run::SoftmaxVariant& variant : on_whole_lists()) {
    CHECK(suite::passes(variant, cases) == static_cast<int>(cases.size()));
  }
}

}  // namespace

TEST_CASE("every variant is right over the whole shape list, in fp32 and fp16 by turns") { whole_list(0); }
TEST_CASE("every variant is right over the whole shape list, in the other type of each shape", "[.long]") { whole_list(1); }

namespace {

void behaves_as_a_softmax(const run::SoftmaxVariant& variant, int cols, Dtype dtype, bool last_row_too = true) {
  const Softmax shape = problem::resolve({.rows = 3, .cols = cols, .dtype = dtype});
  suite::follows_permutations_and_shifts(variant, shape);
  suite::contains_nan_and_infinity(variant, shape, last_row_too);
  suite::takes_the_largest_scores(variant, shape);
}

// Rows that some variants take in parts, of 70 KB: each variant in one type.
void long_rows(int turn, bool last_row_too) {
  for (const run::SoftmaxVariant& variant : on_whole_lists()) {
    const Dtype dtype = turn++ % 2 == 0 ? Dtype::fp32 : Dtype::fp16;
    behaves_as_a_softmax(variant, dtype == Dtype::fp32 ? 18001 : 36001, dtype, last_row_too);
  }
}

}  // namespace

TEST_CASE("rows, permutations, shifts, NaN and infinity are handled as a softmax must, in short rows and in parts") {
  for (const run::SoftmaxVariant& variant : on_whole_lists()) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::fp16}) {
      suite::rows_are_independent(variant, problem::resolve({.rows = 5, .cols = 203, .ldx = 208, .ldy = 216, .dtype = dtype}));
      behaves_as_a_softmax(variant, 203, dtype);
      suite::takes_the_largest_scores(variant, problem::resolve({.rows = 5, .cols = 5, .dtype = dtype}));
    }
    suite::rows_are_independent(variant, problem::resolve({.rows = 2, .cols = 40000, .dtype = Dtype::fp16}));
  }
  long_rows(0, false);
}
TEST_CASE("… and long rows in the other type of each variant", "[.long]") { long_rows(1, true); }

TEST_CASE("rows of more parts than a warp has lanes are right") {
  // A part holds 8192 fp32 columns: 33 parts, whose states one warp merges.
  for (const char* name : {"split_rows", "held_parts", "in_turns"}) {
    CHECK(suite::passes(variant(name), {{problem::resolve({.rows = 2, .cols = 33 * 8192, .dtype = Dtype::fp32})}}) == 1);
  }
}

TEST_CASE("wide loads, messages, chunks as they come and parts in shared memory are right, in short rows and in parts") {
  for (const std::string& name : between) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::fp16}) {
      const auto cases = suite::small_softmax_shapes(dtype);
      CHECK(suite::passes(variant(name), cases) == static_cast<int>(cases.size()));
      suite::contains_nan_and_infinity(variant(name), problem::resolve({.rows = 3, .cols = 203, .dtype = dtype}));
      suite::takes_the_largest_scores(variant(name), problem::resolve({.rows = 5, .cols = 5, .dtype = dtype}));
    }
    CHECK(suite::passes(variant(name), {{problem::resolve({.rows = 2, .cols = 34007, .dtype = Dtype::fp16})}}) == 1);
  }
}

TEST_CASE("every size of vectorised is right just below and at the end of what it holds") {
  for (const int chunks : {32, 128, 512, 1024, 2048, 4096, 8192}) {
    for (const int more : {-1, 0, 1}) {
      const Softmax shape = problem::resolve({.rows = 2, .cols = chunks * 8 + more, .dtype = Dtype::fp16});
      CHECK(suite::passes(variant("vectorised"), {{shape}}) == 1);
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
