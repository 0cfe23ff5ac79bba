// Options of scores: softcap, ALiBi, bias, sinks, lengths of a padded cache. The reference against numbers worked out by hand
// and against a second implementation; what cannot be is refused; and a judge that accepts honest kernels and rejects broken
// ones. The kernels themselves run in the tests of the steps that take the options.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/device/shapes.h"
#include "common/problem/cost.h"
#include "common/reference/attention.h"
#include "common/reference/backward.h"
#include "common/run/family/attention.h"
#include "common/run/family/baseline_rounding.h"
#include "tests/catch.h"

namespace {

using problem::Attention;
using problem::AttentionInputs;
using problem::Dtype;
using problem::Tensor;
using reference::AttentionSpec;
using Extents = std::vector<std::int64_t>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float largest = std::numeric_limits<float>::max();

std::shared_ptr<const Tensor> tensor(Extents shape, std::vector<float> values) {
  Tensor result(std::move(shape));
  REQUIRE(result.values.size() == values.size());
  result.values = std::move(values);
  return std::make_shared<const Tensor>(std::move(result));
}

Attention shape(int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim) {
  return {.batch = batch, .heads = heads, .kv_heads = kv_heads, .seq_q = seq_q, .seq_k = seq_k, .dim = dim};
}

// Rows of dim 1 whose queries are 1, with scale 1: scores are the keys.
Attention line(int heads, int seq_q, int seq_k) {
  Attention a = shape(1, heads, 1, seq_q, seq_k, 1);
  a.scale = 1;
  return a;
}

reference::Forward forward(const Attention& a, const AttentionInputs& in) {
  const AttentionSpec spec = run::spec_of(problem::resolve(a));
  return reference::forward(spec, reference::all_rows(spec), std::span<const float>(in.q.values), in.k.values, in.v.values);
}

// Of such a line; the keys and values of all heads.
reference::Forward forward(const Attention& a, const std::vector<float>& k, const std::vector<float>& v) {
  AttentionInputs in{Tensor({a.batch, a.heads, a.seq_q, 1}, 1.0f), Tensor({a.batch, 1, a.seq_k, 1}),
                     Tensor({a.batch, 1, a.seq_k, 1})};
  in.k.values = k;
  in.v.values = v;
  return forward(a, in);
}

std::vector<double> slopes(int heads, double largest_exponent) {
  std::vector<double> all;
  for (int h = 0; h < heads; ++h) all.push_back(reference::slope({.heads = heads, .alibi = largest_exponent}, h));
  return all;
}

void check_all(const std::vector<double>& values, const std::vector<double>& expected) {
  REQUIRE(values.size() == expected.size());
  for (std::size_t n = 0; n < values.size(); ++n) CHECK(values[n] == Approx(expected[n]).epsilon(1e-12));
}

double minus_infinity() { return -std::numeric_limits<double>::infinity(); }

}  // namespace

// ---- by hand ----

TEST_CASE("by hand: a softcap of 2 makes 2 tanh(s / 2) of the scaled score s") {
  Attention a = line(1, 1, 2);
  a.softcap = 2;
  a.scale = 3;
  const auto made = forward(a, {1, 0}, {10, 20});  // scores 2 tanh(1.5) = 1.8102965 and 0
  CHECK(made.lse[0] == Approx(std::log(std::exp(1.8102965) + 1)).epsilon(1e-7));
  CHECK(made.o[0] == Approx((10 * std::exp(1.8102965) + 20) / (std::exp(1.8102965) + 1)).epsilon(1e-7));
}

TEST_CASE("by hand: ALiBi's slopes of 8, 12 and 14 heads are those of Press et al.") {
  const std::vector<double> eight = {1 / 2., 1 / 4., 1 / 8., 1 / 16., 1 / 32., 1 / 64., 1 / 128., 1 / 256.};
  const double root = std::sqrt(0.5);  // of 16 heads the first slope; every second: its odd powers
  check_all(slopes(8, 8), eight);
  std::vector<double> twelve = eight;
  for (const double factor : {1., 1 / 2., 1 / 4., 1 / 8.}) twelve.push_back(root * factor);
  check_all(slopes(12, 8), twelve);
  std::vector<double> fourteen = twelve;
  for (const double factor : {1 / 16., 1 / 32.}) fourteen.push_back(root * factor);
  check_all(slopes(14, 8), fourteen);
  check_all(slopes(1, 8), {1 / 256.});
  check_all(slopes(2, 4), {1 / 4., 1 / 16.});
  check_all(slopes(3, 4), {1 / 4., 1 / 16., 1 / 2.});
}

TEST_CASE("kernels have the reference's slopes, of any number of heads") {
  for (const float exponent : {0.5f, 8.0f, 40.0f}) {
    for (int heads = 1; heads <= 130; ++heads) {
      const device::AlibiSlopes of_kernels = device::alibi_slopes(exponent, heads);
      const std::vector<double> expected = slopes(heads, exponent);
      for (int h = 0; h < heads; ++h) {
        if (std::abs(of_kernels.of(h) / expected[h] - 1) > 3e-6)
          FAIL("head " << h << " of " << heads << ": " << of_kernels.of(h));
      }
    }
  }
}

TEST_CASE("by hand: ALiBi takes off slope · distance from the query's own key, on both sides of it") {
  Attention a = line(1, 2, 3);  // the queries lie beside keys 1 and 2
  a.alibi = 1;                  // the only slope: 1/2
  const auto made = forward(a, {0, 0, 0}, {1, 2, 4});
  const double one = std::exp(-0.5), two = std::exp(-1.0);
  check_all(made.lse, {std::log(one + 1 + one), std::log(two + one + 1)});
  check_all(made.o, {(one + 2 + 4 * one) / (2 * one + 1), (two + 2 * one + 4) / (two + one + 1)});
}

TEST_CASE("by hand: the cap comes before bias and ALiBi, and after the scale") {
  Attention a = line(1, 1, 2);
  a.scale = 0.5f;
  a.softcap = 1;
  a.alibi = 1;
  a.bias = tensor({1, 1, 1, 2}, {3, -2});
  const auto made = forward(a, {4, 4}, {0, 1});
  const double capped = std::tanh(2.0), first = capped + 3 - 0.5, second = capped - 2;
  check_all(made.lse, {std::log(std::exp(first) + std::exp(second))});
  check_all(made.o, {std::exp(second) / (std::exp(first) + std::exp(second))});
}

