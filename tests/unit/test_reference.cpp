// The reference is tested against numbers worked by hand, against attention written out as a double loop, and against the
// output of a real model; its gradients in test_backward_reference.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "common/problem/dtype.h"
#include "common/problem/npy.h"
#include "common/reference/attention.h"
#include "common/reference/gemm.h"
#include "common/reference/softmax.h"
#include "tests/catch.h"

using reference::AttentionSpec;
using reference::Row;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

template <class T = float>
std::vector<T> normal_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> numbers(count);
  for (T& x : numbers) x = static_cast<T>(normal(random));
  return numbers;
}

template <class T>
struct Tensors {
  std::vector<T> q, k, v;
};

template <class T = float>
Tensors<T> random_tensors(const AttentionSpec& s, unsigned seed) {
  const auto q_size = static_cast<std::size_t>(s.batch) * s.heads * s.seq_q * s.dim;
  const auto kv_size = static_cast<std::size_t>(s.batch) * s.kv_heads * s.seq_k * s.dim;
  return {normal_numbers<T>(q_size, seed), normal_numbers<T>(kv_size, seed + 1), normal_numbers<T>(kv_size, seed + 2)};
}

template <class T>
reference::Forward forward(const AttentionSpec& s, const Tensors<T>& t) {
  return reference::forward(s, reference::all_rows(s), t.q, t.k, t.v);
}

// One batch entry, one head, one dimension, one query of 1: the scores are the keys themselves.
reference::Forward attend_scores(const std::vector<float>& scores, const std::vector<float>& values) {
  const AttentionSpec spec{.seq_k = static_cast<int>(scores.size())};
  return forward(spec, Tensors<float>{{1}, scores, values});
}

double max_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference = std::max(difference, a[i] == b[i] ? 0 : std::abs(a[i] - b[i]));
  return difference;
}

// The definition, pair by pair: which keys a query sees, and nothing shared with the reference.
bool sees(const AttentionSpec& s, int i, int j) {
  const int own = i + s.seq_k - s.seq_q;
  return (!s.causal || j <= own) && (s.window == 0 || std::abs(own - j) < s.window);
}

reference::Forward attend_by_definition(const AttentionSpec& s, const Tensors<float>& t) {
  reference::Forward result;
  for (const auto& [batch, head, query] : reference::all_rows(s)) {
    const float* q = &t.q[((static_cast<std::size_t>(batch) * s.heads + head) * s.seq_q + query) * s.dim];
    const int kv_head = head / (s.heads / s.kv_heads);
    const std::size_t kv = (static_cast<std::size_t>(batch) * s.kv_heads + kv_head) * s.seq_k * s.dim;
    double sum = 0;
    std::vector<double> o(s.dim, 0.0);
    for (int j = 0; j < s.seq_k; ++j) {
      if (!sees(s, query, j)) continue;
      double score = 0;
      for (int d = 0; d < s.dim; ++d) score += static_cast<double>(q[d]) * t.k[kv + j * s.dim + d];
      const double p = std::exp(s.scale * score);
      sum += p;
      for (int d = 0; d < s.dim; ++d) o[d] += p * t.v[kv + j * s.dim + d];
    }
    for (const double x : o) result.o.push_back(sum == 0 ? 0 : x / sum);
    result.lse.push_back(std::log(sum));
  }
  return result;
}

const std::vector<AttentionSpec> specs = {
    {1, 1, 1, 1, 1, 1, false, 0, 1.0},  {1, 1, 1, 5, 5, 3, true, 0, 0.5},    {2, 4, 2, 7, 12, 8, true, 0, 0.35},
    {1, 6, 2, 11, 6, 9, true, 0, 0.3},  {3, 2, 1, 9, 9, 5, false, 3, 0.4},   {1, 2, 2, 20, 16, 4, true, 5, 0.5},
    {2, 3, 3, 13, 40, 7, false, 1, 1.}, {1, 14, 2, 3, 21, 16, true, 0, .25}, {1, 1, 1, 6, 1, 2, true, 0, 1.0},
};

}  // namespace

// ---- forward ----

TEST_CASE("softmax of 1, 2, 3: the sum of exponentials is 1.5032, not 3.27") {
  const double sum = std::exp(-2.0) + std::exp(-1.0) + std::exp(0.0);
  CHECK(sum == Approx(1.5032).epsilon(1e-4));
  const reference::Forward result = attend_scores({1, 2, 3}, {1, 10, 100});
  CHECK(result.lse[0] == Approx(3 + std::log(sum)).epsilon(1e-14));
  CHECK(result.lse[0] == Approx(3.40760596).epsilon(1e-8));
  CHECK(result.o[0] == Approx(0.09003057 + 2.4472847 + 66.524096).epsilon(1e-7));
}

TEST_CASE("a single key is copied, whatever its score") {
  for (const float score : {0.0f, -1000.0f, 1000.0f}) {
    const reference::Forward result = attend_scores({score}, {0.37f});
    CHECK(result.o[0] == 0.37f);
    CHECK(result.lse[0] == score);
  }
}

TEST_CASE("equal scores give the mean of V, and LSE the logarithm of their number") {
  const reference::Forward result = attend_scores({5, 5, 5, 5}, {1, 2, 3, 10});
  CHECK(result.o[0] == Approx(4).epsilon(1e-15));
  CHECK(result.lse[0] == Approx(5 + std::log(4.0)).epsilon(1e-15));
}

