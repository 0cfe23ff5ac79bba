// The checker is tested with matrix products, too: honest ones in any order of summation are accepted, faulty ones rejected.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <set>

#include "common/run/family/gemm_truth.h"
#include "tests/catch.h"

namespace {

using problem::Dtype;
using problem::Gemm;
using problem::GemmInputKind;
using problem::GemmInputs;
using problem::Tensor;

// How a kernel sums; honest but for the last two.
enum class Order { reversed, by_sixteen, split, fp16, first_half };

float sum(Order order, const float* a, const float* b, int k) {
  float total = 0;
  if (order == Order::reversed) {
    for (int d = k - 1; d >= 0; --d) total += a[d] * b[d];
  } else if (order == Order::by_sixteen) {  // as tensor cores: a sum of 16 products joins the accumulator
    for (int d = 0; d < k; d += 16) {
      float part = 0;
      for (int e = d; e < std::min(d + 16, k); ++e) part += a[e] * b[e];
      total += part;
    }
  } else if (order == Order::split) {  // four warps share k
    for (int warp = 0; warp < 4; ++warp) {
      float part = 0;
      for (int d = warp; d < k; d += 4) part = std::fma(a[d], b[d], part);
      total += part;
    }
  } else if (order == Order::fp16) {
    for (int d = 0; d < k; ++d) total = problem::round_to(Dtype::fp16, total + a[d] * b[d]);
  } else {
    for (int d = 0; d < k / 2; ++d) total += a[d] * b[d];
  }
  return total;
}

Tensor multiply(const Gemm& g, const GemmInputs& in, Order order) {
  Tensor c({g.batch, g.m, g.n});
  for (std::int64_t row = 0; row < std::int64_t{g.batch} * g.m; ++row) {
    const float* a = &in.a.values[(g.batch_a == 1 ? row % g.m : row) * g.k];
    for (int j = 0; j < g.n; ++j) {
      const float* b = &in.b.values[(row / g.m * g.n + j) * g.k];
      c.values[row * g.n + j] = problem::round_to(g.dtype, sum(order, a, b, g.k));
    }
  }
  return c;
}

std::vector<Gemm> shapes(Dtype dtype) {
  std::vector<Gemm> all = {{.m = 1, .n = 1, .k = 1},
                           {.m = 33, .n = 65, .k = 17},
                           {.m = 64, .n = 64, .k = 64},
                           {.batch = 2, .m = 40, .n = 40, .k = 129},
                           {.batch = 3, .batch_a = 1, .m = 17, .n = 31, .k = 1000},
                           {.m = 9, .n = 9, .k = 5000},
                           {.m = 50, .n = 1, .k = 300},
                           {.batch = 2, .m = 20, .n = 33, .k = 1500},
                           {.batch = 4, .m = 5, .n = 24, .k = 2000},
                           {.batch = 2, .m = 24, .n = 15, .k = 48}};
  for (Gemm& g : all) {
    g.dtype = dtype;
    g = problem::resolve(g);
  }
  return all;
}

constexpr Dtype dtypes[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16};

struct Fault {
  const char* text;
  std::function<bool(const Gemm&)> shows;
  std::function<void(const Gemm&, const GemmInputs&, Tensor&)> spoil;  // an honest C
  GemmInputKind inputs = GemmInputKind::normal;
};

void set_all(const Gemm& g, Tensor& c, const std::function<bool(int, int)>& where, float value) {
  for (std::int64_t e = 0; e < std::ssize(c.values); ++e) {
    if (where(static_cast<int>(e / g.n % g.m), static_cast<int>(e % g.n))) c.values[e] = value;
  }
}

const Fault faults[] = {
    {"C transposed", [](const Gemm& g) { return g.m > 1 && g.n > 1; },
     [](const Gemm& g, const GemmInputs&, Tensor& c) {
       const Tensor right = c;
       const std::int64_t size = std::int64_t{g.m} * g.n;
       for (std::int64_t e = 0; e < std::ssize(c.values); ++e) {
         c.values[e] = right.values[e / size * size + e % g.m * g.n + e % size / g.m];
       }
     }},
    {"one element off by 5 % of the largest", [](const Gemm&) { return true; },
     [](const Gemm& g, const GemmInputs&, Tensor& c) {
       const auto last = c.values.end() - g.n;
       const float largest =
           *std::max_element(last, c.values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
       c.values.back() = problem::round_to(g.dtype, c.values.back() + 0.05f * largest);
     }},
    {"last tile of rows not written", [](const Gemm& g) { return g.m % 16 != 0; },
     [](const Gemm& g, const GemmInputs&, Tensor& c) {
       set_all(
           g, c, [&](int i, int) { return i >= g.m / 16 * 16; }, check::poison_value(g.dtype));
     }},
    {"last tile of columns zero", [](const Gemm& g) { return g.n % 16 != 0; },
     [](const Gemm& g, const GemmInputs&, Tensor& c) {
       set_all(
           g, c, [&](int, int j) { return j >= g.n / 16 * 16; }, 0.0f);
     }},
    {"poison left in one element", [](const Gemm&) { return true; },
     [](const Gemm& g, const GemmInputs&, Tensor& c) { c.values[c.values.size() / 2] = check::poison_value(g.dtype); }},
    {"NaN in one element", [](const Gemm&) { return true; },
     [](const Gemm&, const GemmInputs&, Tensor& c) { c.values[c.values.size() / 2] = std::nanf(""); }},
    {"last tile of k dropped", [](const Gemm& g) { return g.k > 1 && g.k <= 2000; },
     [](const Gemm& g, const GemmInputs& in, Tensor& c) {
       GemmInputs zeroed = in;
       for (std::int64_t e = 0; e < std::ssize(in.a.values); ++e) {
         if (e % g.k >= (g.k - 1) / 16 * 16) zeroed.a.values[e] = 0;
       }
       c = multiply(g, zeroed, Order::by_sixteen);
     }},
    {"half of k", [](const Gemm& g) { return g.k > 1; },
     [](const Gemm& g, const GemmInputs& in, Tensor& c) { c = multiply(g, in, Order::first_half); }},
    {"A of the first batch entry everywhere", [](const Gemm& g) { return g.batch_a > 1; },
     [](const Gemm& g, const GemmInputs& in, Tensor& c) {
       GemmInputs first = in;
       const std::int64_t size = std::int64_t{g.m} * g.k;
       for (std::int64_t e = 0; e < std::ssize(in.a.values); ++e) first.a.values[e] = in.a.values[e % size];
       c = multiply(g, first, Order::reversed);
     }},
    {"C rounded to bf16", [](const Gemm& g) { return g.dtype != Dtype::bf16 && g.m * g.n >= 50; },
     [](const Gemm&, const GemmInputs&, Tensor& c) {
       for (float& x : c.values) x = problem::round_to(Dtype::bf16, x);
     }},
    {"one term of 100 left out", [](const Gemm& g) { return g.k >= 100; },
     [](const Gemm& g, const GemmInputs& in, Tensor& c) {
       GemmInputs zeroed = in;
       for (std::int64_t e = 0; e < std::ssize(in.a.values); ++e) {
         if ((e % g.k + e / g.k) % 100 == 0) zeroed.a.values[e] = 0;
       }
       c = multiply(g, zeroed, Order::reversed);
     }},
    {"the first batch entry of C as the last", [](const Gemm& g) { return g.batch > 1; },
     [](const Gemm& g, const GemmInputs&, Tensor& c) {
       const std::int64_t size = std::int64_t{g.m} * g.n;
       std::copy_n(c.values.begin(), size, c.values.end() - size);
     }},
    {"the last call's output", [](const Gemm&) { return true; },
     [](const Gemm& g, const GemmInputs&, Tensor& c) { c = multiply(g, problem::make_inputs(g, 2), Order::reversed); }},
    {"two rows swapped", [](const Gemm& g) { return g.m > 1; },
     [](const Gemm& g, const GemmInputs&, Tensor& c) {
       std::swap_ranges(c.values.end() - g.n, c.values.end(), c.values.end() - 2 * g.n);
     }},
    {"accumulation in fp16, large k", [](const Gemm& g) { return g.dtype != Dtype::bf16 && g.k >= 1000; },
     [](const Gemm& g, const GemmInputs& in, Tensor& c) { c = multiply(g, in, Order::fp16); }},
    {"accumulation in fp16, sums that cancel", [](const Gemm& g) { return g.k >= 64; },
     [](const Gemm& g, const GemmInputs& in, Tensor& c) { c = multiply(g, in, Order::fp16); }, GemmInputKind::cancelling},
};

}  // namespace

TEST_CASE("matrix products in any order of summation are accepted, at every shape, dtype and kind of input") {
  double worst = 0;
  for (const Dtype dtype : dtypes) {
    for (const Gemm& g : shapes(dtype)) {
      for (const GemmInputKind kind : {GemmInputKind::normal, GemmInputKind::cancelling}) {
        for (std::uint64_t seed = 1; seed <= 5; ++seed) {
          const GemmInputs in = problem::make_inputs(g, seed, kind);
          const run::GemmTruth truth(g, in);
          for (const Order order : {Order::reversed, Order::by_sixteen, Order::split}) {
            const check::TensorVerdict verdict = truth.judge(multiply(g, in, order));
            INFO(problem::to_string(g) << ", seed " << seed << ", order " << static_cast<int>(order) << ": " << verdict.reason);
            CHECK(verdict.pass);
            worst = std::max(worst, verdict.worst_ratio);
          }
        }
      }
    }
  }
  std::printf("honest matrix products: worst error / allowed %.2f\n", worst);
}

TEST_CASE("every faulty matrix product is rejected wherever its fault changes the result") {
  std::printf("%-42s rejected at (shape, dtype)  smallest error / allowed\n", "fault");
  for (const Fault& fault : faults) {
    int tried = 0, rejected = 0;
    std::set<std::size_t> seen;  // shapes
    double closest = INFINITY;
    for (const Dtype dtype : dtypes) {
      const std::vector<Gemm> all = shapes(dtype);
      for (std::size_t n = 0; n < all.size(); ++n) {
        const Gemm& g = all[n];
        if (!fault.shows(g)) continue;
        seen.insert(n);
        const GemmInputs in = problem::make_inputs(g, 1, fault.inputs);
        const run::GemmTruth truth(g, in);
        Tensor c = multiply(g, in, Order::reversed);
        fault.spoil(g, in, c);
        const check::TensorVerdict verdict = truth.judge(c);
        INFO(fault.text << " at " << problem::to_string(g) << ", worst ratio " << verdict.worst_ratio);
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

TEST_CASE("of a large matrix product some rows are compared, and all must be written") {
  const Gemm g = problem::resolve({.batch = 2, .m = 1500, .n = 1000, .k = 1000, .dtype = Dtype::fp32});
  const GemmInputs in = problem::make_inputs(g, 1);
  const run::GemmTruth truth(g, in);
  const reference::GemmSpec spec{g.batch, g.batch_a, g.m, g.n, g.k};
  Tensor c({g.batch, g.m, g.n});
  c.values = reference::product_baseline(spec, reference::all_rows(spec), in.a.values, in.b.values);
  CHECK(truth.judge(c).pass);
  CHECK(truth.judge(c).rows_checked == 2 * 64);
  Tensor unwritten = c;
  unwritten.values[777 * 1000 + 1] = check::poison_value(Dtype::fp32);
  CHECK(truth.judge(unwritten).reason == "row (batch 0, row 777): element 1 was not written");
  Tensor wrong = c;
  wrong.values.back() += 0.01f;
  CHECK(truth.judge(wrong).reason.find("row (batch 1, row 1499)") == 0);
}
