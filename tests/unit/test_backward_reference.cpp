// The gradients of the reference are tested against finite differences and against numbers worked by hand; chosen rows against
// all rows; NaN and infinities against what depends on them; the baseline and the rounding against their definitions.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "common/problem/backward.h"
#include "common/reference/backward.h"
#include "tests/catch.h"

using reference::AttentionSpec;
using reference::BackwardRows;
using reference::Gradients;
using reference::KeyRow;
using reference::Row;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr double u = 0x1p-24;

template <class T>
struct Tensors {
  std::vector<T> q, k, v, d_o;
};

template <class T = float>
Tensors<T> random_tensors(const AttentionSpec& s, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const auto numbers = [&](int heads, int rows) {
    std::vector<T> result(static_cast<std::size_t>(s.batch) * heads * rows * s.dim);
    for (T& x : result) x = static_cast<T>(normal(random));
    return result;
  };
  Tensors<T> t;
  t.q = numbers(s.heads, s.seq_q);
  t.k = numbers(s.kv_heads, s.seq_k);
  t.v = numbers(s.kv_heads, s.seq_k);
  t.d_o = numbers(s.heads, s.seq_q);
  return t;
}

template <class T>
Gradients backward(const AttentionSpec& s, const Tensors<T>& t) {
  return reference::backward(s, t.q, t.k, t.v, t.d_o);
}

template <class T>
Gradients backward(const AttentionSpec& s, const BackwardRows& rows, const Tensors<T>& t) {
  return reference::backward(s, rows, t.q, t.k, t.v, t.d_o);
}

double max_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference = std::max(difference, std::abs(a[i] - b[i]));
  return difference;
}

std::vector<double> widened(const std::vector<float>& x) { return {x.begin(), x.end()}; }
std::vector<float> narrowed(const std::vector<double>& x) { return {x.begin(), x.end()}; }

double loss(const AttentionSpec& s, const Tensors<double>& t) {
  const std::vector<double> o = reference::forward(s, reference::all_rows(s), t.q, t.k, t.v).o;
  double sum = 0;
  for (std::size_t i = 0; i < o.size(); ++i) sum += t.d_o[i] * o[i];
  return sum;
}

// Central differences of the loss in every element of one of the tensors.
std::vector<double> differences(const AttentionSpec& s, Tensors<double> t, std::vector<double> Tensors<double>::*tensor) {
  constexpr double step = 1e-5;
  std::vector<double> slopes;
  for (double& x : t.*tensor) {
    const double at = x;
    x = at + step;
    const double above = loss(s, t);
    x = at - step;
    const double below = loss(s, t);
    x = at;
    slopes.push_back((above - below) / (2 * step));
  }
  return slopes;
}

const std::vector<AttentionSpec> specs = {
    {1, 1, 1, 1, 1, 1, false, 0, 1.0},
    {1, 1, 1, 5, 5, 3, true, 0, 0.5},
    {2, 4, 2, 7, 12, 8, true, 0, 0.35},
    {1, 6, 2, 11, 6, 9, true, 0, 0.3},
    {3, 2, 1, 9, 9, 5, false, 3, 0.4},
    {1, 2, 2, 20, 16, 4, true, 5, 0.5},
    {2, 3, 3, 13, 40, 7, false, 1, 1.0},
    {1, 14, 2, 3, 21, 16, true, 0, 0.25},
    {1, 1, 1, 6, 1, 2, true, 0, 1.0},
    {1, 2, 1, 6, 9, 4, true, 0, -0.7},
    {1, 2, 1, 6, 9, 4, false, 0, 0.0},
    {1, 1, 1, 9, 4, 3, false, 2, 1.5},
    {2, 4, 2, 7, 12, 5, true, 0, 0.35, {}, 100, 5},
};

// Which keys a query sees, by the definition.
bool sees(const AttentionSpec& s, int i, int j) {
  const int own = i + s.seq_k - s.seq_q;
  return (!s.causal || j <= own) && (s.window == 0 || std::abs(own - j) < s.window);
}