TEST_CASE("by hand: a bias is added; each of its dimensions but the last may be 1") {
  for (int ones = 0; ones < 8; ++ones) {
    Attention a = line(2, 2, 1);
    a.batch = 2;
    const std::int64_t batches = ones & 1 ? 1 : 2, heads = ones & 2 ? 1 : 2, queries = ones & 4 ? 1 : 2;
    Tensor bias({batches, heads, queries, 1});
    std::vector<double> expected;
    for (int b = 0; b < 2; ++b) {
      for (int h = 0; h < 2; ++h) {
        for (int i = 0; i < 2; ++i) {
          const auto at = [](std::int64_t extent, int index) { return extent == 1 ? 0 : index; };
          const double value = 100 * at(batches, b) + 10 * at(heads, h) + at(queries, i);
          bias.values[(at(batches, b) * heads + at(heads, h)) * queries + at(queries, i)] = static_cast<float>(value);
          expected.push_back(7 + value);
        }
      }
    }
    a.bias = std::make_shared<const Tensor>(bias);
    INFO("dimensions that are 1: " << ones);
    check_all(forward(a, {7, 7}, {1, 1}).lse, expected);
  }
}

TEST_CASE("by hand: a bias of −∞ hides a key and its V, whatever they are; where all are hidden, O = 0 and LSE = −∞") {
  Attention a = line(1, 2, 3);
  a.bias = tensor({1, 1, 2, 3}, {0, -infinity, 1, -infinity, -infinity, -infinity});
  for (const float odd : {5.0f, quiet_nan, infinity}) {
    const auto made = forward(a, {0, odd, 0}, {1, odd, 2});
    CHECK(made.lse[0] == Approx(std::log(1 + std::exp(1.0))));
    CHECK(made.o[0] == Approx((1 + 2 * std::exp(1.0)) / (1 + std::exp(1.0))));
    CHECK(made.lse[1] == minus_infinity());
    CHECK(made.o[1] == 0);
  }
  a.sinks = tensor({1}, {3});
  const auto with_sink = forward(a, {0, quiet_nan, 0}, {1, quiet_nan, 2});
  CHECK(with_sink.lse[1] == 3);
  CHECK(with_sink.o[1] == 0);
}

TEST_CASE("by hand: a bias of +∞ or NaN makes a row NaN, and no other") {
  for (const float odd : {infinity, quiet_nan}) {
    Attention a = line(1, 2, 2);
    a.bias = tensor({1, 1, 2, 2}, {0, odd, 0, 0});
    const auto made = forward(a, {0, 0}, {1, 3});
    CHECK(std::isnan(made.o[0]));
    CHECK(std::isnan(made.lse[0]));
    CHECK(made.o[1] == Approx(2));
    CHECK(made.lse[1] == Approx(std::log(2.0)));
  }
}

TEST_CASE("by hand: a sink is in the sum and in LSE, once, and has no value") {
  Attention a = line(5, 1, 2);
  a.sinks = tensor({5}, {std::log(2.0f), -infinity, infinity, quiet_nan, 300});
  const auto made = forward(a, {0, 0}, {4, 8});
  CHECK(made.lse[0] == Approx(std::log(4.0)));  // 1 + 1 + 2
  CHECK(made.o[0] == Approx((4 + 8) / 4.0));
  CHECK(made.lse[1] == Approx(std::log(2.0)));  // none
  CHECK(made.o[1] == Approx(6));
  for (const int head : {2, 3}) {
    CHECK(std::isnan(made.lse[head]));
    CHECK(std::isnan(made.o[head]));
  }
  CHECK(made.lse[4] == Approx(300));
  CHECK(made.o[4] == Approx(12 * std::exp(-300.0)));
}

TEST_CASE("by hand: a row without keys has its sink as LSE, and O = 0") {
  Attention a = line(4, 2, 1);
  a.causal = true;  // the first of two queries sees none
  a.sinks = tensor({4}, {2, -infinity, infinity, quiet_nan});
  const auto made = forward(a, {0}, {5});
  CHECK(made.lse[0] == 2);
  CHECK(made.o[0] == 0);
  CHECK(made.lse[2] == minus_infinity());
  CHECK(made.o[2] == 0);
  for (const int row : {4, 6}) {
    CHECK(std::isnan(made.lse[row]));
    CHECK(std::isnan(made.o[row]));
  }
}

TEST_CASE("by hand: a batch entry has its first keys; the last query lies beside the last of them") {
  Attention a = line(1, 2, 4);
  a.batch = 4;
  a.lengths = {0, 1, 3, 4};
  std::vector<float> k(16), v(16, quiet_nan);
  for (int b = 0; b < 4; ++b) {
    for (int j = 0; j < a.lengths[b]; ++j) v[4 * b + j] = static_cast<float>(1 << j);
  }
  // Values of keys are 1, 2, 4, 8: the mean of those that a query sees. What lies behind an entry's keys is NaN.
  const auto all = forward(a, k, v);
  check_all({all.o.begin() + 2, all.o.end()}, {1, 1, 7 / 3., 7 / 3., 15 / 4., 15 / 4.});
  CHECK((all.o[0] == 0 && all.o[1] == 0 && all.lse[0] == minus_infinity() && all.lse[1] == minus_infinity()));
  check_all({all.lse.begin() + 2, all.lse.end()}, {0, 0, std::log(3.0), std::log(3.0), std::log(4.0), std::log(4.0)});

  Attention causal = a, window = a, alibi = a;
  causal.causal = true;
  const auto below = forward(causal, k, v);
  CHECK(below.o[2] == 0);  // of one key the first of two queries sees none
  CHECK(below.lse[2] == minus_infinity());
  check_all({below.o.begin() + 3, below.o.end()}, {1, 3 / 2., 7 / 3., 7 / 3., 15 / 4.});

  window.window = 1;  // each sees its own key alone
  const auto own = forward(window, k, v);
  CHECK(own.o[2] == 0);
  check_all({own.o.begin() + 3, own.o.end()}, {1, 2, 4, 4, 8});

  alibi.alibi = 1;
  const double one = std::exp(-0.5), two = std::exp(-1.0);
  const auto far = forward(alibi, k, v);
  check_all({far.lse.begin() + 2, far.lse.begin() + 6}, {-0.5, 0, std::log(one + 1 + one), std::log(two + one + 1)});
}

// ---- a second implementation ----

