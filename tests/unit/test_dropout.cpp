// Dropout: the generator against its known answers, what kernels use against the reference, what randomness means here, and a
// judge that rejects wrong masks. The kernels themselves run in the tests of the steps that drop.
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/device/dropout.h"
#include "common/reference/dropout.h"
#include "common/run/family/attention.h"
#include "common/run/family/backward.h"
#include "common/run/family/baseline_rounding.h"
#include "tests/catch.h"

namespace {

using problem::Attention;
using problem::Dtype;
using problem::Tensor;
using reference::AttentionSpec;
using reference::kept_weight;
using Words = std::array<std::uint32_t, 4>;

Words of_device(const device::PhiloxWords& words) { return {words.x[0], words.x[1], words.x[2], words.x[3]}; }

Attention dropped(int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim, int n, bool causal = false,
                  Dtype dtype = Dtype::fp16) {
  Attention a{.batch = batch, .heads = heads, .kv_heads = kv_heads, .seq_q = seq_q, .seq_k = seq_k, .dim = dim};
  a.causal = causal;
  a.dtype = dtype;
  a.dropout = n;
  a.dropout_seed = 7;
  return problem::resolve(a);
}

// What P of a pair is multiplied by.
using Weight = std::function<double(int batch, int head, int query, int key)>;
Weight honest(const AttentionSpec& spec) {
  return [spec](int batch, int head, int query, int key) { return kept_weight(spec, batch, head, query, key); };
}
Weight with_seed(AttentionSpec spec, std::uint64_t seed) {
  spec.dropout_seed = seed;
  return honest(spec);
}

}  // namespace

TEST_CASE("Philox 4×32 gives the known answers of Random123, seven rounds and ten, on both sides") {
  struct Known {
    Words counter;
    std::array<std::uint32_t, 2> key;
    Words seven, ten;
  };
  constexpr std::uint32_t ones = 0xffffffff;
  const std::vector<Known> known = {{{0, 0, 0, 0},
                                     {0, 0},
                                     {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48},
                                     {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                                    {{ones, ones, ones, ones},
                                     {ones, ones},
                                     {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662},
                                     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                                    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},  // the digits of π
                                     {0xa4093822, 0x299f31d0},
                                     {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a},
                                     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const Known& k : known) {
    const device::PhiloxWords counter{{k.counter[0], k.counter[1], k.counter[2], k.counter[3]}};
    const std::uint64_t seed = k.key[0] | std::uint64_t{k.key[1]} << 32;
    CHECK(of_device(device::philox_4x32(counter, device::philox_keys<7>(seed))) == k.seven);
    CHECK(of_device(device::philox_4x32(counter, device::philox_keys<10>(seed))) == k.ten);
    CHECK(reference::philox_4x32(k.counter, k.key, 7) == k.seven);
    CHECK(reference::philox_4x32(k.counter, k.key, 10) == k.ten);
  }
}

TEST_CASE("four bytes at once are compared as each alone, for every byte and every threshold") {
  for (int n = 1; n < 256; ++n) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t word = byte | (byte ^ 0x80) << 8 | (255 - byte) << 16 | byte * 7 % 256 << 24;
      const std::uint32_t bits = device::at_least(word, n);
      constexpr std::uint32_t highest = 0x80808080u;
      if ((bits & highest) != (device::at_least(word, device::byte_threshold(n)) & highest))
        FAIL("two forms of " << word << ", n " << n);
      for (int b = 0; b < 4; ++b) {
        const bool expected = static_cast<int>(word >> 8 * b & 255) >= n;
        if ((bits >> (8 * b + 7) & 1) != static_cast<std::uint32_t>(expected))
          FAIL("byte " << b << " of " << word << ", n " << n);
      }
    }
  }
}