TEST_CASE("scores far beyond the range of exp are no trouble") {
  const reference::Forward result = attend_scores({-5000, 2000, 1999}, {7, 1, 3});
  CHECK(result.o[0] == Approx((1 + 3 * std::exp(-1.0)) / (1 + std::exp(-1.0))).epsilon(1e-14));
  CHECK(result.lse[0] == Approx(2000 + std::log1p(std::exp(-1.0))).epsilon(1e-14));
}

TEST_CASE("the scale multiplies the scores, in O and in LSE") {
  const Tensors<float> t{{2}, {1, 3}, {0, 1}};
  const reference::Forward result = forward(AttentionSpec{.seq_k = 2, .scale = 0.25}, t);  // scores 0.5 and 1.5
  CHECK(result.o[0] == Approx(1 / (1 + std::exp(-1.0))).epsilon(1e-14));
  CHECK(result.lse[0] == Approx(std::log(std::exp(0.5) + std::exp(1.5))).epsilon(1e-14));
}

TEST_CASE("causal is aligned bottom-right; rows without keys give 0 and minus infinity") {
  const auto range = [](const AttentionSpec& s, int query) {
    const reference::KeyRange keys = reference::visible_keys(s, query);
    return std::pair(keys.begin, keys.end);
  };
  const AttentionSpec prompt{.seq_q = 2, .seq_k = 5, .causal = true};
  CHECK(range(prompt, 0) == std::pair(0, 4));
  CHECK(range(prompt, 1) == std::pair(0, 5));
  const AttentionSpec square{.seq_q = 4, .seq_k = 4, .causal = true};
  CHECK(range(square, 0) == std::pair(0, 1));
  const AttentionSpec tall{.seq_q = 5, .seq_k = 2, .causal = true};
  CHECK(reference::visible_keys(tall, 2).empty());
  CHECK(range(tall, 3) == std::pair(0, 1));

  const reference::Forward result = forward(tall, random_tensors(tall, 1));
  for (int query = 0; query < 3; ++query) {
    CHECK(result.o[query] == 0);
    CHECK(result.lse[query] == -infinity);
  }
  CHECK(std::isfinite(result.lse[3]));
}

TEST_CASE("a window of N holds the N - 1 neighbours on either side, up to the largest int") {
  AttentionSpec s{.seq_q = 9, .seq_k = 9, .window = 3};
  CHECK(reference::visible_keys(s, 4).begin == 2);
  CHECK(reference::visible_keys(s, 4).end == 7);
  s.causal = true;
  CHECK(reference::visible_keys(s, 4).end == 5);
  s.window = 1;
  CHECK(reference::visible_keys(s, 4).count() == 1);
  s.window = std::numeric_limits<int>::max();
  CHECK(reference::visible_keys(s, 4).count() == 5);
  const AttentionSpec beside{.seq_q = 9, .seq_k = 4, .window = 2};  // the first queries lie before every key
  CHECK(reference::visible_keys(beside, 3).empty());
  CHECK(reference::visible_keys(beside, 4).count() == 1);
}

TEST_CASE("query heads share key/value heads in consecutive groups") {
  const AttentionSpec s{.heads = 6, .kv_heads = 2};
  const reference::Forward result = forward(s, Tensors<float>{std::vector<float>(6, 1.0f), {1, 2}, {10, 20}});
  CHECK(result.o == std::vector<double>{10, 10, 10, 20, 20, 20});
  CHECK(result.lse == std::vector<double>{1, 1, 1, 2, 2, 2});
}

TEST_CASE("forward agrees with the definition, pair by pair") {
  unsigned seed = 1;
  for (const AttentionSpec& s : specs) {
    const auto tensors = random_tensors(s, seed += 10);
    const reference::Forward result = forward(s, tensors), expected = attend_by_definition(s, tensors);
    CHECK(max_difference(result.o, expected.o) < 1e-13);
    CHECK(max_difference(result.lse, expected.lse) < 1e-13);
  }
}

TEST_CASE("chosen rows are the rows of the whole, and double inputs give what float inputs do") {
  const AttentionSpec s = specs[2];
  const auto t = random_tensors(s, 5);
  const reference::Forward whole = forward(s, t);
  const std::vector<Row> rows = {{1, 3, 6}, {0, 2, 0}};
  const reference::Forward some = reference::forward(s, rows, t.q, t.k, t.v);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::int64_t at = reference::flat_index(s, rows[r]);
    CHECK(reference::all_rows(s)[at] == rows[r]);
    CHECK(some.lse[r] == whole.lse[at]);
    CHECK(std::equal(&some.o[r * s.dim], &some.o[r * s.dim] + s.dim, &whole.o[at * s.dim]));
  }
  const auto widened = [](const std::vector<float>& x) { return std::vector<double>(x.begin(), x.end()); };
  CHECK(forward(s, Tensors<double>{widened(t.q), widened(t.k), widened(t.v)}).o == whole.o);
  CHECK(reference::to_string(rows[0]) == "batch 1, head 3, query 6");
}