namespace {

// ALiBi's slopes as Press et al. give them: a recursion over powers of two.
std::vector<double> slopes_of_paper(int heads, double exponent) {
  if ((heads & (heads - 1)) == 0) {
    std::vector<double> all;
    for (int h = 1; h <= heads; ++h) all.push_back(std::pow(std::pow(2, -exponent / heads), h));
    return all;
  }
  int closest = 1;
  while (closest * 2 < heads) closest *= 2;
  std::vector<double> all = slopes_of_paper(closest, exponent);
  const std::vector<double> more = slopes_of_paper(2 * closest, exponent);
  for (int n = 0; static_cast<int>(all.size()) < heads; n += 2) all.push_back(more[n]);
  return all;
}

double bias_of(const Attention& a, int b, int h, int i, int j) {
  if (!a.bias) return 0;
  const Extents& n = a.bias->shape;
  return a.bias->values[(((b % n[0]) * n[1] + h % n[1]) * n[2] + i % n[2]) * n[3] + j];
}

// Every pair is looked at, in double; nothing is shared with the reference.
reference::Forward plain(const Attention& a, const AttentionInputs& in) {
  reference::Forward result;
  for (int b = 0; b < a.batch; ++b) {
    for (int h = 0; h < a.heads; ++h) {
      for (int i = 0; i < a.seq_q; ++i) {
        const int length = a.lengths.empty() ? a.seq_k : a.lengths[b], own = length - a.seq_q + i;
        const int kv = h / (a.heads / a.kv_heads);
        const double sink = a.sinks ? a.sinks->values[h] : minus_infinity();
        double sum = std::exp(sink);
        std::vector<double> o(a.dim);
        for (int j = 0; j < length; ++j) {
          if (a.causal && j > own) continue;
          if (a.window > 0 && std::abs(own - j) >= a.window) continue;
          const double bias = bias_of(a, b, h, i, j);
          if (bias == minus_infinity()) continue;
          double s = 0;
          for (int d = 0; d < a.dim; ++d) {
            s += static_cast<double>(in.q.values[((b * a.heads + h) * a.seq_q + i) * a.dim + d]) *
                 in.k.values[((b * a.kv_heads + kv) * a.seq_k + j) * a.dim + d];
          }
          s *= a.scale.value();
          if (a.softcap > 0) s = a.softcap * std::tanh(s / a.softcap);
          s += bias;
          if (a.alibi > 0) s -= slopes_of_paper(a.heads, a.alibi)[h] * std::abs(own - j);
          sum += std::exp(s);
          for (int d = 0; d < a.dim; ++d) o[d] += std::exp(s) * in.v.values[((b * a.kv_heads + kv) * a.seq_k + j) * a.dim + d];
        }
        for (const double x : o) result.o.push_back(sum > 0 ? x / sum : 0);
        result.lse.push_back(std::log(sum));
      }
    }
  }
  return result;
}

class Random {
 public:
  explicit Random(unsigned seed) : bits_(seed) {}
  int below(int bound) { return static_cast<int>(bits_() % static_cast<unsigned>(bound)); }
  float number(float size) { return size * (static_cast<float>(below(2001)) / 1000 - 1); }

 private:
  std::mt19937 bits_;
};

// A bias, a key in `hidden` of which is hidden.
std::shared_ptr<const Tensor> some_bias(Random& random, Extents extents, Dtype dtype, int hidden) {
  Tensor bias(std::move(extents));
  for (float& x : bias.values) x = random.below(hidden) == 0 ? -infinity : problem::round_to(dtype, random.number(2));
  return std::make_shared<const Tensor>(std::move(bias));
}

std::shared_ptr<const Tensor> some_sinks(Random& random, int heads, float least) {
  Tensor sinks({heads});
  for (float& x : sinks.values) x = least + 1 + random.number(1);
  return std::make_shared<const Tensor>(std::move(sinks));
}

void check_near(const std::vector<double>& values, const std::vector<double>& expected, double off) {
  REQUIRE(values.size() == expected.size());
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (values[n] == expected[n] || std::abs(values[n] - expected[n]) <= off) continue;
    FAIL("element " << n << ": " << values[n] << " in place of " << expected[n]);
  }
}

}  // namespace

TEST_CASE("all combinations of options agree with loops over all pairs, in double; so does the baseline, in fp32") {
  for (unsigned which = 0; which < 128; ++which) {
    for (unsigned again = 0; again < 3; ++again) {
      Random random(3 * which + again);
      const int kv_heads = 1 + random.below(3), heads = kv_heads * (1 + random.below(5));
      Attention a = shape(1 + random.below(3), heads, kv_heads, 1 + random.below(6), 1 + random.below(12), 1 + random.below(5));
      a.causal = which & 1;
      if (which & 2) a.window = 1 + random.below(6);
      if (which & 4) a.softcap = 0.3f + random.number(0.2f);
      if (which & 8) a.alibi = 3;
      if (which & 16) {
        const auto of = [&](int extent) -> std::int64_t { return random.below(2) ? 1 : extent; };
        a.bias = some_bias(random, {of(a.batch), of(a.heads), of(a.seq_q), a.seq_k}, a.dtype, 3);
      }
      if (which & 32) {
        Tensor sinks = *some_sinks(random, heads, -1);
        if (random.below(2)) sinks.values[random.below(heads)] = -infinity;
        a.sinks = std::make_shared<const Tensor>(sinks);
      }
      if (which & 64) {
        for (int b = 0; b < a.batch; ++b) a.lengths.push_back(random.below(a.seq_k + 1));
      }
      a = problem::resolve(a);
      const AttentionInputs in = problem::make_inputs(a, which);
      INFO(problem::to_string(a));
      const reference::Forward expected = plain(a, in), made = forward(a, in);
      check_near(made.o, expected.o, 1e-13);
      check_near(made.lse, expected.lse, 1e-12);
      const AttentionSpec spec = run::spec_of(a);
      const auto fp32 = reference::baseline(spec, reference::all_rows(spec), in.q.values, in.k.values, in.v.values);
      check_near({fp32.begin(), fp32.end()}, expected.o, 2e-6);
    }
  }
}

// ---- counts ----