TEST_CASE("kernels and reference keep the same pairs, and multiply them by the same factor") {
  for (const int n : {1, 26, 127, 128, 129, 255}) {
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
      const AttentionSpec spec{.dropout = n, .dropout_seed = seed};
      const device::Dropout kernels = device::make_dropout(seed, n);
      CHECK(kernels.factor() == Approx(256.0 / (256 - n)).epsilon(1e-7));
      for (int i = 0; i < 70; i += 3) {
        for (int j = 0; j < 70; ++j) {
          for (const auto& [batch, head] : {std::pair{0, 0}, {1, 0}, {0, 5}, {65535, 65535}}) {
            REQUIRE((kept_weight(spec, batch, head, i, j) > 0) == kernels.keeps(batch, head, i, j));
          }
        }
      }
      const int far = (1 << 30) - 2;
      CHECK((kept_weight(spec, 0, 0, far, far) > 0) == kernels.keeps(0, 0, far, far));
    }
  }
}

TEST_CASE(
    "as many pairs are left out as asked; neighbours, heads, batch entries and seeds have nothing to do with each other") {
  constexpr int rows = 256, columns = 256;
  constexpr double pairs = rows * columns;
  for (const int n : {26, 128, 230}) {
    const double p = n / 256.0, deviation = std::sqrt(p * (1 - p) / pairs);
    const AttentionSpec spec{.dropout = n, .dropout_seed = 3};
    const auto left_out = [](const AttentionSpec& s, int batch, int head, int i, int j) {
      return kept_weight(s, batch, head, i, j) == 0 ? 1.0 : 0.0;
    };
    double share = 0;
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) share += left_out(spec, 0, 0, i, j) / pairs;
    }
    INFO("n " << n);
    CHECK(std::abs(share - p) < 4 * deviation);

    AttentionSpec other_seed = spec, high_seed = spec;
    other_seed.dropout_seed = 4;
    high_seed.dropout_seed = 3 + (std::uint64_t{1} << 32);
    struct Other {
      const AttentionSpec& spec;
      int batch, head, rows_down, columns_on;
    };
    // The other pairs of a call (8 rows, 8 columns away), neighbours, the next block of 32, and the transposed pair.
    const std::vector<Other> others = {{spec, 0, 0, 0, 1},       {spec, 0, 0, 1, 0},     {spec, 0, 0, 0, 8},
                                       {spec, 0, 0, 8, 0},       {spec, 0, 0, 0, 32},    {spec, 0, 0, 32, 0},
                                       {spec, 0, 1, 0, 0},       {spec, 1, 0, 0, 0},     {spec, 1, 1, 0, 0},
                                       {other_seed, 0, 0, 0, 0}, {high_seed, 0, 0, 0, 0}};
    for (const Other& other : others) {
      double both = 0;
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
          both += left_out(spec, 0, 0, i, j) *
                  left_out(other.spec, other.batch, other.head, i + other.rows_down, j + other.columns_on) / pairs;
        }
      }
      INFO("batch " << other.batch << ", head " << other.head << ", " << other.rows_down << " down, " << other.columns_on
                    << " on");
      CHECK(std::abs(both - p * p) < 5 * std::sqrt(p * p * (1 - p * p) / pairs));
    }
    double transposed = 0;
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < i; ++j) transposed += left_out(spec, 0, 0, i, j) * left_out(spec, 0, 0, j, i);
    }
    const double below = rows * (rows - 1) / 2.0;
    CHECK(std::abs(transposed / below - p * p) < 5 * std::sqrt(p * p * (1 - p * p) / below));
  }
}

TEST_CASE("the truth by hand: a pair that is left out adds nothing, the other is multiplied, LSE does not move") {
  const AttentionSpec plain{.seq_k = 2, .scale = 1};
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    AttentionSpec spec = plain;
    spec.dropout = 128;
    spec.dropout_seed = seed;
    const auto rows = reference::all_rows(spec);
    const std::vector<float> q = {0}, k = {1, 2}, v = {10, 30};
    const auto made = reference::forward(spec, rows, std::span<const float>(q), k, v);
    const double a = kept_weight(spec, 0, 0, 0, 0), b = kept_weight(spec, 0, 0, 0, 1);
    CHECK((a == 0 || a == 2));
    CHECK(made.o[0] == Approx(0.5 * a * 10 + 0.5 * b * 30));
    CHECK(made.lse[0] == Approx(std::log(2.0)));
  }
}