TEST_CASE("NaN and infinity touch the rows that see them, and no others") {
  const AttentionSpec s{1, 2, 1, 10, 12, 4, true, 6, 0.5};
  const auto clean = random_tensors(s, 7);
  const reference::Forward expected = forward(s, clean);
  const auto rows = reference::all_rows(s);
  const auto check_poisoned = [&](const Tensors<float>& t, const std::function<bool(const Row&)>& touched) {
    const auto flags = reference::sees_non_finite(s, rows, t.q, t.k, t.v);
    const reference::Forward result = forward(s, t);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      INFO(reference::to_string(rows[r]));
      CHECK(static_cast<bool>(flags[r]) == touched(rows[r]));
      const bool same = std::equal(&result.o[r * s.dim], &result.o[r * s.dim] + s.dim, &expected.o[r * s.dim]);
      CHECK(same == !touched(rows[r]));
    }
  };
  for (const float bad : {quiet_nan, std::numeric_limits<float>::infinity()}) {
    auto t = clean;
    t.k[5 * s.dim + 2] = bad;
    check_poisoned(t, [&](const Row& row) { return sees(s, row.query, 5); });
    t = clean;
    t.v[8 * s.dim] = bad;
    check_poisoned(t, [&](const Row& row) { return sees(s, row.query, 8); });
    t = clean;
    t.q[reference::flat_index(s, {0, 1, 4}) * s.dim] = bad;
    check_poisoned(t, [&](const Row& row) { return row == Row{0, 1, 4}; });
  }
}

TEST_CASE("a row without keys sees nothing, not even its own NaN") {
  const AttentionSpec s{.seq_q = 3, .seq_k = 1, .causal = true};
  const Tensors<float> t{{quiet_nan, 1, 1}, {1}, {1}};
  CHECK(reference::sees_non_finite(s, reference::all_rows(s), t.q, t.k, t.v) == std::vector<std::uint8_t>{0, 0, 0});
  CHECK(forward(s, t).o[0] == 0);
}

TEST_CASE("tensors of the wrong size and impossible shapes are refused") {
  const AttentionSpec s = specs[2];
  auto t = random_tensors(s, 1);
  t.k.pop_back();
  CHECK_THROWS_AS(forward(s, t), std::invalid_argument);
  CHECK_THROWS_AS(forward(AttentionSpec{.heads = 3, .kv_heads = 2}, Tensors<float>{{1, 1, 1}, {1, 1}, {1, 1}}),
                  std::invalid_argument);
  CHECK_THROWS_AS(forward(AttentionSpec{.seq_k = 0}, Tensors<float>{{1}, {}, {}}), std::invalid_argument);
}

// ---- rows ----

TEST_CASE("sampled rows: first, last, tile edges and their neighbours, at least 64 of every head") {
  const AttentionSpec s{2, 3, 1, 1000, 900, 8, true, 0, 1.0};
  const std::vector<Row> rows = reference::sample_rows(s);
  CHECK(rows.size() == 6 * 64);
  std::set<std::set<int>> different;
  for (int head = 0; head < 6; ++head) {
    std::set<int> queries;
    for (const Row& row : rows) {
      if (row.batch * 3 + row.head == head) queries.insert(row.query);
    }
    CHECK(queries.size() == 64);
    different.insert(queries);
    for (const int needed : {0,   1,   998, 999, 99,  100, 101, 15,  16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129,  //
                             991, 992, 993, 959, 960, 961, 895, 896, 897}) {
      INFO("query " << needed);
      CHECK(queries.count(needed) == 1);
    }
  }
  CHECK(different.size() == 6);
  CHECK(reference::sample_rows(s) == rows);
  CHECK(reference::sample_rows(s, 64, 2) != rows);
  CHECK(reference::sample_rows(s, 100).size() == 6 * 100);
  CHECK(reference::sample_rows(s, 10).size() == 6 * 64);
}

TEST_CASE("short problems are not sampled") {
  for (const int seq_q : {1, 17, 64}) {
    const AttentionSpec s{1, 2, 1, seq_q, 300, 8, false, 0, 1.0};
    CHECK(reference::sample_rows(s) == reference::all_rows(s));
  }
  CHECK(reference::sample_rows({1, 1, 1, 65, 65, 8, true, 0, 1.0}).size() == 64);
}

// ---- baseline ----

TEST_CASE("the fp32 baseline is the truth but for fp32 rounding") {
  unsigned seed = 3;
  for (const AttentionSpec& s : specs) {
    const auto t = random_tensors(s, seed += 10);
    const auto rows = reference::all_rows(s);
    const auto baseline = reference::baseline(s, rows, t.q, t.k, t.v);
    CHECK(max_difference({baseline.begin(), baseline.end()}, forward(s, t).o) < 2e-6);
  }
}

TEST_CASE("the baseline rounds P, normalised, and O; not the scores") {
  const AttentionSpec s{.seq_k = 3};
  const auto to_quarters = [](float x) { return std::round(4 * x) / 4; };
  // P of the scores 1.1, 2.1, 3.1 is 0.090, 0.245, 0.665: in quarters 0, ¼, ¾.
  const std::vector<float> q = {1}, k = {1.1f, 2.1f, 3.1f};
  CHECK(reference::baseline(s, {{0, 0, 0}}, q, k, std::vector<float>{1, 10, 100}, to_quarters) == std::vector<float>{77.5f});
  CHECK(reference::baseline(s, {{0, 0, 0}}, q, k, std::vector<float>{0, 0.5f, 0}, to_quarters) == std::vector<float>{0.25f});
}

