// As test_execute.cpp, for matrix products. The variants here compute on the host, and each faulty one
// does one thing wrong.
#include <cmath>
#include <functional>
#include <limits>

#include "common/run/family/gemm.h"
#include "tests/catch.h"
#include "tests/suites/gemm_suite.h"
#include "tests/unit/elements.h"

namespace {

using problem::Dtype;
using problem::Gemm;
using run::GemmLaunch;
using run::GemmVariant;

// Right, but for summing `extra` elements of k too many.
void compute(const GemmLaunch& l, int extra = 0) {
  const Gemm& g = l.shape;
  for (int batch = 0; batch < g.batch; ++batch) {
    for (int i = 0; i < g.m; ++i) {
      for (int j = 0; j < g.n; ++j) {
        float sum = 0;
        for (int d = 0; d < g.k + extra; ++d) {
          sum += get(g.dtype, l.a, batch * l.a_batch_stride + std::int64_t{i} * g.lda + d) *
                 get(g.dtype, l.b, batch * l.b_batch_stride + std::int64_t{j} * g.ldb + d);
        }
        put(g.dtype, l.c, batch * l.c_batch_stride + std::int64_t{i} * g.ldc + j, sum);
      }
    }
  }
}

GemmVariant variant(std::function<void(const GemmLaunch&)> launch) {
  GemmVariant v;
  v.name = "fake";
  v.supports.dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
  v.scratch = [](const Gemm&) { return run::Arrays{run::scratch("s", Dtype::fp32, {16})}; };
  v.launch = std::move(launch);
  return v;
}

const GemmVariant right = variant([](const GemmLaunch& l) { compute(l); });

Gemm shape() {
  return problem::resolve({.batch = 3, .m = 17, .n = 9, .k = 21, .lda = 24, .ldb = 23, .ldc = 11, .dtype = Dtype::fp16});
}

run::Outcome outcome(const GemmVariant& v, const run::ExecuteOptions& options = {}, const Gemm& g = shape()) {
  return run::execute(v, g, problem::make_inputs(g, 1), options);
}

}  // namespace

TEST_CASE("a right matrix product passes in every dtype, layout and batch") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    for (const bool gaps : {false, true}) {
      for (const int batch_a : {1, 3}) {
        Gemm g = shape();
        g.dtype = dtype;
        g.batch_a = batch_a;
        const auto result = outcome(right, {.layout = {.gaps = gaps}}, g);
        INFO(result.verdict->reason());
        CHECK(result.pass());
        CHECK(result.verdict->repeatable == true);
        CHECK(result.output("c").shape == std::vector<std::int64_t>{3, 17, 9});
        CHECK(result.verdict->tensors[0].name == "C");
        CHECK(result.verdict->tensors[0].rows_checked == 3 * 17);
      }
    }
  }
}

TEST_CASE("a right matrix product passes the suite of the steps, a choosy one with its own padding") {
  const auto cases = suite::gemm_shapes(Dtype::bf16);
  CHECK(suite::passes(right, cases) == static_cast<int>(cases.size()));
  GemmVariant choosy = right;
  choosy.supports = {.dtypes = {Dtype::fp16}, .k_multiple = 8, .ld_multiple = 16, .ldc_multiple = 4, .batch = false};
  const auto few = suite::small_gemm_shapes(Dtype::fp16);
  CHECK(suite::passes(choosy, few) == 1);
  CHECK(suite::passes(choosy, suite::small_gemm_shapes(Dtype::bf16)) == 0);
  suite::batches_are_independent(right, shape());
  suite::follows_permutations(right, shape());
  suite::contains_nan(right, shape());
  Gemm shared = shape();
  shared.batch_a = 1;
  suite::batches_are_independent(right, shared);
  suite::contains_nan(right, shared);
}

TEST_CASE("an element of C that is not written, or of old poison, is seen") {
  const auto result = outcome(variant([](const GemmLaunch& l) {
    compute(l);
    put(Dtype::fp16, l.c, 2 * l.c_batch_stride + 16 * l.shape.ldc + 8, check::poison_value(Dtype::fp16));
  }));
  CHECK(result.verdict->reason() == "C: row (batch 2, row 16): element 8 was not written");
}

TEST_CASE("reading beyond k meets a NaN where rows have padding") {
  CHECK_FALSE(outcome(variant([](const GemmLaunch& l) { compute(l, 1); })).pass());
}