TEST_CASE("with lengths, pairs, FLOPs and bytes are those of each entry's keys") {
  Attention a = shape(4, 6, 2, 3, 10, 8);
  a.lengths = {0, 1, 4, 10};
  for (const bool causal : {false, true}) {
    for (const int window : {0, 2}) {
      a.causal = causal;
      a.window = window;
      double pairs = 0;
      for (const int length : a.lengths) {
        for (int i = 0; i < a.seq_q; ++i) {
          for (int j = 0; j < length; ++j) {
            const int ahead = length - a.seq_q + i - j;  // of the query's own key
            if ((!causal || ahead >= 0) && (window == 0 || std::abs(ahead) < window)) pairs += a.heads;
          }
        }
      }
      const Attention resolved = problem::resolve(a);
      CHECK(resolved.live_pairs() == pairs);
      CHECK(resolved.flops() == 4 * a.dim * pairs);
    }
  }
  const double rows = 4 * 6 * 3;
  a = problem::resolve(a);
  CHECK(a.keys() == 15);
  CHECK(a.compulsory_bytes() == 4 * (2 * rows * 8 + 2 * 15 * 2 * 8) + 4 * rows);
  CHECK(problem::flash_cost(a, "x").bytes_read == 4 * (rows * 8 + 2 * 15 * 2 * 8));
  CHECK(problem::flash_cost(a, "x").flops == a.flops());
  CHECK(a.entry(2).seq_k == 4);
  CHECK((a.entry(2).batch == 1 && a.entry(2).lengths.empty()));
  CHECK(a.entry(0).dense_pairs() == 0);
  a.lengths.clear();
  CHECK(a.keys() == 40);
}

// ---- what cannot be ----