TEST_CASE("the baseline sums scores in fp32, in order: (1e8 + 1) - 1e8 is 0") {
  const AttentionSpec s{.seq_k = 2, .dim = 3};
  const std::vector<float> q = {1e4f, 1, -1e4f}, k = {1e4f, 1, 1e4f, 0, 0, 0}, v = {1, 1, 1, 0, 0, 0};
  CHECK(reference::baseline(s, {{0, 0, 0}}, q, k, v)[0] == 0.5f);
  CHECK(forward(s, Tensors<float>{q, k, v}).o[0] == Approx(1 / (1 + std::exp(-1.0))));
}

TEST_CASE("what fp32 rounding can do to the sums: nothing to empty rows, little to one key, and what it may lose") {
  const AttentionSpec s{.seq_q = 2, .seq_k = 1, .causal = true};
  const Tensors<float> one_key{{3, 2}, {5}, {-4}};
  const reference::Rounding one =
      reference::fp32_rounding(s, reference::all_rows(s), one_key.q, one_key.k, one_key.v, forward(s, one_key));
  CHECK(one.sum == std::vector<double>{0, 4 * 0x1p-24});  // √1 · u · |V|
  CHECK(one.size == std::vector<double>{0, 4});
  CHECK(one.lse[0] == 0);
  // √(1 + 2) · u · |Q| |K| of the score, and six roundings of LSE itself.
  CHECK(one.lse[1] == Approx((std::sqrt(3.0) + 6) * 10 * 0x1p-24).epsilon(1e-6));

  // Two equal keys whose values cancel: O = 0, of the size √(½² + ½²).
  const AttentionSpec two{.seq_k = 2};
  const Tensors<float> rivals{{1}, {1, 1}, {1, -1}};
  const reference::Rounding sums =
      reference::fp32_rounding(two, {{0, 0, 0}}, rivals.q, rivals.k, rivals.v, forward(two, rivals));
  CHECK(sums.sum[0] == Approx(std::sqrt(2.0) * 0x1p-24));
  CHECK(sums.size[0] == Approx(std::sqrt(0.5)));
  // In fp16 each P, divided by their sum of 2 at the end, may also be off by its smallest number.
  const reference::Rounding in_fp16 =
      reference::fp32_rounding(two, {{0, 0, 0}}, rivals.q, rivals.k, rivals.v, forward(two, rivals), 0x1p-24);
  CHECK(in_fp16.sum[0] == Approx((std::sqrt(2.0) + std::sqrt(0.5)) * 0x1p-24));

  // A key 20 below the maximum has P = 2e-9 < 2u. Beside a sum of 1 its 2e-6 may lose 2⁻²⁴; 2e-9 may be lost altogether.
  for (const auto& [v, loss] : {std::pair(1000.0f, 0x1p-24), std::pair(1.0f, std::exp(-20.0))}) {
    const Tensors<float> tiny{{1}, {0, -20}, {1, v}};
    const reference::Rounding lost = reference::fp32_rounding(two, {{0, 0, 0}}, tiny.q, tiny.k, tiny.v, forward(two, tiny));
    CHECK(lost.sum[0] - std::sqrt(2.0) * 0x1p-24 == Approx(loss).epsilon(1e-3));
  }
  const auto overflow = [&](std::vector<float> v) {
    const Tensors<float> large{{1}, {1, 1}, v};
    return reference::fp32_rounding(two, {{0, 0, 0}}, large.q, large.k, large.v, forward(two, large)).may_overflow[0];
  };
  CHECK(overflow({1e36f, 1e36f}) == 1);
  CHECK(overflow({1e36f, 1e35f}) == 0);
  CHECK(overflow({static_cast<float>(infinity), 1}) == 0);
}

TEST_CASE("what rounding of scores can make of O: as much as the scores compete, and never more than a mean of V") {
  const auto reach = [](float q, std::vector<float> k, std::vector<float> v, double direction) {
    const AttentionSpec s{.seq_k = static_cast<int>(k.size())};
    const Tensors<float> t{{q}, k, v};
    const reference::Forward truth = forward(s, t);
    return reference::ScoreRounding(s, t.q, t.k, t.v).outcomes({0, 0, 0}, truth.o).reach(std::vector<double>{direction});
  };
  const double error = std::sqrt(3.0) * 160 * 0x1p-24;  // of each score, to first order Σ P_j · error · |V_j − O|
  CHECK(reach(160, {1, 1}, {1, -1}, 1) == Approx(error).epsilon(1e-4));
  CHECK(reach(160, {1, 1}, {1, -1}, -2) == Approx(2 * error).epsilon(1e-4));
  CHECK(reach(160, {1}, {1}, 1) == 0);
  CHECK(reach(1e10f, {1, 1}, {1, -1}, 1) == Approx(1));    // either may win
  CHECK(reach(1e10f, {1, 1}, {3, 4}, -1) == Approx(0.5));  // O = 3.5, and no honest one is below 3
  CHECK(reach(1e10f, {1, 0}, {1, -1}, -1) == 0);           // a clear winner
  CHECK(reach(1e30f, {1, 1}, {1, -1}, 1) == Approx(1));
  CHECK(reach(1, {1, -static_cast<float>(infinity)}, {1, 100}, 1) == 0);  // a score of −∞ is not rounded
}

