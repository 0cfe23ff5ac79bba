// common/device/online_softmax.cuh: the merge operator that steps 03 and later share, on the device.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "common/runtime/runtime.h"
#include "tests/catch.h"
#include "tests/unit/online_softmax_kernels.h"

namespace {

using namespace online_softmax_kernels;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr Partial empty{-infinity, 0, {}};

// Scores around ±scale and values around 1, always the same.
std::vector<Score> random_scores(int count, float scale, unsigned seed) {
  std::mt19937 random(seed);
  const auto uniform = [&] { return static_cast<float>(random() % 20001) / 10000 - 1; };
  std::vector<Score> scores(count);
  for (Score& s : scores) {
    s.score = scale * uniform();
    for (float& v : s.value) v = 1 + 0.5f * uniform();
  }
  return scores;
}

// Attention of one row in double.
Finished exact(const std::vector<Score>& scores) {
  double m = -infinity, l = 0, o[dim] = {};
  for (const Score& s : scores) m = std::max(m, static_cast<double>(s.score));
  for (const Score& s : scores) {
    const double p = std::exp(s.score - m);
    l += p;
    for (int d = 0; d < dim; ++d) o[d] += p * s.value[d];
  }
  Finished result{{}, static_cast<float>(m + std::log(l))};
  for (int d = 0; d < dim; ++d) result.o[d] = static_cast<float>(o[d] / l);
  return result;
}

// All of them as one: neighbours first, then their results, as a tree.
Partial tree(std::vector<Partial> parts) {
  while (parts.size() > 1) {
    std::vector<Partial> a, b;
    if (parts.size() % 2 == 1) parts.push_back(empty);
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      a.push_back(parts[i]);
      b.push_back(parts[i + 1]);
    }
    parts = merged(a, b);
  }
  return parts[0];
}

// One after the other, each new one on the left or on the right.
Partial chain(const std::vector<Partial>& parts, bool new_on_the_left) {
  std::vector<Partial> all = {empty};
  for (const Partial& part : parts) all = new_on_the_left ? merged({part}, all) : merged(all, {part});
  return all[0];
}

bool close(float a, float b, float relative) { return std::abs(a - b) <= relative * std::max(std::abs(b), 1.0f); }

void check_equal(const Finished& result, const Finished& expected, float relative) {
  CHECK(close(result.lse, expected.lse, relative));
  for (int d = 0; d < dim; ++d) CHECK(close(result.o[d], expected.o[d], relative));
}

bool same_bits(const Partial& a, const Partial& b) {
  return std::bit_cast<std::array<std::uint32_t, 2 + dim>>(a) == std::bit_cast<std::array<std::uint32_t, 2 + dim>>(b);
}

// A few hundred states: parts of 1, 2, 4 … scores around ±1, ±100 and ±1000.
std::vector<Partial> states(unsigned seed) {
  std::vector<Partial> all;
  for (const float scale : {1.0f, 100.0f, 1000.0f}) {
    std::vector<Partial> level = singles(random_scores(64, scale, seed++));
    for (; level.size() > 1; level.resize(level.size() / 2)) {
      all.insert(all.end(), level.begin(), level.end());
      level = merged(level, std::vector<Partial>(level.rbegin(), level.rend()));
    }
  }
  return all;
}

}  // namespace

TEST_CASE("the exponentials of 1, 2, 3 sum to 1.503 below their maximum") {
  const Partial all = tree(singles({{1, {}}, {2, {}}, {3, {}}}));
  CHECK(close(all.m * std::log(2.0f), 3, 1e-6f));
  CHECK(close(all.l, 1.5032f, 1e-4f));  // e⁻² + e⁻¹ + e⁰; not 3.27
  CHECK(close(finished({all})[0].lse, 3.4076f, 1e-4f));
}

TEST_CASE("parts merge to the attention of the whole row, as a tree or one after the other, beyond scores of ±100") {
  for (const float scale : {0.0f, 1.0f, 30.0f, 150.0f, 5000.0f}) {
    for (const int count : {1, 2, 7, 64}) {
      const std::vector<Score> scores = random_scores(count, scale, 7);
      const std::vector<Partial> parts = singles(scores);
      std::vector<Partial> reversed(parts.rbegin(), parts.rend());
      const Finished expected = exact(scores);
      // A score of 5000 is a multiple of 2⁻¹¹: in base 2 it is rounded by as much.
      const float relative = 1e-6f * std::max(2.0f, scale);
      INFO(count << " scores around ±" << scale);
      for (const Partial& all :
           {tree(parts), tree(reversed), chain(parts, true), chain(parts, false), chain(reversed, false)}) {
        check_equal(finished({all})[0], expected, relative);
      }
    }
  }
}

TEST_CASE("⊕ is associative and commutative within rounding") {
  const std::vector<Partial> a = states(1), b = states(11), c = states(21);
  const auto left = finished(merged(merged(a, b), c)), right = finished(merged(a, merged(b, c)));
  const auto ab = finished(merged(a, b)), ba = finished(merged(b, a));
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO("states " << i);
    check_equal(left[i], right[i], 2e-6f);
    check_equal(ab[i], ba[i], 1e-6f);
  }
}