TEST_CASE("shapes and numbers that cannot be are refused by name") {
  const auto against = [](const std::function<void(Attention&)>& change) {
    Attention a = shape(2, 4, 2, 3, 5, 8);
    change(a);
    try {
      problem::resolve(a);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const Extents& extents :
       {Extents{2, 4, 3, 5}, Extents{1, 4, 3, 5}, Extents{2, 1, 3, 5}, Extents{2, 4, 1, 5}, Extents{1, 1, 1, 5}}) {
    CHECK(against([&](Attention& a) { a.bias = std::make_shared<Tensor>(extents); }).empty());
  }
  for (const Extents& extents : {Extents{2, 4, 3, 1}, Extents{2, 4, 3, 6}, Extents{2, 2, 3, 5}, Extents{3, 4, 3, 5},
                                 Extents{2, 4, 2, 5}, Extents{5}, Extents{1, 2, 4, 3, 5}, Extents{0, 4, 3, 5}, Extents{}}) {
    CHECK(against([&](Attention& a) { a.bias = std::make_shared<Tensor>(extents); }) ==
          "bias has the shape " + problem::to_string(extents) +
              "; it must have [2, 4, 3, 5], where each but the last may be 1");
  }
  CHECK(against([](Attention& a) { a.sinks = std::make_shared<Tensor>(Extents{4}); }).empty());
  for (const Extents& extents : {Extents{1}, Extents{2}, Extents{5}, Extents{4, 1}, Extents{}}) {
    CHECK(against([&](Attention& a) { a.sinks = std::make_shared<Tensor>(extents); }) ==
          "sinks has the shape " + problem::to_string(extents) + "; heads is 4");
  }
  CHECK(against([](Attention& a) { a.lengths = {0, 5}; }).empty());
  CHECK(against([](Attention& a) { a.lengths = {5}; }) == "lengths holds 1 number; batch is 2");
  CHECK(against([](Attention& a) { a.lengths = {5, 5, 5}; }) == "lengths holds 3 numbers; batch is 2");
  CHECK(against([](Attention& a) { a.lengths = {5, 6}; }) == "lengths holds 6; it must be from 0 to seq-k, 5");
  CHECK(against([](Attention& a) { a.lengths = {-1, 5}; }) == "lengths holds -1; it must be from 0 to seq-k, 5");
  CHECK_THAT(against([](Attention& a) {
               a = shape(1, 1, 1, 5, 5, 8);
               a.cu_seqlens = {0, 2, 5};
               a.lengths = {5};
             }),
             ContainsSubstring("lengths contradict packed sequences"));
  CHECK_THAT(against([](Attention& a) {
               a.sparse = problem::make_pattern("band:1", problem::resolve(a), 64, 64, 1);
               a.lengths = {5, 5};
             }),
             ContainsSubstring("lengths contradict a sparse mask"));
  for (const float bad : {-1.0f, infinity, quiet_nan}) {
    CHECK_THAT(against([&](Attention& a) { a.softcap = bad; }), ContainsSubstring("softcap is "));
    CHECK_THAT(against([&](Attention& a) { a.alibi = bad; }), ContainsSubstring("alibi is "));
  }
  CHECK_THAT(against([](Attention& a) { a.alibi = 1025; }), ContainsSubstring("it must be 0 (none) to 1024"));
  CHECK(against([](Attention& a) { a.softcap = 0x1p127f; }).empty());
}

TEST_CASE("a variant that takes no option refuses each by its name; one that takes it lists it") {
  run::AttentionSupport none, all;
  all.softcap = all.alibi = all.bias = all.sinks = all.lengths = true;
  const auto refused = [&](const std::function<void(Attention&)>& change) {
    Attention a = shape(2, 4, 2, 3, 5, 8);
    change(a);
    a = problem::resolve(a);
    CHECK(a.has_score_options());
    CHECK(!run::refusal(all, a));
    return run::refusal(none, a).value_or("served");
  };
  CHECK_THAT(refused([](Attention& a) { a.softcap = 1; }), ContainsSubstring("does not support a softcap;"));
  CHECK_THAT(refused([](Attention& a) { a.alibi = 8; }), ContainsSubstring("does not support ALiBi;"));
  CHECK_THAT(refused([](Attention& a) {
               a.bias = std::make_shared<Tensor>(Extents{1, 1, 1, 5});
             }),
             ContainsSubstring("does not support a bias;"));
  CHECK_THAT(refused([](Attention& a) { a.sinks = std::make_shared<Tensor>(Extents{4}); }),
             ContainsSubstring("does not support sinks;"));
  CHECK_THAT(refused([](Attention& a) {
               a.lengths = {5, 5};
             }),
             ContainsSubstring("does not support lengths of a padded cache;"));
  CHECK_THAT(to_string(all), ContainsSubstring("; softcap; ALiBi; bias; sinks; lengths of a padded cache; grouped heads"));
  CHECK(!shape(2, 4, 2, 3, 5, 8).has_score_options());
}

TEST_CASE("the reference has no gradients of options, and says so; a layer has none of them") {
  Attention a = shape(1, 1, 1, 2, 2, 4);
  a.softcap = 3;
  a = problem::resolve(a);
  const AttentionSpec spec = run::spec_of(a);
  const AttentionInputs in = problem::make_inputs(a, 1);
  const std::span<const float> q = in.q.values;
  CHECK_THROWS_WITH(reference::backward(spec, q, in.k.values, in.v.values, q),
                    ContainsSubstring("of options of scores there are no gradients"));
  CHECK_THROWS_WITH(run::LayerTruth(a, run::LayerInputs{}), ContainsSubstring("a layer has equal heads"));
}

// ---- the judge ----

namespace {

enum class Fault {
  none,
  another_heads_slope,
  one_series_of_slopes,
  distance_with_sign,
  no_cap,
  cap_before_scale,
  cap_after_bias,
  cap_after_alibi,
  sink_per_split,
  sink_out_of_lse,
  sink_out_of_sum,
  sink_with_value,
  another_heads_sink,
  another_batchs_bias,
  another_heads_bias,
  next_querys_bias,
  next_keys_bias,
  hidden_as_0,
  one_key_less,
  one_key_more,
  all_keys,
  aligned_at_seq_k,
  empty_without_sink,
  coarse_tanh,
  coarse_bias,
};

// What honest kernels do differently.
struct Choices {
  bool reversed = false;    // each product is summed from its end
  bool base_2 = true;       // exp2, of scores times log2 e
  int splits = 3;           // of a row's keys, which are merged at the end
  int tile = 16;            // keys at a time
  bool sink_first = false;  // the first split begins with the sink, so that P is relative to it, too
};

// Flash attention, a row at a time: each split has a running maximum, and P, rounded to the dtype, is not yet divided.
class Kernel {
 public:
  Kernel(const Attention& a, const AttentionInputs& in, const Choices& choices, Fault fault = Fault::none)
      : a_(a), in_(in), choices_(choices), fault_(fault), unit_(choices.base_2 ? std::log2(std::exp(1.0f)) : 1.0f) {}

  struct Result {
    Tensor o, lse;
  };
  Result run() const {
    Result result{Tensor(in_.q.shape), Tensor({a_.batch, a_.heads, a_.seq_q})};
    for (int b = 0; b < a_.batch; ++b) {
      for (int h = 0; h < a_.heads; ++h) {
        for (int i = 0; i < a_.seq_q; ++i) {
          const std::int64_t row = (std::int64_t{b} * a_.heads + h) * a_.seq_q + i;
          run_row(b, h, i, &in_.q.values[row * a_.dim], &result.o.values[row * a_.dim], result.lse.values[row]);
        }
      }
    }
    return result;
  }

 private:
  bool has(Fault fault) const { return fault_ == fault; }

  // m, l and O.
  struct State {
    float m = -infinity, l = 0;
    std::vector<float> o;
  };
  float exponential(float x) const { return choices_.base_2 ? std::exp2(x) : std::exp(x); }
  float factor(float from, float to) const { return exponential(from - (to == -infinity ? 0 : to)); }

  void rescale(State& state, float m) const {
    const float by = factor(state.m, m);
    state.m = m;
    state.l *= by;
    for (float& x : state.o) x *= by;
  }
  void merge(State& into, State part) const {
    const float m = std::max(into.m, part.m);
    rescale(into, m);
    rescale(part, m);
    into.l += part.l;
    for (int d = 0; d < a_.dim; ++d) into.o[d] += part.o[d];
  }
  void add_sink(State& state, int h) const {
    if (a_.sinks)
      merge(state, {a_.sinks->values[has(Fault::another_heads_sink) ? (h + 1) % a_.heads : h] * unit_, 1, nothing()});
  }
  std::vector<float> nothing() const { return std::vector<float>(a_.dim, 0.0f); }

  float slope(int h) const {
    if (has(Fault::another_heads_slope)) h = (h + 1) % a_.heads;
    if (has(Fault::one_series_of_slopes))
      return std::exp2(-a_.alibi * static_cast<float>(h + 1) / static_cast<float>(a_.heads));
    return device::alibi_slopes(a_.alibi, a_.heads).of(h);
  }

  float capped(float s) const {
    if (a_.softcap == 0) return s;
    const float t = std::tanh(s / a_.softcap);
    return a_.softcap * (has(Fault::coarse_tanh) ? problem::round_to(Dtype::fp16, t) : t);
  }

  float bias(int b, int h, int i, int j) const {
    if (has(Fault::another_batchs_bias)) ++b;
    if (has(Fault::another_heads_bias)) ++h;
    if (has(Fault::next_querys_bias)) ++i;
    if (has(Fault::next_keys_bias)) ++j;
    const auto value = static_cast<float>(bias_of(a_, b % a_.batch, h % a_.heads, i % a_.seq_q, j % a_.seq_k));
    if (has(Fault::coarse_bias)) return problem::round_to(Dtype::fp16, value);
    return has(Fault::hidden_as_0) && value == -infinity ? 0 : value;
  }

  float score(float product, int b, int h, int i, int j, int own) const {
    float s = product * *a_.scale;
    const float added = bias(b, h, i, j);
    if (added == -infinity) return added;
    float away = 0;
    if (a_.alibi > 0) away = slope(h) * static_cast<float>(has(Fault::distance_with_sign) ? own - j : std::abs(own - j));
    if (has(Fault::cap_before_scale)) return (capped(product) * *a_.scale + added - away) * unit_;
    if (has(Fault::cap_after_bias)) return (capped(s + added) - away) * unit_;
    if (has(Fault::cap_after_alibi)) return capped(s + added - away) * unit_;
    if (!has(Fault::no_cap)) s = capped(s);
    return (s + added - away) * unit_;
  }

  float product(const float* q, const float* k) const {
    float sum = 0;
    for (int d = 0; d < a_.dim; ++d) {
      const int at = choices_.reversed ? a_.dim - 1 - d : d;
      sum += q[at] * k[at];
    }
    return sum;
  }

  // Takes the keys from begin on into a state.
  void attend(State& state, int b, int h, int i, const float* q, int begin, int end, int own) const {
    const std::int64_t first = (std::int64_t{b} * a_.kv_heads + h / (a_.heads / a_.kv_heads)) * a_.seq_k;
    for (int tile = begin; tile < end; tile += choices_.tile) {
      const int tile_end = std::min(tile + choices_.tile, end);
      std::vector<float> s;
      float m = state.m;
      for (int j = tile; j < tile_end; ++j) {
        s.push_back(score(product(q, &in_.k.values[(first + j) * a_.dim]), b, h, i, j, own));
        m = std::fmax(m, s.back());
      }
      rescale(state, m);
      for (int j = tile; j < tile_end; ++j) {
        const bool hidden = bias(b, h, i, j) == -infinity;
        const float p = factor(s[j - tile], m), rounded = problem::round_to(a_.dtype, p);
        state.l += p;
        for (int d = 0; d < a_.dim; ++d) state.o[d] += hidden ? 0 : rounded * in_.v.values[(first + j) * a_.dim + d];
      }
    }
  }

  void run_row(int b, int h, int i, const float* q, float* o, float& lse) const {
    int length = a_.lengths.empty() ? a_.seq_k : a_.lengths[b];
    if (has(Fault::one_key_less)) length = std::max(length - 1, 0);
    if (has(Fault::one_key_more)) length = std::min(length + 1, a_.seq_k);
    const int own = (has(Fault::aligned_at_seq_k) ? a_.seq_k : length) - a_.seq_q + i;
    if (has(Fault::all_keys)) length = a_.seq_k;
    int begin = 0, end = length;
    if (a_.causal) end = std::min(end, own + 1);
    if (a_.window > 0) {
      begin = std::max(begin, own - a_.window + 1);
      end = std::min(end, own + a_.window);
    }
    State all{.o = nothing()};
    const int count = std::max(end - begin, 0);
    for (int part = 0; part < choices_.splits; ++part) {
      State state{.o = nothing()};
      if (has(Fault::sink_per_split) || (choices_.sink_first && part == 0)) add_sink(state, h);
      attend(state, b, h, i, q, begin + count * part / choices_.splits, begin + count * (part + 1) / choices_.splits, own);
      merge(all, std::move(state));
    }
    const State without = all;
    const bool skipped = has(Fault::sink_per_split) || (has(Fault::empty_without_sink) && count == 0);
    if (!skipped && !choices_.sink_first) add_sink(all, h);
    if (has(Fault::sink_with_value)) {
      const std::int64_t first = (std::int64_t{b} * a_.kv_heads + h / (a_.heads / a_.kv_heads)) * a_.seq_k;
      for (int d = 0; d < a_.dim; ++d)
        all.o[d] += factor(a_.sinks->values[h] * unit_, all.m) * in_.v.values[first * a_.dim + d];
    }
    const State& of_lse = has(Fault::sink_out_of_lse) ? without : all;
    const State& of_o = has(Fault::sink_out_of_sum) ? without : all;
    for (int d = 0; d < a_.dim; ++d) o[d] = problem::round_to(a_.dtype, of_o.l == 0 ? 0 : of_o.o[d] / of_o.l);
    lse = of_lse.l == 0 ? -infinity : of_lse.m / unit_ + std::log(of_lse.l);
  }

  const Attention& a_;
  const AttentionInputs& in_;
  Choices choices_;
  Fault fault_;
  float unit_;
};

const std::vector<Choices> honest = {{},
                                     {.reversed = true, .splits = 1, .tile = 64},
                                     {.base_2 = false, .splits = 8, .tile = 4},
                                     {.reversed = true, .base_2 = false, .splits = 2, .tile = 1},
                                     {.splits = 1, .sink_first = true}};

// Why a result is rejected; nothing if it is not.
std::string rejection(const run::AttentionTruth& truth, const Kernel::Result& result) {
  for (const check::TensorVerdict& verdict : truth.judge(result.o, result.lse)) {
    if (!verdict.pass) return verdict.reason.empty() ? "without a reason" : verdict.reason;
  }
  return "";
}

// Problems without options, to which they are added: decoding, a few new tokens, windows; and queries that see no key.
std::vector<Attention> bare_problems(Dtype dtype) {
  Attention decoding = shape(3, 12, 4, 1, 150, 64), few = shape(2, 14, 7, 5, 90, 32), window = shape(2, 6, 6, 40, 70, 40),
            short_cache = shape(2, 3, 1, 30, 20, 16);
  few.causal = short_cache.causal = true;
  window.window = 12;
  std::vector<Attention> all = {decoding, few, window, short_cache};
  for (Attention& a : all) a.dtype = dtype;
  return all;
}

// Options by bits: softcap, ALiBi, bias, sinks, lengths.
constexpr unsigned all_options = 31;
Attention with_options(Attention a, unsigned which) {
  Random random(which);
  if (which & 1) a.softcap = 2;
  if (which & 2) a.alibi = 8;
  if (which & 4) a.bias = some_bias(random, {a.batch, a.heads, a.seq_q, a.seq_k}, a.dtype, 10);
  if (which & 8) a.sinks = some_sinks(random, a.heads, 1);
  if (which & 16) {
    a.lengths = {a.seq_k, a.seq_k * 3 / 5, a.seq_k * 3 / 4};
    a.lengths.resize(a.batch);
    if (a.seq_q > a.seq_k) a.lengths.back() = 0;
  }
  return problem::resolve(a);
}

bool anywhere(const Attention&) { return true; }
bool in_fp32(const Attention& a) { return a.dtype == Dtype::fp32; }

struct FaultCase {
  Fault fault;
  const char* text;
  std::function<bool(const Attention&)> shows = anywhere;  // at which problems
};
const std::vector<FaultCase> fault_cases = {
    {Fault::another_heads_slope, "the slope of another head"},
    {Fault::one_series_of_slopes, "slopes without a second series"},  // no problem has as many heads as a power of two
    {Fault::distance_with_sign, "a distance with its sign", [](const Attention& a) { return !a.causal && a.seq_q > 1; }},
    {Fault::no_cap, "no cap"},
    {Fault::cap_before_scale, "the cap before the scale"},
    {Fault::cap_after_bias, "the cap after the bias"},
    {Fault::cap_after_alibi, "the cap after ALiBi"},
    {Fault::sink_per_split, "a sink in each split"},
    {Fault::sink_out_of_lse, "a sink left out of LSE"},
    {Fault::sink_out_of_sum, "a sink left out of O"},
    {Fault::sink_with_value, "a sink with a value"},
    {Fault::another_heads_sink, "the sink of another head"},
    {Fault::another_batchs_bias, "the bias of another batch entry"},
    {Fault::another_heads_bias, "the bias of another head"},
    {Fault::next_querys_bias, "the bias of the next query", [](const Attention& a) { return a.seq_q > 1; }},
    {Fault::next_keys_bias, "the bias of the next key"},
    {Fault::hidden_as_0, "−∞ taken for 0"},
    {Fault::one_key_less, "one key less"},
    {Fault::one_key_more, "one key more"},
    {Fault::all_keys, "the keys behind the length, too", [](const Attention& a) { return !a.causal && a.window == 0; }},
    {Fault::aligned_at_seq_k, "the last query at the end of seq_k", [](const Attention& a) { return a.seq_q <= a.seq_k; }},
    {Fault::empty_without_sink, "rows without keys as if there were no sink",
     [](const Attention& a) { return a.seq_q > a.seq_k; }},
    {Fault::coarse_tanh, "a tanh of 11 bits", in_fp32},
    {Fault::coarse_bias, "a bias of 11 bits", in_fp32},
};

}  // namespace

TEST_CASE("honest kernels are accepted with every combination of options, in every type") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    for (const Attention& bare : bare_problems(dtype)) {
      for (unsigned which = 1; which <= all_options; ++which) {
        const Attention a = with_options(bare, which);
        const AttentionInputs in = problem::make_inputs(a, which);
        const run::AttentionTruth truth(a, in);
        INFO(problem::to_string(a));
        CHECK(rejection(truth, Kernel(a, in, honest[which % honest.size()]).run()) == "");
      }
    }
  }
}