TEST_CASE("the contract of infinite scores: −∞ adds nothing but its row of V, +∞ and NaN make the row NaN") {
  const float inf = static_cast<float>(infinity);
  const auto o = [](std::vector<float> scores, std::vector<float> values) { return attend_scores(scores, values).o[0]; };
  CHECK(o({2, -inf, 2}, {1, 5, 3}) == 2);
  CHECK(attend_scores({2, -inf, 2}, {1, 5, 3}).lse[0] == Approx(2 + std::log(2.0)));
  CHECK(std::isnan(o({2, -inf}, {1, quiet_nan})));
  CHECK(o({2, -inf}, {1, inf}) == infinity);
  CHECK(o({-inf, -inf}, {1, 5}) == 0);
  CHECK(attend_scores({-inf, -inf}, {1, 5}).lse[0] == -infinity);
  CHECK(o({-inf, -inf}, {1, inf}) == infinity);
  CHECK(std::isnan(o({-inf, -inf}, {inf, -inf})));
  CHECK(std::isnan(o({2, inf}, {1, 5})));
  CHECK(std::isnan(attend_scores({2, inf}, {1, 5}).lse[0]));
  CHECK(std::isnan(o({-inf, quiet_nan}, {1, 5})));
  CHECK(std::isnan(attend_scores({-inf, quiet_nan}, {1, 5}).lse[0]));
  CHECK(o({0, 5000}, {inf, 1}) == infinity);  // a probability of exp(−5000) is above 0
  CHECK(o({0, 5000}, {1e30f, 1}) == 1);
  CHECK(o({-3e38f, -3e38f}, {1, 3}) == 2);

  const AttentionSpec zero{.seq_k = 3, .scale = 0};
  const Tensors<float> t{{7}, {1, -2, 3}, {1, 2, 6}};
  CHECK(forward(zero, t).o[0] == 3);
  CHECK(forward(zero, t).lse[0] == Approx(std::log(3.0)));
  CHECK(std::isnan(forward(zero, Tensors<float>{{7}, {1, -inf, 3}, {1, 2, 6}}).o[0]));  // 0 · ∞

  const std::vector<Row> row = {{0, 0, 0}};
  const AttentionSpec two{.seq_k = 2};
  const std::vector<float> q = {1}, v = {1, 5};
  CHECK(reference::baseline(two, row, q, std::vector<float>{-inf, -inf}, v)[0] == 0);
  CHECK(reference::baseline(two, row, q, std::vector<float>{-inf, 2}, v)[0] == 5);
  CHECK(std::isnan(reference::baseline(two, row, q, std::vector<float>{inf, 2}, v)[0]));
}

TEST_CASE("rows whose scores may overflow in fp32 are those where Σ |q k| or the scale brings them to FLT_MAX") {
  const auto flags = [](std::vector<float> q, std::vector<float> k, double scale, int dim) {
    const AttentionSpec s{.seq_q = static_cast<int>(q.size()) / dim,
                          .seq_k = static_cast<int>(k.size()) / dim,
                          .dim = dim,
                          .causal = true,
                          .scale = scale};
    return reference::scores_may_overflow(s, reference::all_rows(s), q, k);
  };
  using Flags = std::vector<std::uint8_t>;
  CHECK(flags({1e19f, 1e19f}, {1, 2e19f}, 1, 1) == Flags{0, 0});
  CHECK(flags({1e19f, 1e19f}, {1, 3e19f}, 1, 1) == Flags{0, 1});            // the first row does not see that key
  CHECK(flags({2e19f, -2e19f}, {1e19f, 1e19f}, 1, 2) == Flags{1});          // 2e38 − 2e38
  CHECK(flags({1e19f}, {1e18f}, 10, 1) == Flags{0});                        // 1e38 · log2 e
  CHECK(flags({1e19f}, {3e18f}, 10, 1) == Flags{1});                        // 3e38 · log2 e
  CHECK(flags({1e19f}, {1e20f}, 1e-30, 1) == Flags{1});                     // overflows before it is scaled
  CHECK(flags({0}, {1}, 3e38, 1) == Flags{1});                              // scale · log2 e is ∞, and 0 · ∞ NaN
  CHECK(flags({static_cast<float>(infinity)}, {1e30f}, 1, 1) == Flags{0});  // what is not finite is judged
}

TEST_CASE("visible keys at the extremes of every int") {
  constexpr int most = std::numeric_limits<int>::max(), large = 1 << 30;
  const auto range = [](const AttentionSpec& s, int query) {
    const reference::KeyRange keys = reference::visible_keys(s, query);
    return std::pair(keys.begin, keys.end);
  };
  const AttentionSpec wide{.seq_q = large, .seq_k = large, .window = most};
  CHECK(range(wide, 0) == std::pair(0, large));
  CHECK(range(wide, large - 1) == std::pair(0, large));
  const AttentionSpec causal{.seq_q = large, .seq_k = large, .causal = true, .window = most};
  CHECK(range(causal, 0) == std::pair(0, 1));
  CHECK(range(causal, large - 1) == std::pair(0, large));
  const AttentionSpec tall{.seq_q = most, .seq_k = 1, .window = most};
  CHECK(range(tall, 0) == std::pair(0, 1));  // 2³¹ − 2 away: just within the window
  CHECK(range(tall, most - 1) == std::pair(0, 1));
  const AttentionSpec tall_narrow{.seq_q = most, .seq_k = 1, .window = most - 1};
  CHECK(reference::visible_keys(tall_narrow, 0).empty());
  const AttentionSpec long_keys{.seq_q = 1, .seq_k = most, .causal = true, .window = 1};
  CHECK(range(long_keys, 0) == std::pair(most - 1, most));
  const AttentionSpec tall_causal{.seq_q = most, .seq_k = 1, .causal = true};
  CHECK(reference::visible_keys(tall_causal, most - 2).empty());
}

