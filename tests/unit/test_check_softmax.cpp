// The checker is tested with row softmaxes, too: honest ones are accepted, faulty ones rejected.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <set>

#include "common/run/family/softmax_truth.h"
#include "tests/catch.h"

namespace {

using problem::Dtype;
using problem::Softmax;
using problem::SoftmaxInputKind;
using problem::Tensor;

constexpr Dtype dtypes[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
constexpr SoftmaxInputKind kinds[] = {SoftmaxInputKind::normal, SoftmaxInputKind::large, SoftmaxInputKind::one_hot,
                                      SoftmaxInputKind::uniform, SoftmaxInputKind::descending};
constexpr float log2_e = 1.44269504088896341f;

std::vector<Softmax> shapes(Dtype dtype) {
  std::vector<Softmax> all = {{.rows = 1, .cols = 1},    {.rows = 7, .cols = 2},    {.rows = 5, .cols = 33},
                              {.rows = 9, .cols = 207},  {.rows = 3, .cols = 1000}, {.rows = 2, .cols = 4097},
                              {.rows = 4, .cols = 5000}, {.rows = 2, .cols = 9000}, {.rows = 1, .cols = 20001}};
  for (Softmax& s : all) {
    s.dtype = dtype;
    s = problem::resolve(s);
  }
  return all;
}

// A softmax with a choice of everything that kernels choose, or get wrong.
struct Recipe {
  std::function<float(const float*, int)> maximum = [](const float* x, int cols) { return *std::max_element(x, x + cols); };
  std::function<float(float, float)> exponential = [](float x, float m) { return std::exp(x - m); };
  std::function<float(const std::vector<float>&)> sum = [](const std::vector<float>& e) {
    float l = 0;
    for (const float x : e) l += x;
    return l;
  };
};

Tensor softmax(const Softmax& s, const Tensor& x, const Recipe& recipe) {
  Tensor y({s.rows, s.cols});
  for (int row = 0; row < s.rows; ++row) {
    const float* x_row = &x.values[std::int64_t{row} * s.cols];
    const float m = recipe.maximum(x_row, s.cols);
    std::vector<float> e(s.cols);
    for (int j = 0; j < s.cols; ++j) e[j] = recipe.exponential(x_row[j], m);
    const float factor = 1 / recipe.sum(e);
    for (int j = 0; j < s.cols; ++j) y.values[std::int64_t{row} * s.cols + j] = problem::round_to(s.dtype, e[j] * factor);
  }
  return y;
}

float sum_of_parts(const std::vector<float>& e, std::size_t parts) {  // element i goes to part i mod parts
  std::vector<float> part(parts, 0.0f);
  for (std::size_t j = 0; j < e.size(); ++j) part[j % parts] += e[j];
  float l = 0;
  for (const float x : part) l += x;
  return l;
}

struct Honest {
  const char* text;
  Recipe recipe;
};

const Honest honest[] = {
    {"32 lanes", {.sum = [](const std::vector<float>& e) { return sum_of_parts(e, 32); }}},
    {"1024 threads", {.sum = [](const std::vector<float>& e) { return sum_of_parts(e, 1024); }}},
    {"in base 2, fused", {.exponential = [](float x, float m) { return std::exp2(std::fma(x, log2_e, -(m * log2_e))); }}},
    {"in base 2, the difference scaled", {.exponential = [](float x, float m) { return std::exp2((x - m) * log2_e); }}},
};

struct Fault {
  const char* text;
  std::function<bool(const Softmax&)> shows;
  std::function<Tensor(const Softmax&, const Tensor&)> spoiled;
  SoftmaxInputKind inputs = SoftmaxInputKind::normal;
};

bool everywhere(const Softmax&) { return true; }
bool more_than_one(const Softmax& s) { return s.cols > 1; }
// Of equal scores, `count` that are missing from the sum change y by more than four steps of the dtype.
bool shows_missing(const Softmax& s, int count) { return count > 4 * check::ulp(s.dtype, 1.0) * s.cols; }
bool long_rows(const Softmax& s) { return s.cols >= 1000; }

Tensor right(const Softmax& s, const Tensor& x) { return softmax(s, x, {}); }

std::function<Tensor(const Softmax&, const Tensor&)> with(Recipe recipe) {
  return [recipe](const Softmax& s, const Tensor& x) { return softmax(s, x, recipe); };
}

float maximum_from_zero(const float* x, int cols) { return std::max(0.0f, *std::max_element(x, x + cols)); }

const Fault faults[] = {
    {"no maximum", long_rows, with({.maximum = [](const float*, int) { return 0.0f; }}), SoftmaxInputKind::large},
    {"maximum started at 0, scores below −200", everywhere,
     [](const Softmax& s, const Tensor& x) {
       return softmax(s, x, {.maximum = maximum_from_zero});  // the inputs are shifted below
     }},
    {"the first score for the maximum", [](const Softmax& s) { return s.cols >= 33; },
     with({.maximum = [](const float* x, int) { return x[0]; }}), SoftmaxInputKind::large},
    {"sum not rescaled when the maximum moves", long_rows,
     with({.exponential = [](float x, float m) { return std::exp(x - m); },
           .sum =
               [](const std::vector<float>& e) {  // each term as it was when it came: against the maximum so far
                 float l = 0, m = 0;
                 for (const float x : e) l += x / (m = std::max(m, x));
                 return l;
               }})},
    {"exp2 without log2 e", more_than_one, with({.exponential = [](float x, float m) { return std::exp2(x - m); }})},
    {"log2 e twice", more_than_one, with({.exponential = [](float x, float m) { return std::exp((x - m) * log2_e); }})},
    {"last element dropped from the sum", [](const Softmax& s) { return s.cols > 1 && shows_missing(s, 1); },
     with({.sum =
               [](const std::vector<float>& e) {
                 float l = 0;
                 for (std::size_t j = 0; j + 1 < e.size(); ++j) l += e[j];
                 return l;
               }}),
     SoftmaxInputKind::uniform},
    {"tail behind the last chunk of 8 dropped", [](const Softmax& s) { return s.cols > 8 && shows_missing(s, s.cols % 8); },
     with({.sum =
               [](const std::vector<float>& e) {
                 float l = 0;
                 for (std::size_t j = 0; j < e.size() / 8 * 8; ++j) l += e[j];
                 return l;
               }}),
     SoftmaxInputKind::uniform},
    {"sum in fp16", [](const Softmax& s) { return s.cols > 2048; },  // where 1 + 2048 is 2048
     with({.sum =
               [](const std::vector<float>& e) {
                 float l = 0;
                 for (const float x : e) l = problem::round_to(Dtype::fp16, l + x);
                 return l;
               }}),
     SoftmaxInputKind::uniform},
    {"each half a softmax of its own", more_than_one,
     [](const Softmax& s, const Tensor& x) {
       Tensor y({s.rows, s.cols});
       for (int row = 0; row < s.rows; ++row) {
         int begin = 0;
         for (const int end : {s.cols / 2, s.cols}) {
           const Softmax half = problem::resolve({.cols = end - begin, .dtype = s.dtype});
           Tensor part({1, half.cols});
           std::copy_n(&x.values[std::int64_t{row} * s.cols + begin], half.cols, part.values.begin());
           std::ranges::copy(right(half, part).values, &y.values[std::int64_t{row} * s.cols + begin]);
           begin = end;
         }
       }
       return y;
     }},
    {"one late element off by 5 % of the largest", everywhere,
     [](const Softmax& s, const Tensor& x) {
       Tensor y = right(s, x);
       const float largest = *std::max_element(y.values.end() - s.cols, y.values.end());
       y.values.back() = problem::round_to(s.dtype, y.values.back() + 0.05f * largest);
       return y;
     }},
    {"two rows swapped", [](const Softmax& s) { return s.rows > 1; },
     [](const Softmax& s, const Tensor& x) {
       Tensor y = right(s, x);
       std::swap_ranges(y.values.end() - s.cols, y.values.end(), y.values.end() - 2 * s.cols);
       return y;
     }},
    {"columns shifted by one", more_than_one,
     [](const Softmax& s, const Tensor& x) {
       Tensor y = right(s, x);
       std::rotate(y.values.end() - s.cols, y.values.end() - 1, y.values.end());
       return y;
     }},
    {"1 / cols everywhere", more_than_one,
     [](const Softmax& s, const Tensor&) {
       return Tensor({s.rows, s.cols}, problem::round_to(s.dtype, 1.0f / static_cast<float>(s.cols)));
     }},
    {"y rounded to bf16", [](const Softmax& s) { return s.dtype != Dtype::bf16 && s.cols >= 33; },
     [](const Softmax& s, const Tensor& x) {
       Tensor y = right(s, x);
       for (float& value : y.values) value = problem::round_to(Dtype::bf16, value);
       return y;
     }},
    {"the last call's output", more_than_one,
     [](const Softmax& s, const Tensor&) { return right(s, problem::make_inputs(s, 2)); }},
    {"zeros", everywhere,
     [](const Softmax& s, const Tensor&) {
       return Tensor({s.rows, s.cols});
     }},
    {"NaN in one element", everywhere,
     [](const Softmax& s, const Tensor& x) {
       Tensor y = right(s, x);
       y.values[y.values.size() / 2] = std::nanf("");
       return y;
     }},
    {"last element not written", everywhere,
     [](const Softmax& s, const Tensor& x) {
       Tensor y = right(s, x);
       y.values.back() = check::poison_value(s.dtype);
       return y;
     }},
};

}  // namespace

TEST_CASE("row softmaxes summed in parts and in either base are accepted, at every shape, dtype and kind of input") {
  double worst = 0;
  for (const Dtype dtype : dtypes) {
    for (const Softmax& s : shapes(dtype)) {
      for (const SoftmaxInputKind kind : kinds) {
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          const Tensor x = problem::make_inputs(s, seed, kind);
          const run::SoftmaxTruth truth(s, x);
          for (const Honest& way : honest) {
            const check::TensorVerdict verdict = truth.judge(softmax(s, x, way.recipe));
            INFO(problem::to_string(s) << ", inputs " << static_cast<int>(kind) << ", seed " << seed << ", " << way.text << ": "
                                       << verdict.reason);
            CHECK(verdict.pass);
            worst = std::max(worst, verdict.worst_ratio);
          }
        }
      }
    }
  }
  std::printf("honest row softmaxes: worst error / allowed %.2f\n", worst);
}