TEST_CASE("broken kernels are rejected wherever the fault shows, in every type; honest ones are accepted there") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    for (const Attention& bare : bare_problems(dtype)) {
      const Attention a = with_options(bare, all_options);
      const AttentionInputs in = problem::make_inputs(a, 3);
      const run::AttentionTruth truth(a, in);
      INFO(problem::to_string(a));
      for (const Choices& choices : honest) CHECK(rejection(truth, Kernel(a, in, choices).run()) == "");
      for (const FaultCase& fault : fault_cases) {
        if (!fault.shows(a)) continue;
        INFO(fault.text);
        CHECK(rejection(truth, Kernel(a, in, {}, fault.fault).run()) != "");
      }
    }
  }
}

TEST_CASE("honest kernels are accepted where options are large or small: what fp32 rounds there is allowed") {
  struct Case {
    const char* text;
    std::function<void(Attention&)> change;
  };
  const auto biased = [](float size) {
    return [size](Attention& a) {
      Random random(5);
      Tensor bias({1, a.heads, 1, a.seq_k});
      for (float& x : bias.values) x = problem::round_to(a.dtype, random.number(size));
      a.bias = std::make_shared<const Tensor>(bias);
    };
  };
  const std::vector<Case> cases = {
      {"softcap 2^127", [](Attention& a) { a.softcap = 0x1p127f; }},
      {"softcap 1e30", [](Attention& a) { a.softcap = 1e30f; }},
      {"softcap 50, scores of hundreds", [](Attention& a) { a.softcap = 50, a.scale = 30; }},
      {"softcap 1000, scores of thousands", [](Attention& a) { a.softcap = 1000, a.scale = 300; }},
      {"softcap 1e-3", [](Attention& a) { a.softcap = 1e-3f; }},
      {"softcap 1e-45", [](Attention& a) { a.softcap = 1e-45f; }},
      {"ALiBi, slopes near 1", [](Attention& a) { a.alibi = 0.1f; }},
      {"ALiBi, slopes near 0", [](Attention& a) { a.alibi = 1024; }},
      {"ALiBi, rows of one query at the end", [](Attention& a) { a.alibi = 0.1f, a.causal = true; }},
      {"bias of thousands", biased(5000)},
      {"bias of 1e4", biased(3e4f)},
      {"bias of thousands, and ALiBi against it",
       [&](Attention& a) {
         a.alibi = 0.1f;
         Tensor bias({1, 1, 1, a.seq_k});
         for (int j = 0; j < a.seq_k; ++j) bias.values[j] = problem::round_to(a.dtype, static_cast<float>(a.seq_k - j));
         a.bias = std::make_shared<const Tensor>(bias);
       }},
      {"sinks of thousands", [](Attention& a) { a.sinks = std::make_shared<const Tensor>(Tensor({a.heads}, 5000.0f)); }},
      {"sinks of -thousands", [](Attention& a) { a.sinks = std::make_shared<const Tensor>(Tensor({a.heads}, -5000.0f)); }},
      {"sinks above all scores",
       [](Attention& a) {
         a.sinks = tensor({5}, {8, 11, 13, 15, 17});
       }},
      {"sinks beside scores of hundreds",
       [](Attention& a) { a.sinks = std::make_shared<const Tensor>(Tensor({a.heads}, 700.0f)), a.scale = 30; }},
      {"no sinks but −∞", [](Attention& a) { a.sinks = std::make_shared<const Tensor>(Tensor({a.heads}, -infinity)); }},
  };
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    for (const Case& c : cases) {
      Attention a = shape(1, 5, 1, 3, 700, 64);
      a.dtype = dtype;
      c.change(a);
      a = problem::resolve(a);
      for (const std::uint64_t seed : {1, 2}) {
        const AttentionInputs in = problem::make_inputs(a, seed);
        const run::AttentionTruth truth(a, in);
        INFO(c.text << ", " << problem::to_string(a));
        for (const Choices& choices : honest) CHECK(rejection(truth, Kernel(a, in, choices).run()) == "");
      }
    }
  }
}