TEST_CASE("what cannot be is refused by name") {
  Attention a{.seq_q = 4, .seq_k = 4};
  for (const int n : {-1, 256}) {
    a.dropout = n;
    CHECK_THROWS_WITH(problem::resolve(a), ContainsSubstring("of 256; it must be 0 to 255"));
  }
  a = {.heads = 9, .kv_heads = 9, .seq_q = 8192, .seq_k = 8192, .dropout = 3, .writes_mask = true};
  CHECK_THROWS_WITH(problem::resolve(a), ContainsSubstring("mask.npy) would be larger than 1 GB"));
}

// ---- the judge ----

namespace {

// O in fp32; `before` the sum, or behind it.
Tensor attend(const Attention& a, const problem::AttentionInputs& in, const Weight& weight, bool before = false) {
  Tensor o(in.q.shape);
  const int group = a.heads / a.kv_heads;
  for (int b = 0; b < a.batch; ++b) {
    for (int h = 0; h < a.heads; ++h) {
      for (int i = 0; i < a.seq_q; ++i) {
        const float* q = &in.q.values[((std::int64_t{b} * a.heads + h) * a.seq_q + i) * a.dim];
        const std::int64_t first = (std::int64_t{b} * a.kv_heads + h / group) * a.seq_k;
        std::vector<float> sum(a.dim, 0.0f);
        float total = 0;
        for (int j = a.first_key(i); j < a.last_key(i); ++j) {
          float s = 0;
          for (int d = 0; d < a.dim; ++d) s += q[d] * in.k.values[(first + j) * a.dim + d];
          const float e = std::exp(*a.scale * s - 8), w = static_cast<float>(weight(b, h, i, j));
          total += before && w == 0 ? 0 : e;
          for (int d = 0; d < a.dim; ++d) sum[d] += e * (before && w > 0 ? 1 : w) * in.v.values[(first + j) * a.dim + d];
        }
        for (int d = 0; d < a.dim; ++d) {
          o.values[((std::int64_t{b} * a.heads + h) * a.seq_q + i) * a.dim + d] =
              problem::round_to(a.dtype, total > 0 ? sum[d] / total : 0);
        }
      }
    }
  }
  return o;
}

const std::vector<Attention> judged = {dropped(2, 2, 2, 40, 40, 32, 64), dropped(2, 4, 2, 33, 70, 64, 26, true),
                                       dropped(2, 2, 1, 50, 20, 40, 200),
                                       dropped(2, 2, 2, 20, 64, 32, 128, false, Dtype::bf16)};

}  // namespace

TEST_CASE("wrong masks of the forward pass are rejected, the right one accepted") {
  for (const Attention& a : judged) {
    const auto in = problem::make_inputs(a, 3);
    const run::AttentionTruth truth(a, in);
    const AttentionSpec spec = run::spec_of(a);
    Tensor lse({a.batch, a.heads, a.seq_q});
    const auto exact =
        reference::forward(spec, reference::all_rows(spec), std::span<const float>(in.q.values), in.k.values, in.v.values);
    std::copy(exact.lse.begin(), exact.lse.end(), lse.values.begin());
    const auto accepts = [&](const Tensor& o) { return truth.judge(o, lse)[0].pass; };
    const Weight right = honest(spec);
    INFO(problem::to_string(a));
    CHECK(accepts(attend(a, in, right)));
    const double factor = 256.0 / (256 - a.dropout);
    const std::vector<std::pair<std::string, Weight>> wrong = {
        {"no mask", [](int, int, int, int) { return 1.0; }},
        {"inverted", [=](int b, int h, int i, int j) { return factor - right(b, h, i, j); }},
        {"of another head", [=](int b, int h, int i, int j) { return right(b, h ^ 1, i, j); }},
        {"of another batch entry", [=](int b, int h, int i, int j) { return right(b ^ 1, h, i, j); }},
        {"of the next query", [=](int b, int h, int i, int j) { return right(b, h, i + 1, j); }},
        {"of the next key", [=](int b, int h, int i, int j) { return right(b, h, i, j + 1); }},
        {"transposed", [=](int b, int h, int i, int j) { return right(b, h, j, i); }},
        {"another seed", with_seed(spec, 8)},
        {"the high half of the seed", with_seed(spec, 7 + (std::uint64_t{1} << 32))},
        {"factor missing", [=](int b, int h, int i, int j) { return right(b, h, i, j) / factor; }},
        {"factor twice", [=](int b, int h, int i, int j) { return right(b, h, i, j) * factor; }}};
    for (const auto& [name, weight] : wrong) {
      INFO(name);
      CHECK_FALSE(accepts(attend(a, in, weight)));
    }
    INFO("applied before the sum");
    CHECK_FALSE(accepts(attend(a, in, right, true)));
  }
}