// ---- linear and layer ----

TEST_CASE("linear: weights lie [out, in], nothing is transposed") {
  const reference::LinearShape shape{.rows = 2, .in = 3, .out = 2};
  const std::vector<float> x = {1, 2, 3, -1, 0, 1}, weight = {1, 10, 100, 2, 20, 200}, bias = {0.5f, -0.5f};
  CHECK(reference::linear(shape, x, weight, bias) == std::vector<double>{321.5, 641.5, 99.5, 197.5});
  CHECK(reference::linear_baseline(shape, x, weight, bias) == std::vector<float>{321.5f, 641.5f, 99.5f, 197.5f});
  CHECK_THROWS_AS(reference::linear(shape, x, weight, std::vector<float>{1}), std::invalid_argument);
}

TEST_CASE("the fp32 linear sums in order, the truth does not lose the 1") {
  const reference::LinearShape shape{.rows = 1, .in = 3, .out = 1};
  const std::vector<float> x = {1e8f, 1, -1e8f}, ones = {1, 1, 1}, bias = {0};
  CHECK(reference::linear(shape, x, ones, bias) == std::vector<double>{1});
  CHECK(reference::linear_baseline(shape, x, ones, bias) == std::vector<float>{0});
}

TEST_CASE("a layer of one token is two linear maps: V's projection, then the output's") {
  const std::vector<float> x = {1, 2};
  const std::vector<float> in_weight = {9, 9, 9, 9, 9, 9, 9, 9, 1, 2, 3, 4}, in_bias = {9, 9, 9, 9, 0.5f, -0.5f};
  const std::vector<float> out_weight = {1, 10, 100, 1000}, out_bias = {0.25f, 0};
  const auto result = reference::layer({.heads = 2, .width = 2}, x, {in_weight, in_bias, out_weight, out_bias});
  CHECK(result.o == std::vector<double>{5.5, 10.5});  // V = [1·1 + 2·2 + ½, 3·1 + 4·2 − ½]
  CHECK(result.y == std::vector<double>{5.5 + 105 + 0.25, 550 + 10500});
  CHECK_THROWS_AS(reference::layer({.heads = 2, .width = 3}, x, {in_weight, in_bias, out_weight, out_bias}),
                  std::invalid_argument);
}

TEST_CASE("the layer splits and merges heads as attention does, batch by batch") {
  const reference::LayerShape shape{.batch = 2, .seq = 5, .heads = 3, .width = 12, .causal = true};
  const auto x = normal_numbers(2 * 5 * 12, 1), in_weight = normal_numbers(36 * 12, 2), in_bias = normal_numbers(36, 3);
  std::vector<float> identity(12 * 12, 0.0f), zero(12, 0.0f);
  for (int i = 0; i < 12; ++i) identity[i * 13] = 1;
  const auto result = reference::layer(shape, x, {in_weight, in_bias, identity, zero});

  // The same from the pieces: with the identity as output projection, y is O with its heads side by side.
  const auto qkv = reference::linear({10, 12, 36}, x, in_weight, in_bias);
  const AttentionSpec spec{2, 3, 3, 5, 5, 4, true, 0, 0.5};
  Tensors<double> t{std::vector<double>(120), std::vector<double>(120), std::vector<double>(120)};
  const auto rows = reference::all_rows(spec);
  const auto column = [](const Row& row, int d) { return (row.batch * 5 + row.query) * 36 + row.head * 4 + d; };
  for (std::size_t i = 0; i < 120; ++i) {
    const int at = column(rows[i / 4], static_cast<int>(i % 4));
    t.q[i] = qkv[at];
    t.k[i] = qkv[at + 12];
    t.v[i] = qkv[at + 24];
  }
  const reference::Forward expected = forward(spec, t);
  CHECK(result.o == expected.o);
  CHECK(result.lse == expected.lse);
  for (std::size_t i = 0; i < 120; ++i) {
    const Row row = rows[i / 4];
    CHECK(result.y[(row.batch * 5 + row.query) * 12 + row.head * 4 + i % 4] == expected.o[i]);
  }
  const auto baseline = reference::layer_baseline(shape, x, {in_weight, in_bias, identity, zero});
  CHECK(max_difference({baseline.y.begin(), baseline.y.end()}, result.y) < 1e-4);
  CHECK(max_difference({baseline.y.begin(), baseline.y.end()}, result.y) > 0);
}

