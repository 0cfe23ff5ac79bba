// As test_execute.cpp, for row softmaxes. The variants here compute on the host, and each faulty
// one does one thing wrong.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/catch.h"
#include "tests/suites/softmax_suite.h"
#include "tests/unit/elements.h"

namespace {

using problem::Dtype;
using problem::Softmax;
using run::SoftmaxLaunch;
using run::SoftmaxVariant;

// Right, but for summing `extra` columns too many.
void compute(const SoftmaxLaunch& l, int extra = 0) {
  const Softmax& s = l.shape;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const auto x = [&](int j) { return get(s.dtype, l.x, row * s.ldx + j); };
    float m = -std::numeric_limits<float>::infinity();
    for (int j = 0; j < s.cols; ++j) m = std::fmax(m, x(j));
    if (std::isinf(m) && m < 0) m = 0;
    float sum = 0;
    for (int j = 0; j < s.cols + extra; ++j) sum += std::exp(x(j) - m);
    const float factor = sum == 0 ? 0 : 1 / sum;
    for (int j = 0; j < s.cols; ++j) put(s.dtype, l.y, row * s.ldy + j, std::exp(x(j) - m) * factor);
  }
}

SoftmaxVariant variant(std::function<void(const SoftmaxLaunch&)> launch) {
  SoftmaxVariant v;
  v.name = "fake";
  v.supports.dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
  v.scratch = [](const Softmax&) { return run::Arrays{run::scratch("s", Dtype::fp32, {16})}; };
  v.launch = std::move(launch);
  return v;
}

const SoftmaxVariant right = variant([](const SoftmaxLaunch& l) { compute(l); });

Softmax shape() { return problem::resolve({.rows = 7, .cols = 21, .ldx = 24, .ldy = 23, .dtype = Dtype::fp16}); }

run::Outcome outcome(const SoftmaxVariant& v, const Softmax& s = shape()) {
  return run::execute(v, s, problem::make_inputs(s, 1));
}

}  // namespace

TEST_CASE("a right row softmax passes in every dtype and layout") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    for (const int padding : {0, 5}) {
      Softmax s = shape();
      s.dtype = dtype;
      s.ldx = s.cols + padding;
      const auto result = outcome(right, s);
      INFO(result.verdict->reason());
      CHECK(result.pass());
      CHECK(result.verdict->repeatable == true);
      CHECK(result.output("y").shape == std::vector<std::int64_t>{7, 21});
      CHECK(result.verdict->tensors[0].name == "y");
      CHECK(result.verdict->tensors[0].rows_checked == 7);
    }
  }
}

TEST_CASE("a right row softmax passes the suite of the steps, one that lacks a dtype is skipped there") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    const auto cases = suite::small_softmax_shapes(dtype);
    CHECK(suite::passes(right, cases) == static_cast<int>(cases.size()));
  }
  SoftmaxVariant choosy = right;
  choosy.supports.dtypes = {Dtype::fp16};
  CHECK(suite::passes(choosy, suite::small_softmax_shapes(Dtype::fp16)) == 3);
  CHECK(suite::passes(choosy, suite::small_softmax_shapes(Dtype::fp32)) == 0);
  Softmax aligned = shape();
  aligned.ldy = 24;
  suite::rows_are_independent(right, aligned);
  suite::follows_permutations_and_shifts(right, shape());
  suite::contains_nan_and_infinity(right, shape());
}

TEST_CASE("an element of y that is not written is seen") {
  const auto result = outcome(variant([](const SoftmaxLaunch& l) {
    compute(l);
    put(Dtype::fp16, l.y, 6 * l.shape.ldy + 20, check::poison_value(Dtype::fp16));
  }));
  CHECK(result.verdict->reason() == "y: row (6): element 20 was not written");
}

TEST_CASE("reading beyond the columns of x meets a NaN where rows have padding") {
  CHECK_FALSE(outcome(variant([](const SoftmaxLaunch& l) { compute(l, 1); })).pass());
}

TEST_CASE("a write between the rows of y or beyond a buffer is seen") {
  for (const std::int64_t element : {21, 22, 6 * 23 + 21, 7 * 23, -1}) {
    const auto result = outcome(variant([element](const SoftmaxLaunch& l) {
      compute(l);
      put(Dtype::fp16, l.y, element, 1.0f);
    }));
    INFO(element);
    CHECK_FALSE(result.verdict->guards_intact);
    CHECK_FALSE(result.pass());
  }
  const auto scratch = outcome(variant([](const SoftmaxLaunch& l) {
    compute(l);
    l.arrays.get<float>("s")[16] = 0;
  }));
  CHECK_FALSE(scratch.verdict->guards_intact);
}

TEST_CASE("two runs of a row softmax must agree by a bit, unless the variant does not promise it") {
  int runs = 0;
  SoftmaxVariant changing = variant([&](const SoftmaxLaunch& l) {
    compute(l);
    if (++runs % 2 == 0) put(Dtype::fp32, l.y, 3, std::nextafter(get(Dtype::fp32, l.y, 3), 100.0f));
  });
  const Softmax s = problem::resolve({.rows = 4, .cols = 4, .dtype = Dtype::fp32});
  CHECK(outcome(changing, s).verdict->repeatable == false);
  changing.deterministic = false;
  runs = 0;
  CHECK(outcome(changing, s).pass());
}

TEST_CASE("what a row softmax cannot serve is refused, naming what it supports") {
  SoftmaxVariant choosy = right;
  choosy.supports.dtypes = {Dtype::fp16};
  const Softmax s = problem::resolve({.rows = 2, .cols = 3, .dtype = Dtype::bf16});
  CHECK(run::refusal(choosy.supports, s) == "does not support bf16; it supports fp16; any rows; any cols; any strides");
  CHECK(!run::refusal(right.supports, s));
  const run::SoftmaxSupport narrow{.max_row_bytes = 12};
  CHECK(!run::refusal(narrow, problem::resolve({.cols = 6, .dtype = Dtype::fp16})));
  CHECK(run::refusal(narrow, problem::resolve({.cols = 4, .dtype = Dtype::fp32})) ==
        "does not support cols 4; it supports fp32, fp16; any rows; cols up to 12 bytes; any strides");
  CHECK_THROWS_AS(outcome(choosy, s), std::invalid_argument);
  CHECK_THROWS_AS(run::execute(right, s, problem::make_inputs(shape(), 1)), std::invalid_argument);  // another shape
  const Softmax narrower = problem::resolve({.rows = 7, .cols = 21, .dtype = Dtype::bf16});
  CHECK_THROWS_AS(run::execute(right, narrower, problem::make_inputs(shape(), 1)), std::invalid_argument);  // not rounded to it
}