bool same_row(const std::vector<double>& a, std::int64_t row_a, const std::vector<double>& b, std::int64_t row_b, int dim) {
  return std::equal(&a[row_a * dim], &a[row_a * dim] + dim, &b[row_b * dim]);
}

bool finite_row(const std::vector<double>& a, std::int64_t row, int dim) {
  return std::all_of(&a[row * dim], &a[row * dim] + dim, [](double x) { return std::isfinite(x); });
}

}  // namespace

// ---- the truth ----

TEST_CASE(
    "backward agrees with finite differences: causal, window, GQA, rows without keys, scales below and equal to 0, dropout") {
  unsigned seed = 11;
  for (const AttentionSpec& s : specs) {
    const auto t = random_tensors<double>(s, seed += 10);
    const Gradients grad = backward(s, t);
    INFO("seq " << s.seq_q << " x " << s.seq_k << ", heads " << s.heads << " over " << s.kv_heads << ", scale " << s.scale);
    CHECK(max_difference(grad.dq, differences(s, t, &Tensors<double>::q)) < 1e-8);
    CHECK(max_difference(grad.dk, differences(s, t, &Tensors<double>::k)) < 1e-8);
    CHECK(max_difference(grad.dv, differences(s, t, &Tensors<double>::v)) < 1e-8);
  }
}

TEST_CASE("with one key dV is dO, and dQ and dK are zero") {
  const Gradients grad = backward(AttentionSpec{}, Tensors<float>{{2}, {3}, {5}, {7}});
  CHECK(grad.dq == std::vector<double>{0});
  CHECK(grad.dk == std::vector<double>{0});
  CHECK(grad.dv == std::vector<double>{7});
}

TEST_CASE("two keys by hand: P = ½, ½, dP = dO V, D their mean") {
  const AttentionSpec s{.seq_k = 2, .scale = 3};
  const Gradients grad = backward(s, Tensors<float>{{0}, {1, 2}, {10, 30}, {5}});
  CHECK(grad.dv == std::vector<double>{2.5, 2.5});
  CHECK(grad.dq == std::vector<double>{3 * (0.5 * (50 - 100) * 1 + 0.5 * (150 - 100) * 2)});
  CHECK(grad.dk == std::vector<double>{0, 0});  // Q = 0
}

TEST_CASE("rows without keys and keys without rows have zero gradients") {
  const AttentionSpec tall{.seq_q = 4, .seq_k = 2, .causal = true};
  auto t = random_tensors(tall, 2);
  t.q[0] = t.d_o[1] = quiet_nan;  // they see no key, so nothing sees them
  const Gradients grad = backward(tall, t);
  CHECK(grad.dq[0] == 0);
  CHECK(grad.dq[1] == 0);
  for (const double x : grad.dk) CHECK(std::isfinite(x));
  for (const double x : grad.dv) CHECK(std::isfinite(x));

  const AttentionSpec narrow{.seq_q = 2, .seq_k = 6, .window = 2};  // queries at keys 4 and 5: key 0 is not seen
  const Gradients unseen = backward(narrow, random_tensors(narrow, 3));
  CHECK(unseen.dk[0] == 0);
  CHECK(unseen.dv[0] == 0);
  CHECK(unseen.dv[3] != 0);
}

TEST_CASE("float and double inputs give the same gradients") {
  const AttentionSpec s = specs[2];
  const auto t = random_tensors(s, 4);
  const Gradients a = backward(s, t);
  const Gradients b = backward(s, Tensors<double>{widened(t.q), widened(t.k), widened(t.v), widened(t.d_o)});
  CHECK(a.dq == b.dq);
  CHECK(a.dk == b.dk);
  CHECK(a.dv == b.dv);
}