TEST_CASE("every faulty row softmax is rejected wherever its fault changes the result") {
  std::printf("%-42s rejected at (shape, dtype)  smallest error / allowed\n", "fault");
  for (const Fault& fault : faults) {
    int tried = 0, rejected = 0;
    std::set<std::size_t> seen;  // shapes
    double closest = INFINITY;
    for (const Dtype dtype : dtypes) {
      const std::vector<Softmax> all = shapes(dtype);
      for (std::size_t n = 0; n < all.size(); ++n) {
        const Softmax& s = all[n];
        if (!fault.shows(s)) continue;
        seen.insert(n);
        Tensor x = problem::make_inputs(s, 1, fault.inputs);
        if (std::string(fault.text).starts_with("maximum started at 0")) {
          for (float& score : x.values) score = problem::round_to(dtype, score - 208);
        }
        const run::SoftmaxTruth truth(s, x);
        const check::TensorVerdict verdict = truth.judge(fault.spoiled(s, x));
        INFO(fault.text << " at " << problem::to_string(s) << ", worst ratio " << verdict.worst_ratio);
        CHECK_FALSE(verdict.pass);
        ++tried;
        rejected += !verdict.pass;
        if (!std::isnan(verdict.worst_ratio)) closest = std::min(closest, verdict.worst_ratio);
      }
    }
    std::printf("%-42s %12d of %-3d %16.3g\n", fault.text, rejected, tried, closest);
    CHECK(seen.size() >= 4);
  }
}