TEST_CASE("a write between the rows of C, between its matrices or beyond a buffer is seen") {
  const auto writing = [](std::int64_t element, bool gaps) {
    return outcome(variant([element](const GemmLaunch& l) {
                     compute(l);
                     put(Dtype::fp16, l.c, element, 1.0f);
                   }),
                   {.layout = {.gaps = gaps}});
  };
  for (const std::int64_t element : {9, 10, 5 * 11 + 10, 3 * 17 * 11 - 1, 3 * 17 * 11, -1}) {
    const auto result = writing(element, false);
    INFO(element);
    CHECK_FALSE(result.verdict->guards_intact);
    CHECK_FALSE(result.pass());
  }
  CHECK_FALSE(writing(17 * 11, true).verdict->guards_intact);  // a row between the first matrix and the second
  const auto scratch = outcome(variant([](const GemmLaunch& l) {
    compute(l);
    l.arrays.get<float>("s")[16] = 0;
  }));
  CHECK_FALSE(scratch.verdict->guards_intact);
}

TEST_CASE("two runs of a matrix product must agree by a bit, unless the variant does not promise it") {
  int runs = 0;
  GemmVariant changing = variant([&](const GemmLaunch& l) {
    compute(l);
    if (++runs % 2 == 0) put(Dtype::fp32, l.c, 3, std::nextafter(get(Dtype::fp32, l.c, 3), 100.0f));
  });
  const Gemm g = problem::resolve(Gemm{.m = 4, .n = 4, .k = 4, .dtype = Dtype::fp32});
  CHECK(outcome(changing, {}, g).verdict->repeatable == false);
  changing.deterministic = false;
  runs = 0;
  CHECK(outcome(changing, {}, g).pass());
}

TEST_CASE("a NaN must fill its row or its column, which must be written; a NaN elsewhere is rejected") {
  const Gemm g = shape();
  const auto tampered = [&](bool in_a, int i, int j, float value) {
    problem::GemmInputs in = problem::make_inputs(g, 1);
    (in_a ? in.a : in.b).values[2 * g.k] = std::numeric_limits<float>::quiet_NaN();
    return run::execute(variant([=](const GemmLaunch& l) {
                          compute(l);
                          if (i >= 0) put(g.dtype, l.c, i * g.ldc + j, value);
                        }),
                        g, in);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float poison = check::poison_value(Dtype::fp16);
  for (const bool in_a : {true, false}) {
    const auto clean = tampered(in_a, -1, 0, 0);
    INFO(clean.verdict->reason());
    CHECK(clean.pass());
    CHECK(clean.verdict->tensors[0].rows_exempt == 0);
    CHECK(tampered(in_a, 2, 2, 5.0f).verdict->reason() == "C: row (batch 0, row 2): element 2 is 5 where it must be nan");
    CHECK(tampered(in_a, 2, 2, poison).verdict->reason() == "C: row (batch 0, row 2): element 2 was not written");
    CHECK_FALSE(tampered(in_a, 3, 3, nan).pass());
    CHECK_FALSE(tampered(in_a, 3, 3, 50.0f).pass());
  }
}

TEST_CASE("what a matrix product cannot serve is refused, naming what it supports") {
  const auto reason = [](const run::GemmSupport& supports, const Gemm& g) {
    return run::refusal(supports, problem::resolve(g)).value_or("");
  };
  const run::GemmSupport tuned{.k_multiple = 8, .ld_multiple = 8, .batch = false, .max_m = 100};
  CHECK(reason(tuned, {.k = 8, .ldc = 3}) == "");
  CHECK(reason(tuned, {.k = 9, .lda = 16, .ldb = 16}) ==
        "does not support k 9; it supports fp16, bf16; m up to 100; any n; k a multiple of 8; lda and ldb multiples of 8; any "
        "ldc; batch 1");
  CHECK(reason(tuned, {.k = 8, .dtype = Dtype::fp32}).find("does not support fp32") == 0);
  CHECK(reason(tuned, {.k = 8, .lda = 9}).find("does not support lda 9") == 0);
  CHECK(reason(tuned, {.k = 8, .ldb = 12}).find("does not support ldb 12") == 0);
  CHECK(reason(tuned, {.batch = 2, .k = 8}).find("does not support batch 2") == 0);
  CHECK(reason(tuned, {.m = 101, .k = 8}).find("does not support m 101") == 0);
  CHECK(reason({.ldc_multiple = 2}, {.ldc = 3}).find("does not support ldc 3") == 0);
  CHECK(reason({}, {.batch = 65536}).find("does not support batch 65536") == 0);
  CHECK(run::to_string(run::GemmSupport{}) == "fp16, bf16; any m; any n; any k; any strides; batches up to 65535");

  GemmVariant narrow = right;
  narrow.supports = tuned;
  CHECK_THROWS_AS(outcome(narrow), std::invalid_argument);
  Gemm narrower = shape();
  narrower.dtype = Dtype::bf16;
  CHECK_THROWS_AS(run::execute(right, narrower, problem::make_inputs(shape(), 1)), std::invalid_argument);  // not rounded to it
  CHECK_THROWS_AS(run::execute(right, shape(), problem::make_inputs(Gemm{}, 1)), std::invalid_argument);
}