namespace {

// A problem of two queries, whose first has a bias of its own.
struct Biased {
  Attention a = shape(1, 1, 1, 2, 6, 8);
  AttentionInputs in;
  Kernel::Result honest_result;

  explicit Biased(std::vector<float> of_first) {
    of_first.resize(12, 0.0f);
    a.bias = tensor({1, 1, 2, 6}, of_first);
    a = problem::resolve(a);
    in = problem::make_inputs(a, 1);
    honest_result = Kernel(a, in, {}).run();
  }
  // With another first row.
  std::string rejected(float o, float lse) const {
    Kernel::Result result = honest_result;
    std::fill_n(result.o.values.begin(), a.dim, o);
    result.lse.values[0] = lse;
    return rejection(run::AttentionTruth(a, in), result);
  }
  std::string rejected() const { return rejection(run::AttentionTruth(a, in), honest_result); }
};

}  // namespace

TEST_CASE("a bias of −FLT_MAX on some keys is compared; on all of a row's keys, the row must be written and no more") {
  const Biased some({-largest, 0, -largest, 0, 0, -largest});
  CHECK(some.rejected() == "");
  CHECK(some.rejected(0, -infinity) != "");
  CHECK(some.rejected(0.1f, some.honest_result.lse.values[0]) != "");

  const Biased all(std::vector<float>(6, -largest));
  CHECK(all.rejected() == "");
  CHECK(all.rejected(0, -infinity) == "");
  CHECK(all.rejected(0.1f, -largest) == "");
  CHECK(all.rejected(check::poison_value(Dtype::fp32), -largest) != "");
  CHECK(all.rejected(0, check::poison_value(Dtype::fp32)) != "");

  const Biased large({largest, 0, 0, 0, 0, 0});
  CHECK(large.rejected(quiet_nan, quiet_nan) == "");
  CHECK(large.rejected(1, largest) == "");
  CHECK(large.rejected(check::poison_value(Dtype::fp32), 0) != "");
}