TEST_CASE("dQ sums to zero over keys, dV over queries to dO: what all keys share changes no gradient but that of V's mean") {
  const AttentionSpec s{1, 2, 1, 9, 13, 5, false, 0, 0.4};
  auto t = random_tensors<double>(s, 6);
  const Gradients before = backward(s, t);
  for (double& x : t.k) x += 3;
  for (double& x : t.v) x -= 2;
  const Gradients after = backward(s, t);
  CHECK(max_difference(before.dq, after.dq) < 1e-12);
  CHECK(max_difference(before.dk, after.dk) < 1e-12);
  CHECK(max_difference(before.dv, after.dv) < 1e-12);
}

// ---- rows ----

TEST_CASE("the queries that see a key are those whose keys hold it") {
  for (const int seq_q : {1, 3, 8}) {
    for (const int seq_k : {1, 4, 9}) {
      for (const bool causal : {false, true}) {
        for (const int window : {0, 1, 3, std::numeric_limits<int>::max()}) {
          const AttentionSpec s{.seq_q = seq_q, .seq_k = seq_k, .causal = causal, .window = window};
          for (int key = 0; key < seq_k; ++key) {
            const auto range = reference::queries_seeing(s, key);
            for (int query = 0; query < seq_q; ++query) {
              const auto keys = reference::visible_keys(s, query);
              CHECK((range.begin <= query && query < range.end) == (keys.begin <= key && key < keys.end));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("chosen rows are the rows of the whole, bit by bit; a row alone runs on one thread") {
  for (const AttentionSpec& s : specs) {
    const auto t = random_tensors(s, 5);
    const Gradients whole = backward(s, t);
    const BackwardRows all = reference::all_backward_rows(s);
    for (std::size_t r = 0; r < all.queries.size(); r += 5) {
      REQUIRE(reference::flat_index(s, all.queries[r]) == static_cast<std::int64_t>(r));
      CHECK(same_row(backward(s, {{all.queries[r]}, {}}, t).dq, 0, whole.dq, static_cast<std::int64_t>(r), s.dim));
    }
    for (std::size_t r = 0; r < all.keys.size(); r += 3) {
      REQUIRE(reference::flat_index(s, all.keys[r]) == static_cast<std::int64_t>(r));
      const Gradients one = backward(s, {{}, {all.keys[r]}}, t);
      CHECK(one.dq.empty());
      CHECK(same_row(one.dk, 0, whole.dk, static_cast<std::int64_t>(r), s.dim));
      CHECK(same_row(one.dv, 0, whole.dv, static_cast<std::int64_t>(r), s.dim));
    }
  }
  CHECK(reference::to_string(KeyRow{0, 1, 17}) == "batch 0, kv head 1, key 17");
}

TEST_CASE(
    "sampled keys: first, last and tile edges of as many key/value heads as the FLOPs pay for, first and last among them") {
  const AttentionSpec s{3, 6, 3, 500, 400, 8, true, 0, 1.0};
  double pairs = 0;
  for (int query = 0; query < s.seq_q; ++query) pairs += reference::visible_keys(s, query).count();
  const double per_head = 4 * 8 * pairs * 2;
  for (const auto& [flops, expected] : std::vector<std::pair<double, std::set<int>>>{
           {0, {0, 8}}, {3.5 * per_head, {0, 4, 8}}, {1e12, {0, 1, 2, 3, 4, 5, 6, 7, 8}}}) {
    const BackwardRows rows = reference::sample_backward_rows(s, flops);
    CHECK(rows.queries == reference::sample_rows(s));
    std::set<int> heads;
    for (const KeyRow& row : rows.keys) heads.insert(row.batch * 3 + row.kv_head);
    CHECK(heads == expected);
    CHECK(rows.keys.size() == expected.size() * 64);
    for (const int key : {0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 383, 384, 385, 398, 399}) {
      CHECK(std::find(rows.keys.begin(), rows.keys.end(), KeyRow{2, 2, key}) != rows.keys.end());
    }
    CHECK(reference::sample_backward_rows(s, flops).keys == rows.keys);
  }
  const AttentionSpec few{1, 1, 1, 500, 40, 8, true, 0, 1.0};
  CHECK(reference::sample_backward_rows(few).keys == reference::all_backward_rows(few).keys);
  CHECK(reference::sample_backward_rows({1, 1, 1, 5, 400, 8, true, 0, 1.0}).keys.size() == 64);
}

TEST_CASE("tensors of the wrong size and impossible shapes are refused") {
  const AttentionSpec s = specs[2];
  auto t = random_tensors(s, 1);
  t.d_o.pop_back();
  CHECK_THROWS_AS(backward(s, t), std::invalid_argument);
  CHECK_THROWS_AS(backward(AttentionSpec{.seq_q = 0}, Tensors<float>{{}, {1}, {1}, {}}), std::invalid_argument);
  const std::vector<float> one = {1}, two = {1, 2};
  const BackwardRows rows = reference::all_backward_rows({});
  CHECK_THROWS_AS(reference::backward_baseline({}, rows, one, one, one, one, two, one), std::invalid_argument);
  CHECK_THROWS_AS(reference::backward_baseline({}, rows, one, one, one, one, one, two), std::invalid_argument);
  CHECK_THROWS_AS(reference::backward_rounding({}, rows, one, one, one, one, one, one, {{1, 2}, {1}, {1}}),
                  std::invalid_argument);
}

// ---- NaN and infinity ----

TEST_CASE("NaN and infinities touch the gradients that depend on them through visible pairs, and no others by a bit") {
  const AttentionSpec s{1, 4, 2, 10, 12, 4, true, 4, 0.5};
  const auto clean = random_tensors(s, 7);
  const Gradients expected = backward(s, clean);
  const BackwardRows rows = reference::all_backward_rows(s);
  const auto reads = [&](int head, int kv_head) { return head / 2 == kv_head; };
  // Some query that sees both keys.
  const auto meet = [&](int a, int b) {
    for (int i = 0; i < s.seq_q; ++i) {
      if (sees(s, i, a) && sees(s, i, b)) return true;
    }
    return false;
  };
  using OfQuery = std::function<bool(const Row&)>;
  using OfKey = std::function<bool(const KeyRow&)>;
  const auto check_touched = [&](const Tensors<float>& t, const OfQuery& dq, const OfKey& dk, const OfKey& dv) {
    const Gradients grad = backward(s, t);
    for (std::size_t r = 0; r < rows.queries.size(); ++r) {
      INFO(reference::to_string(rows.queries[r]));
      CHECK(finite_row(grad.dq, static_cast<std::int64_t>(r), 4) != dq(rows.queries[r]));
      if (!dq(rows.queries[r])) CHECK(same_row(grad.dq, static_cast<std::int64_t>(r), expected.dq, static_cast<int>(r), 4));
    }
    for (std::size_t r = 0; r < rows.keys.size(); ++r) {
      const auto at = static_cast<std::int64_t>(r);
      INFO(reference::to_string(rows.keys[r]));
      CHECK(finite_row(grad.dk, at, 4) != dk(rows.keys[r]));
      CHECK(finite_row(grad.dv, at, 4) != dv(rows.keys[r]));
      if (!dk(rows.keys[r])) CHECK(same_row(grad.dk, at, expected.dk, at, 4));
      if (!dv(rows.keys[r])) CHECK(same_row(grad.dv, at, expected.dv, at, 4));
    }
  };
  const OfKey none = [](const KeyRow&) { return false; };
  for (const float bad : {quiet_nan, inf, -inf}) {
    auto t = clean;
    t.q[reference::flat_index(s, Row{0, 1, 4}) * 4 + 2] = quiet_nan;
    check_touched(
        t,
        [](const Row& row) {
          return row == Row{0, 1, 4};
        },
        [&](const KeyRow& row) { return row.kv_head == 0 && sees(s, 4, row.key); },
        [&](const KeyRow& row) { return row.kv_head == 0 && sees(s, 4, row.key); });
    t = clean;
    t.d_o[reference::flat_index(s, Row{0, 3, 6}) * 4] = bad;
    check_touched(
        t,
        [](const Row& row) {
          return row == Row{0, 3, 6};
        },
        [&](const KeyRow& row) { return row.kv_head == 1 && sees(s, 6, row.key); },
        [&](const KeyRow& row) { return row.kv_head == 1 && sees(s, 6, row.key); });
    t = clean;
    t.k[reference::flat_index(s, KeyRow{0, 1, 5}) * 4 + 1] = quiet_nan;
    const auto through_k = [&](const KeyRow& row) { return row.kv_head == 1 && meet(row.key, 5); };
    check_touched(
        t, [&](const Row& row) { return reads(row.head, 1) && sees(s, row.query, 5); }, through_k, through_k);
    t = clean;
    t.v[reference::flat_index(s, KeyRow{0, 0, 8}) * 4 + 3] = bad;
    check_touched(
        t, [&](const Row& row) { return reads(row.head, 0) && sees(s, row.query, 8); },
        [&](const KeyRow& row) { return row.kv_head == 0 && meet(row.key, 8); }, none);
  }
}

TEST_CASE("a score of −∞ has P = 0; a query of such scores alone adds nothing; +∞ makes all that it touches NaN") {
  const AttentionSpec s{.seq_q = 1, .seq_k = 3, .scale = 1};
  const Gradients some = backward(s, Tensors<float>{{1}, {0, -inf, 0}, {1, 2, 5}, {4}});
  CHECK(some.dv == std::vector<double>{2, 0, 2});
  CHECK(some.dk == std::vector<double>{0.5 * (4 - 12), 0, 0.5 * (20 - 12)});
  CHECK(std::isnan(some.dq[0]));  // 0 · ∞
  const Gradients all = backward(s, Tensors<float>{{1}, {-inf, -inf, -inf}, {1, quiet_nan, 5}, {4}});
  CHECK(all.dq == std::vector<double>{0});
  CHECK(all.dk == std::vector<double>(3, 0.0));
  CHECK(all.dv == std::vector<double>(3, 0.0));
  const Gradients none = backward(s, Tensors<float>{{1}, {0, inf, 0}, {1, 2, 5}, {4}});
  for (const auto* tensor : {&none.dq, &none.dk, &none.dv}) {
    for (const double x : *tensor) CHECK(std::isnan(x));
  }
  const Gradients tiny = backward(s, Tensors<float>{{1}, {0, 3e38f, 0}, {1, 2, 5}, {inf}});
  CHECK(tiny.dv == std::vector<double>(3, inf));  // P is above 0
}

// ---- baseline ----

TEST_CASE("the fp32 baseline is the truth but for fp32 rounding") {
  unsigned seed = 3;
  for (const AttentionSpec& s : specs) {
    const auto t = random_tensors(s, seed += 10);
    const BackwardRows rows = reference::all_backward_rows(s);
    const auto forward = reference::forward(s, rows.queries, t.q, t.k, t.v);
    const auto baseline =
        reference::backward_baseline(s, rows, t.q, t.k, t.v, t.d_o, narrowed(forward.o), narrowed(forward.lse));
    const Gradients truth = backward(s, t);
    CHECK(max_difference(widened(baseline.dq), truth.dq) < 2e-5);
    CHECK(max_difference(widened(baseline.dk), truth.dk) < 2e-5);
    CHECK(max_difference(widened(baseline.dv), truth.dv) < 2e-5);
  }
}

TEST_CASE("the baseline takes D from O and P from LSE as stored, rounds P and dS before the products, and scales at the end") {
  const AttentionSpec s{.seq_k = 2, .scale = 0.5};
  const BackwardRows rows = reference::all_backward_rows(s);
  const auto to_quarters = [](float x) { return std::round(4 * x) / 4; };
  // Scores 0 and 0, LSE stored as log 4: P = ¼. D = 3 · 2 = 6, dP = 3 and 9.3: dS = −¾ and 0.825, in quarters ¾.
  const std::vector<float> q = {1}, k = {0, 0}, v = {1, 3.1f}, d_o = {3}, o = {2}, lse = {std::log(4.0f)};
  auto grad = reference::backward_baseline(s, rows, q, k, v, d_o, o, lse, to_quarters);
  CHECK(grad.dv == std::vector<float>{0.75f, 0.75f});
  CHECK(grad.dk == std::vector<float>{-0.5f, 0.5f});  // ½ · ¾ = 0.375, away from zero
  CHECK(grad.dq == std::vector<float>{0});
  grad = reference::backward_baseline(s, rows, q, k, v, d_o, o, std::vector<float>{-inf}, to_quarters);
  CHECK(grad.dq == std::vector<float>{0});
  CHECK(grad.dk == std::vector<float>{0, 0});
  CHECK(grad.dv == std::vector<float>{0, 0});
}

// ---- rounding ----

namespace {

reference::GradientRounding rounding_of(const AttentionSpec& s, const Tensors<float>& t, const reference::Format& format = {}) {
  const BackwardRows rows = reference::all_backward_rows(s);
  const auto forward = reference::forward(s, rows.queries, t.q, t.k, t.v);
  return reference::backward_rounding(s, rows, t.q, t.k, t.v, t.d_o, narrowed(forward.o), narrowed(forward.lse), backward(s, t),
                                      format);
}

}  // namespace

TEST_CASE("what rounding can do: one key has no dS but the errors of P, dP and D") {
  const auto rounding = rounding_of({}, Tensors<float>{{2}, {3}, {5}, {7}});
  const double rho = std::sqrt(3.0) * u * 6 + 6 * u * 6 + 4 * u;         // of P
  const double ds = std::sqrt(3.0) * u * 7 * (5 + 5) + rho * (35 + 35);  // ‖dO‖ (‖V‖ + ‖O‖), |dP| + |D|
  CHECK(rounding.mean_key[0] == 3);
  CHECK(rounding.along[0] == Approx(ds).epsilon(1e-4));
  CHECK(rounding.dq.sum[0] < 1e-5 * 3 * ds);  // K − mean key is 0
  CHECK(rounding.dk.sum[0] == Approx(2 * 2 * ds).epsilon(1e-4));
  CHECK(rounding.dv.sum[0] == Approx(7 * (2 * rho + u)).epsilon(1e-4));
  CHECK(rounding.dv.size[0] == Approx(7).epsilon(1e-5));
  CHECK(rounding.dv.stored[0] == 0);
  CHECK(rounding.lost_queries == std::vector<std::uint8_t>{0});
}

TEST_CASE("an offset of K or V does not raise what a row of dQ is allowed, but along the mean key") {
  const AttentionSpec s{.seq_q = 4, .seq_k = 30, .dim = 8, .scale = 0.3};
  auto t = random_tensors(s, 8);
  const auto before = rounding_of(s, t);
  for (float& x : t.k) x += 100;
  const auto after = rounding_of(s, t);
  for (std::size_t i = 0; i < before.dq.sum.size(); ++i) {
    CHECK(after.dq.size[i] < 1.01 * before.dq.size[i]);
    CHECK(after.dq.sum[i] < 1e-3 * before.dq.size[i]);
    CHECK(after.mean_key[i] == Approx(before.mean_key[i] + 100).epsilon(1e-4));
  }
}

TEST_CASE("rows are lost where a score is rounded by more than 1/4 and P may be seen; may_overflow where dP or dS may") {
  using Flags = std::vector<std::uint8_t>;
  const AttentionSpec s{.seq_q = 2, .seq_k = 2, .causal = true, .scale = 1};
  const auto large = rounding_of(s, Tensors<float>{{1, 1e7f}, {1, 1}, {1, 2}, {1, 1}});  // the second query's scores are 1e7
  CHECK(large.lost_queries == Flags{0, 1});
  CHECK(large.lost_keys == Flags{1, 1});
  const auto clear = rounding_of({.seq_k = 2}, Tensors<float>{{3e3f}, {1e3f, -1e3f}, {1, 2}, {1}});
  CHECK(clear.lost_keys == Flags{1, 0});  // P of the second is exp(−6e6)
  const auto ordinary = rounding_of(s, Tensors<float>{{1, 1e4f}, {1, 1}, {1, 2}, {1, 1}});
  CHECK(ordinary.lost_keys == Flags{0, 0});

  // dS = ½ · 300 · 450 = 67500, beyond fp16.
  const reference::Format fp16{0x1p-11, 0x1p-24, 65504};
  const Tensors<float> beyond{{0, 0}, {1, 1}, {300, -300}, {1, 450}};
  CHECK(rounding_of(s, beyond).dq.may_overflow == Flags{0, 0});
  CHECK(rounding_of(s, beyond, fp16).dq.may_overflow == Flags{0, 1});
  CHECK(rounding_of(s, beyond, fp16).dk.may_overflow == Flags{1, 1});
  CHECK(rounding_of(s, beyond, fp16).dv.may_overflow == Flags{0, 0});
  const Tensors<float> huge{{0, 0}, {1, 1}, {1e20f, 1}, {1, 1e19f}};
  CHECK(rounding_of(s, huge).dq.may_overflow == Flags{0, 1});
  CHECK(rounding_of(s, huge).dv.may_overflow == Flags{0, 0});
}

// ---- the problem ----

TEST_CASE("the problem: 2.5 times the FLOPs of the forward pass, its Q, K and V, and a dO of its own") {
  const problem::Attention forward{.batch = 2, .heads = 4, .kv_heads = 2, .seq_q = 50, .seq_k = 70, .dim = 16, .causal = true};
  problem::Backward shape{forward};
  CHECK(shape.flops() == 10.0 * 16 * static_cast<double>(forward.dense_pairs()) * 4 * 2);
  shape.dtype = problem::Dtype::bf16;
  CHECK(shape.compulsory_bytes() == 2.0 * 4 * 16 * (2 * 4 * 50 + 2 * 2 * 70) + 4 * 2 * 4 * 50);
  CHECK(*problem::resolve(shape).scale == 0.25f);
  CHECK(problem::to_string(shape) == "batch 2, heads 4 over 2, 50 × 70, dim 16, causal, bf16");
  shape.heads = 3;
  CHECK_THROWS_AS(problem::resolve(shape), std::invalid_argument);
  shape.heads = 4;
  for (const auto kind : {problem::InputKind::normal, problem::InputKind::one_hot}) {
    const auto in = problem::make_inputs(shape, 7, kind);
    const auto as_forward = problem::make_inputs(static_cast<const problem::Attention&>(shape), 7, kind);
    CHECK(in.q.values == as_forward.q.values);
    CHECK(in.k.values == as_forward.k.values);
    CHECK(in.v.values == as_forward.v.values);
    CHECK(in.d_o.shape == in.q.shape);
    CHECK(in.d_o.values != in.q.values);
    CHECK((in.o.values.empty() && in.lse.values.empty()));
    double sum = 0, squares = 0;
    for (const float x : in.d_o.values) {
      sum += x;
      squares += static_cast<double>(x) * x;
      CHECK(x == problem::round_to(problem::Dtype::bf16, x));
    }
    const auto count = static_cast<double>(in.d_o.values.size());
    CHECK(std::abs(sum / count) < 0.05);
    CHECK(squares / count == Approx(1).epsilon(0.05));
  }
}