TEST_CASE("the layer gives what the model gave: data/minilm_layer") {
  const std::filesystem::path data = "data/minilm_layer";
  if (!std::filesystem::exists(data / "y_model.npy")) {
    WARN("data/minilm_layer is not there: run from the root of the repository");
    return;
  }
  const auto read = [&](const char* name) { return problem::read_npy(data / (std::string(name) + ".npy")).tensor; };
  const problem::Tensor x = read("x"), y_model = read("y_model");
  const problem::Tensor in_weight = read("in_proj_weight"), in_bias = read("in_proj_bias");
  const problem::Tensor out_weight = read("out_proj_weight"), out_bias = read("out_proj_bias");
  REQUIRE(x.shape.size() == 3);

  const reference::LayerShape shape{.batch = static_cast<int>(x.shape[0]),
                                    .seq = static_cast<int>(x.shape[1]),
                                    .heads = 12,
                                    .width = static_cast<int>(x.shape[2])};
  const reference::LayerWeights weights{in_weight.values, in_bias.values, out_weight.values, out_bias.values};
  const auto truth = reference::layer(shape, x.values, weights);
  const auto baseline = reference::layer_baseline(shape, x.values, weights);

  const std::vector<double> model(y_model.values.begin(), y_model.values.end());
  double largest = 0;
  for (const double y : truth.y) largest = std::max(largest, std::abs(y));
  CHECK(max_difference(model, truth.y) <= 1e-5 * largest);
  CHECK(max_difference({baseline.y.begin(), baseline.y.end()}, truth.y) <= 1e-5 * largest);
}

// ---- matrix products ----

TEST_CASE("a product by hand: both operands lie with k contiguous, and a shared A serves every batch entry") {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};                          // [2, 3]
  const std::vector<float> b = {1, 0, 0, 1, 1, 1, 10, 0, 0, 0, 10, 0};      // [2, 2, 3]
  const std::vector<float> a_twice = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};  // [2, 2, 3]
  const std::vector<double> c = {1, 6, 4, 15, 10, 20, 40, 50};              // [2, 2, 2]
  const reference::GemmSpec shared{2, 1, 2, 2, 3}, own{2, 2, 2, 2, 3};
  CHECK(reference::product(shared, reference::all_rows(shared), a, b) == c);
  CHECK(reference::product(own, reference::all_rows(own), a_twice, b) == c);
  CHECK(reference::product(own, {1, 2}, a_twice, b) == std::vector<double>{4, 15, 10, 20});
  CHECK(reference::row_text(own, 3) == "batch 1, row 1");
}

TEST_CASE("products of every blocking remainder agree with three loops") {
  for (const auto& [m, n, k] : {std::array{1, 1, 1}, {2, 8, 3}, {3, 9, 17}, {5, 7, 40}, {4, 16, 1}, {65, 33, 129}}) {
    const reference::GemmSpec s{3, 3, m, n, k};
    const auto a = normal_numbers(3 * m * k, 1), b = normal_numbers(3 * n * k, 2);
    const auto c = reference::product(s, reference::all_rows(s), a, b);
    std::vector<double> expected;
    for (int row = 0; row < 3 * m; ++row) {
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int d = 0; d < k; ++d) sum += static_cast<double>(a[row * k + d]) * b[(row / m * n + j) * k + d];
        expected.push_back(sum);
      }
    }
    INFO(m << " x " << n << " x " << k);
    CHECK(max_difference(c, expected) < 1e-12);
    const auto baseline = reference::product_baseline(s, reference::all_rows(s), a, b);
    CHECK(max_difference({baseline.begin(), baseline.end()}, expected) < 1e-4);
  }
}

TEST_CASE("the baseline of a product sums in fp32, in order, and rounds the sum; the truth does not lose the 1") {
  const reference::GemmSpec s{1, 1, 1, 1, 3};
  const std::vector<float> a = {1e8f, 1, -1e8f}, ones = {1, 1, 1};
  CHECK(reference::product(s, {0}, a, ones) == std::vector<double>{1});
  CHECK(reference::product_baseline(s, {0}, a, ones) == std::vector<float>{0});
  const auto to_quarters = [](float x) { return std::round(4 * x) / 4; };
  const std::vector<float> tenths = {0.1f, 0.1f, 0.1f};
  CHECK(reference::product_baseline(s, {0}, tenths, ones, to_quarters) == std::vector<float>{0.25f});
}

TEST_CASE("what fp32 rounding can do to an element of a product: by its own rows, of what is finite in them") {
  const reference::GemmSpec s{1, 1, 2, 3, 4};
  const std::vector<float> a = {1, 1, 1, 1, 3, 0, 4, 0};
  const std::vector<float> b = {0, 2, 0, 0, 6, 0, 0, 8, 1, quiet_nan, 2, 2};
  const auto rounding = reference::product_rounding(s, {0, 1}, a, b, reference::product(s, {0, 1}, a, b));
  const double u = 0x1p-24;
  CHECK(rounding.sum ==
        std::vector<double>{2 * 2 * u, 2 * 10 * u, 2 * 3 * u, 5 * 2 * u, 5 * 10 * u, 5 * 3 * u});  // ½ √4 · u · norms
  // C is (2, 14, NaN) and (0, 18, NaN); the norms over √4 are (2, 10, 3) and (5, 25, 7.5).
  CHECK(rounding.size[0] == 2);
  CHECK(rounding.size[1] == 14);
  CHECK(rounding.size[3] == 5);
  CHECK(rounding.size[4] == 18);
  const std::vector<float> ones = {1, 1, 1, 1}, turns = {1, -1, 1, -1};  // their product is 0, and nothing in its row is larger
  CHECK(reference::product_rounding({1, 1, 1, 1, 4}, {0}, ones, turns, std::vector<double>{0}).size[0] == 0);
  CHECK(rounding.may_overflow == std::vector<std::uint8_t>(6, 0));
  const std::vector<float> large = {2e19f, 2e19f}, small = {2e19f, 0};
  const reference::GemmSpec one{1, 1, 1, 1, 2};
  CHECK(reference::product_rounding(one, {0}, large, large, std::vector<double>{8e38}).may_overflow[0] == 1);
  CHECK(reference::product_rounding(one, {0}, small, std::vector<float>{1e19f, 0}, std::vector<double>{2e38}).may_overflow[0] ==
        0);
}