TEST_CASE("where a bias is +∞ or NaN, O and LSE must be NaN; where all are −∞, exactly 0 and −∞") {
  for (const float odd : {infinity, quiet_nan}) {
    const Biased one({0, odd, 0, 0, 0, 0});
    CHECK(one.rejected(quiet_nan, quiet_nan) == "");
    CHECK(one.rejected(0.1f, quiet_nan) != "");
    CHECK(one.rejected(quiet_nan, 0) != "");
    CHECK(one.rejected(quiet_nan, infinity) != "");
  }
  const Biased hidden(std::vector<float>(6, -infinity));
  CHECK(hidden.rejected() == "");
  CHECK(hidden.rejected(0, -infinity) == "");
  CHECK(hidden.rejected(1e-9f, -infinity) != "");
  CHECK(hidden.rejected(0, 0) != "");
  CHECK(hidden.rejected(quiet_nan, quiet_nan) != "");
}

TEST_CASE("rows without keys are held to their sink: to it, to NaN, or to O = 0 and LSE = −∞") {
  Attention a = shape(1, 6, 1, 2, 1, 8);
  a.causal = true;  // the first query sees no key
  a.sinks = tensor({6}, {2, -infinity, infinity, quiet_nan, largest, -largest});
  a = problem::resolve(a);
  const AttentionInputs in = problem::make_inputs(a, 1);
  const run::AttentionTruth truth(a, in);
  const Kernel::Result right = Kernel(a, in, {}).run();
  CHECK(rejection(truth, right) == "");
  const auto rejected = [&](int head, float o, float lse) {
    Kernel::Result result = right;
    std::fill_n(result.o.values.begin() + 2 * head * a.dim, a.dim, o);
    result.lse.values[2 * head] = lse;
    return !rejection(truth, result).empty();
  };
  CHECK_FALSE(rejected(0, 0, 2));
  CHECK(rejected(0, 0, 2.1f));
  CHECK(rejected(0, 1e-3f, 2));
  CHECK(rejected(0, 0, -infinity));
  CHECK_FALSE(rejected(1, 0, -infinity));
  CHECK(rejected(1, 1e-9f, -infinity));
  CHECK(rejected(1, 0, 0));
  for (const int head : {2, 3}) {
    CHECK_FALSE(rejected(head, quiet_nan, quiet_nan));
    CHECK(rejected(head, 0, quiet_nan));
    CHECK(rejected(head, quiet_nan, infinity));
  }
  for (const int head : {4, 5}) {
    CHECK_FALSE(rejected(head, 0, head == 4 ? largest : -largest));
    CHECK_FALSE(rejected(head, 0, head == 4 ? infinity : -infinity));
  }
}

TEST_CASE(
    "rows whose scores may overflow are found without a look at each, where nothing can; a bias of zeros changes nothing") {
  int found = 0, none = 0;
  for (const float scale : {0x1p-100f, 1.0f, 0x1p124f, 0x1p126f, 0x1p127f}) {
    for (const unsigned which : {1u, 2u, 8u, 16u, 27u}) {
      for (const float sink : {3.0f, 0x1.62e42ep127f, 0x1.62e430p127f, -largest, infinity}) {  // FLT_MAX / log2 e between two
        Attention a = with_options(shape(2, 3, 1, 4, 5, 8), which);
        a.scale = scale;
        if (a.sinks) a.sinks = tensor({3}, {0, sink, -1});
        AttentionSpec spec = run::spec_of(problem::resolve(a));
        const auto rows = reference::all_rows(spec);
        const AttentionInputs in = problem::make_inputs(problem::resolve(a), 1);
        const auto flags = reference::scores_may_overflow(spec, rows, in.q.values, in.k.values);
        spec.bias = [](int, int, int, int) { return 0.0; };
        INFO(problem::to_string(a) << ", scale " << scale << ", sink " << sink);
        CHECK(flags == reference::scores_may_overflow(spec, rows, in.q.values, in.k.values));
        (std::count(flags.begin(), flags.end(), 1) > 0 ? found : none) += 1;
      }
    }
  }
  CHECK((found > 20 && none > 20));
}

TEST_CASE("where only some rows are compared, all are held to what needs no truth") {
  Attention a = shape(2, 1, 1, 3000, 3000, 256);
  a.causal = true;
  a.alibi = 8;
  a.softcap = 20;
  a.lengths = {3000, 1700};  // of the second entry, 1300 queries see no key
  a.sinks = tensor({1}, {-infinity});
  a = problem::resolve(a);
  REQUIRE(a.flops() > 2e9);
  const AttentionInputs in = problem::make_inputs(a, 1);
  const run::AttentionTruth truth(a, in);
  const std::int64_t empty = 3000 + 777, seen = 1777;  // rows that are hardly in the sample
  const auto reason = [&](std::int64_t row, float o, float lse) {
    Kernel::Result result{Tensor(in.q.shape), Tensor({2, 1, 3000})};
    std::fill_n(result.lse.values.begin() + 3000, 1300, -infinity);
    result.o.values[row * a.dim] = o;
    result.lse.values[row] = lse;
    const auto verdicts = truth.judge(result.o, result.lse);
    return verdicts[0].reason + " | " + verdicts[1].reason;
  };
  CHECK_THAT(reason(empty, 1, -infinity), ContainsSubstring("batch 1, head 0, query 777"));
  CHECK_THAT(reason(empty, 0, 0), ContainsSubstring("| row (batch 1, head 0, query 777)"));
  CHECK_THAT(reason(seen, quiet_nan, 0), ContainsSubstring("batch 0, head 0, query 1777"));
  CHECK_THAT(reason(seen, 0, quiet_nan), ContainsSubstring("batch 0, head 0, query 1777"));

  // The first query of each entry that sees a key is always compared.
  const auto rows = reference::sample_rows(run::spec_of(a));
  for (const reference::Row& row : {reference::Row{0, 0, 0}, {1, 0, 1299}, {1, 0, 1300}, {1, 0, 1301}}) {
    CHECK(std::find(rows.begin(), rows.end(), row) != rows.end());
  }
}