TEST_CASE("a row with a NaN or +∞ must be NaN, a row of −∞ must be 0, and the others are compared") {
  const Softmax s = problem::resolve({.rows = 4, .cols = 5, .dtype = Dtype::fp32});
  Tensor x = problem::make_inputs(s, 1);
  x.values[7] = std::nanf("");
  x.values[13] = INFINITY;
  std::fill(x.values.begin() + 15, x.values.end(), -INFINITY);
  const run::SoftmaxTruth truth(s, x);
  Tensor y({4, 5}, std::nanf(""));
  for (int j = 0; j < 5; ++j) {
    y.values[j] = right(s, x).values[j];
    y.values[15 + j] = 0;
  }
  const check::TensorVerdict verdict = truth.judge(y);
  INFO(verdict.reason);
  CHECK(verdict.pass);
  CHECK(verdict.rows_exempt == 0);
  CHECK(verdict.rows_checked == 4);
  const auto reason = [&](int element, float value) {
    Tensor changed = y;
    changed.values[element] = value;
    return truth.judge(changed).reason;
  };
  CHECK(reason(8, check::poison_value(Dtype::fp32)) == "row (1): element 3 was not written");
  CHECK(reason(5, 0.0f) == "row (1): element 0 is 0 where it must be nan");
  CHECK(reason(12, 5.0f) == "row (2): element 2 is 5 where it must be nan");
  CHECK(reason(13, 1.0f) == "row (2): element 3 is 1 where it must be nan");
  CHECK(reason(17, 0.2f).starts_with("row (3): element 2 is 0.2"));
  CHECK(reason(17, std::nanf("")).starts_with("row (3): element 2 is nan"));
  CHECK(reason(2, std::nanf("")) == "row (0): element 2 is nan");
  CHECK(reason(0, 0.9f).starts_with("row (0): error"));
}

TEST_CASE("of many rows some are compared, and all must be written") {
  const Softmax s = problem::resolve({.rows = 20100, .cols = 1500, .dtype = Dtype::fp32});
  const Tensor x({s.rows, s.cols});
  const run::SoftmaxTruth truth(s, x);
  Tensor y({s.rows, s.cols}, 1.0f / 1500);
  CHECK(truth.judge(y).pass);
  CHECK(truth.judge(y).rows_checked == 64);
  y.values[777 * 1500 + 1] = check::poison_value(Dtype::fp32);
  CHECK(truth.judge(y).reason == "row (777): element 1 was not written");
  y.values[777 * 1500 + 1] = 0;
  y.values.back() = 1;
  CHECK(truth.judge(y).reason.starts_with("row (20099): error"));
}