TEST_CASE("rows of a large product are sampled per batch entry; of a small one all are taken") {
  const reference::GemmSpec large{2, 1, 1000, 1, 1}, small{3, 3, 64, 1, 1};
  const reference::GemmRows rows = reference::sample_rows(large);
  CHECK(rows.size() == 2 * 64);
  for (const int needed : {0, 1, 127, 128, 129, 959, 960, 998, 999, 1000, 1001, 1999}) {
    CHECK(std::binary_search(rows.begin(), rows.end(), needed));
  }
  CHECK(reference::sample_rows(large) == rows);
  CHECK(reference::sample_rows(small) == reference::all_rows(small));
  CHECK(reference::all_rows(small).size() == 3 * 64);
}

TEST_CASE("products of the wrong size and impossible shapes are refused") {
  const std::vector<float> six(6);
  CHECK_THROWS_AS(reference::product({1, 1, 2, 2, 3}, {0}, six, std::vector<float>(5)), std::invalid_argument);
  CHECK_THROWS_AS(reference::product({3, 2, 1, 1, 2}, {0}, six, six), std::invalid_argument);
  CHECK_THROWS_AS(reference::product({1, 1, 0, 2, 3}, {}, {}, six), std::invalid_argument);
}

TEST_CASE("a softmax of 1, 2, 3 by hand; a constant more changes nothing; −∞ takes no part, and alone gives zeros") {
  const float none = -std::numeric_limits<float>::infinity();
  const reference::SoftmaxSpec s{4, 3};
  const std::vector<float> x = {1, 2, 3, 1001, 1002, 1003, none, none, none, 5, none, 5};
  const std::vector<double> y = reference::softmax(s, reference::all_rows(s), x);
  const double by_hand[] = {0.09003057317038046, 0.24472847105479764, 0.6652409557748219};
  for (int j = 0; j < 3; ++j) {
    CHECK(std::abs(y[j] - by_hand[j]) < 1e-15);
    CHECK(y[3 + j] == y[j]);
    CHECK(y[6 + j] == 0);
  }
  CHECK(std::vector<double>(y.begin() + 9, y.end()) == std::vector<double>{0.5, 0, 0.5});
  CHECK(reference::softmax(s, {1}, x) == std::vector<double>(y.begin() + 3, y.begin() + 6));
  const auto to_quarters = [](float value) { return std::round(4 * value) / 4; };
  CHECK(reference::softmax_baseline(s, {0}, x, to_quarters) == std::vector<float>{0, 0.25f, 0.75f});
}

TEST_CASE("a softmax at the ends of fp32: −FLT_MAX and 3e38 are numbers, +∞ and NaN spoil their row alone") {
  constexpr float most = std::numeric_limits<float>::max(), inf = std::numeric_limits<float>::infinity();
  const reference::SoftmaxSpec s{5, 4};
  const std::vector<float> x = {-most, -most, -most, -most, 3e38f,     -3e38f, -inf, 3e38f, 1, inf,
                                2,     3,     1,     2,     quiet_nan, 3,      1,    1,     1, 1};
  const auto rows = reference::all_rows(s);
  const std::vector<double> y = reference::softmax(s, rows, x);
  const std::vector<float> baseline = reference::softmax_baseline(s, rows, x);
  const double expected[] = {0.25, 0.25, 0.25, 0.25, 0.5, 0, 0, 0.5};
  for (int j = 0; j < 8; ++j) CHECK(y[j] == expected[j]);
  for (int j = 8; j < 16; ++j) CHECK(std::isnan(y[j]));
  for (int j = 16; j < 20; ++j) CHECK(y[j] == 0.25);
  for (int j = 0; j < 20; ++j) CHECK((y[j] == baseline[j] || (std::isnan(y[j]) && std::isnan(baseline[j]))));
}

TEST_CASE("what summing in fp32 can do to a row of a softmax: by its largest y, wherever the scores lie") {
  const std::vector<double> y = {0.25, 0.25, 0.25, 0.25, 1, 0, 0, 0, quiet_nan, quiet_nan, quiet_nan, quiet_nan};
  CHECK(reference::softmax_rounding({3, 4}, y) == std::vector<double>{0.25 * 0x1p-24, 0x1p-24, 0});
}

TEST_CASE("many rows of a softmax are sampled, few are all taken, and wrong sizes are refused") {
  const reference::SoftmaxRows rows = reference::sample_rows(reference::SoftmaxSpec{1000, 1});
  CHECK(rows.size() == 64);
  for (const int needed : {0, 1, 127, 128, 129, 998, 999}) CHECK(std::binary_search(rows.begin(), rows.end(), needed));
  CHECK(reference::sample_rows(reference::SoftmaxSpec{64, 9}).size() == 64);
  CHECK_THROWS_AS(reference::softmax({2, 3}, {0}, std::vector<float>(5)), std::invalid_argument);
  CHECK_THROWS_AS(reference::softmax({0, 3}, {}, std::vector<float>()), std::invalid_argument);
}