TEST_CASE("wrong masks of the backward pass are rejected, the right one accepted") {
  for (const Attention& shape : judged) {
    const problem::Backward a{shape};
    auto in = problem::make_inputs(a, 3);
    const AttentionSpec spec = run::spec_of(a);
    const auto rows = reference::all_rows(spec);
    in.o = Tensor(in.q.shape);
    in.lse = Tensor({a.batch, a.heads, a.seq_q});
    in.o.values = reference::baseline(spec, rows, in.q.values, in.k.values, in.v.values, run::round_to_dtype(a.dtype));
    const auto exact = reference::forward(spec, rows, std::span<const float>(in.q.values), in.k.values, in.v.values);
    std::copy(exact.lse.begin(), exact.lse.end(), in.lse.values.begin());
    const run::BackwardTruth truth(a, in);
    // Gradients with one mask in dP and another in dV.
    const auto rejected = [&](const Weight& in_dp, const Weight& in_dv) {
      Tensor dq(in.q.shape), dk(in.k.shape), dv(in.k.shape);
      const int group = a.heads / a.kv_heads;
      for (const reference::Row& row : rows) {
        const std::int64_t query = reference::flat_index(spec, row),
                           first = (std::int64_t{row.batch} * a.kv_heads + row.head / group) * a.seq_k;
        float big_d = 0;
        for (int d = 0; d < a.dim; ++d) big_d += in.d_o.values[query * a.dim + d] * in.o.values[query * a.dim + d];
        for (int j = a.first_key(row.query); j < a.last_key(row.query); ++j) {
          float s = 0, dp = 0;
          for (int d = 0; d < a.dim; ++d) {
            s += in.q.values[query * a.dim + d] * in.k.values[(first + j) * a.dim + d];
            dp += in.d_o.values[query * a.dim + d] * in.v.values[(first + j) * a.dim + d];
          }
          const float p = std::exp(*a.scale * s - in.lse.values[query]);
          const auto of_dp = static_cast<float>(in_dp(row.batch, row.head, row.query, j));
          const auto of_dv = static_cast<float>(in_dv(row.batch, row.head, row.query, j));
          const float ds = *a.scale * p * (of_dp * dp - big_d);
          for (int d = 0; d < a.dim; ++d) {
            dq.values[query * a.dim + d] += ds * in.k.values[(first + j) * a.dim + d];
            dk.values[(first + j) * a.dim + d] += ds * in.q.values[query * a.dim + d];
            dv.values[(first + j) * a.dim + d] += p * of_dv * in.d_o.values[query * a.dim + d];
          }
        }
      }
      for (Tensor* tensor : {&dq, &dk, &dv}) {
        for (float& x : tensor->values) x = problem::round_to(a.dtype, x);
      }
      const auto verdicts = truth.judge(dq, dk, dv);
      return std::array{!verdicts[0].pass, !verdicts[1].pass, !verdicts[2].pass};
    };
    const Weight right = honest(spec), other = with_seed(spec, 8);
    const double factor = 256.0 / (256 - a.dropout);
    const Weight bare = [=](int b, int h, int i, int j) { return right(b, h, i, j) / factor; };
    const Weight inverted = [=](int b, int h, int i, int j) { return factor - right(b, h, i, j); };
    const Weight head = [=](int b, int h, int i, int j) { return right(b, h ^ 1, i, j); };
    using Rejected = std::array<bool, 3>;
    INFO(problem::to_string(a));
    CHECK(rejected(right, right) == Rejected{false, false, false});
    for (const Weight& wrong : {other, bare, inverted, head}) {
      CHECK(rejected(wrong, wrong) == Rejected{true, true, true});  // another mask backwards than forwards
      CHECK(rejected(wrong, right) == Rejected{true, true, false});
      CHECK(rejected(right, wrong) == Rejected{false, false, true});
    }
  }
}