TEST_CASE("the empty part changes nothing by a bit, on either side") {
  const std::vector<Partial> a = states(1), nothing(a.size(), empty);
  const auto on_the_right = merged(a, nothing), on_the_left = merged(nothing, a);
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(same_bits(on_the_right[i], a[i]));
    CHECK(same_bits(on_the_left[i], a[i]));
  }
  CHECK(same_bits(merged({empty}, {empty})[0], empty));
}

TEST_CASE("a row without scores, or with masked ones alone, gives O = 0 and LSE = −∞; masked scores change nothing") {
  const Score masked{-infinity, {1, 2, 3}};
  const std::vector<Partial> none = singles({masked, masked});
  for (const Partial& part : {empty, merged({empty}, {none[0]})[0], merged({none[0]}, {none[1]})[0]}) {
    CHECK(part.m == -infinity);
    CHECK(part.l == 0);
    const Finished row = finished({part})[0];
    CHECK(row.lse == -infinity);
    for (const float o : row.o) CHECK(o == 0);
  }
  const std::vector<Score> seen = random_scores(9, 3, 5);
  const Partial with_masked = merged({none[0]}, {tree(singles(seen))})[0];
  check_equal(finished({with_masked})[0], exact(seen), 1e-5f);
}

TEST_CASE("merging blocks is a weighted sum of partial outputs, not a concatenation of probabilities") {
  const std::vector<Score> first = {{1, {1, 0, 0}}, {2, {0, 1, 0}}}, second = {{4, {0, 0, 1}}};
  const std::vector<Score> both = {first[0], first[1], second[0]};
  const Partial one = tree(singles(first)), two = singles(second)[0];
  const Finished whole = finished(merged({one}, {two}))[0];
  check_equal(whole, exact(both), 1e-5f);
  // V are unit vectors, so O is the row of probabilities. Each block's own sum to 1, side by side to 2.
  const std::vector<Finished> alone = finished({one, two});
  CHECK(close(alone[0].o[0] + alone[0].o[1], 1, 1e-6f));
  CHECK(close(alone[1].o[2], 1, 1e-6f));
  CHECK(close(whole.o[0] + whole.o[1] + whole.o[2], 1, 1e-6f));
  // The weights of the sum are each block's share of the exponentials: exp(LSE of the block − LSE of the row).
  const float weights[] = {std::exp(alone[0].lse - whole.lse), std::exp(alone[1].lse - whole.lse)};
  CHECK(close(weights[0] + weights[1], 1, 1e-5f));
  for (int d = 0; d < dim; ++d) CHECK(close(weights[0] * alone[0].o[d] + weights[1] * alone[1].o[d], whole.o[d], 1e-5f));
  CHECK(std::abs((alone[0].o[0] + alone[1].o[0]) / 2 - whole.o[0]) > 0.05f);  // nor their mean
}

TEST_CASE("a maximum started at 0 loses a row whose scores lie far below: it starts at −∞") {
  const std::vector<Partial> low = singles({{-200, {1, 1, 1}}, {-201, {2, 2, 2}}});
  check_equal(finished({chain(low, false)})[0], exact({{-200, {1, 1, 1}}, {-201, {2, 2, 2}}}), 1e-4f);
  const Partial from_zero{0, 0, {}};
  const Partial lost = merged(merged({from_zero}, {low[0]}), {low[1]})[0];
  CHECK(lost.l == 0);
  CHECK(finished({lost})[0].o[0] == 0);  // where it should be between 1 and 2
}

TEST_CASE("a large number is no mask: −10⁶ takes part where the scores are lower, −∞ never does") {
  const Score seen{-2e6f, {1, 1, 1}};
  const auto with_mask = [&](float mask) { return finished(merged(singles({seen}), singles({{mask, {9, 9, 9}}})))[0].o[0]; };
  CHECK(with_mask(-1e6f) == 9);
  CHECK(with_mask(-infinity) == 1);
}

TEST_CASE("NaN and +∞ are not hidden") {
  const Partial fine = singles({{1, {1, 1, 1}}})[0];
  CHECK(std::isnan(finished(merged({fine}, {{0, not_a_number, {}}}))[0].o[0]));
  CHECK(std::isnan(finished(merged({fine}, singles({{infinity, {1, 1, 1}}})))[0].o[0]));
}

TEST_CASE("exp2_fast is 2^x to a few ulp, 1 at 0, and 0 at −∞ and where the result would be subnormal") {
  std::vector<float> x;
  for (int i = 0; i <= 125 * 64; ++i) x.push_back(static_cast<float>(-i) / 64);
  const std::vector<float> y = powers_of_two(x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(y[i] / std::exp2(static_cast<double>(x[i])) - 1));
  CHECK(worst < 4 * 0x1p-23);
  CHECK(powers_of_two({0.0f, -infinity, -127.0f, -1000.0f}) == std::vector<float>{1, 0, 0, 0});
  CHECK(std::isnan(powers_of_two({not_a_number})[0]));
}

TEST_CASE("the factor that brings a part to a new maximum is 2^(from − to), 1 where nothing moved, 0 for an empty part") {
  CHECK(factors({3, 5, -infinity, -infinity}, {4, 5, 5, -infinity}) == std::vector<float>{0.5f, 1, 0, 0});
}
