// The judge of linear layers: hand-worked numbers, honest results that it must accept, and broken ones that it must reject.
#include <cmath>
#include <functional>
#include <limits>

#include "common/problem/linear.h"
#include "common/run/family/linear.h"
#include "tests/catch.h"

namespace {

using problem::Activation;
using problem::Dtype;
using problem::Linear;
using problem::LinearInputs;
using problem::Tensor;

// How a broken layer differs from a right one.
struct Fault {
  bool no_bias = false;
  bool other_weights = false;  // entry e meets weights e mod the count, and not e / the ratio
  bool activation_before_bias = false;
  bool tanh_gelu = false;
  bool unrounded_tokens = false;
  bool last_element_of_k_lost = false;
};

float activated(Activation activation, float x, const Fault& fault) {
  if (activation == Activation::gelu && fault.tanh_gelu) {
    return 0.5f * x * (1 + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
  }
  if (activation == Activation::relu) return x < 0 ? 0 : x;
  if (activation == Activation::gelu) return x * (0.5f * (1 + std::erf(x * 0.70710678f)));
  if (activation == Activation::silu) return x / (1 + std::exp(-x));
  return x;
}

// An honest fp32 implementation, but for the fault.
Tensor computed(const Linear& g, const LinearInputs& in, const Fault& fault) {
  Tensor c({g.samples, g.channels, g.m, g.n});
  for (std::int64_t row = 0; row < g.entries() * g.m; ++row) {
    const std::int64_t entry = row / g.m;
    const std::int64_t weights = fault.other_weights ? entry % g.weight_entries() : g.weights_of(entry);
    for (int j = 0; j < g.n; ++j) {
      float sum = 0;
      for (int i = 0; i < g.k - (fault.last_element_of_k_lost ? 1 : 0); ++i) {
        const float token = in.a.values[row * g.k + i];
        sum +=
            (fault.unrounded_tokens ? token : problem::round_to(g.dtype, token)) * in.b.values[(weights * g.n + j) * g.k + i];
      }
      const float bias = in.bias && !fault.no_bias ? in.bias->values[weights * g.n + j] : 0;
      const float x = fault.activation_before_bias ? activated(g.activation, sum, fault) + bias
                                                   : activated(g.activation, sum + bias, fault);
      c.values[row * g.n + j] = problem::round_to(*g.dtype_c, x);
    }
  }
  return c;
}

check::TensorVerdict judged(const Linear& requested, const Fault& fault, problem::LinearInputKind kind = {}) {
  const Linear g = problem::resolve(requested);
  const LinearInputs in = problem::make_inputs(g, 3, kind);
  return run::LinearTruth(g, in).judge(computed(g, in, fault));
}

Linear shape(Activation activation, Dtype dtype, Dtype dtype_c, int k = 40) {
  return {.samples = 2,
          .channels = 4,
          .weight_samples = 1,
          .weight_channels = 2,
          .m = 3,
          .n = 9,
          .k = k,
          .dtype = dtype,
          .dtype_a = Dtype::fp32,
          .dtype_c = dtype_c,
          .activation = activation,
          .bias = true};
}

const Activation activations[] = {Activation::none, Activation::relu, Activation::gelu, Activation::silu};

}  // namespace

TEST_CASE("an entry of tokens meets the weights of its sample and channel, by the ratios") {
  const Linear g = problem::resolve(Linear{.samples = 4, .channels = 6, .weight_samples = 2, .weight_channels = 3});
  std::vector<std::int64_t> met;
  for (std::int64_t entry = 0; entry < g.entries(); ++entry) met.push_back(g.weights_of(entry));
  CHECK(met == std::vector<std::int64_t>{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 3, 3, 4, 4, 5, 5});
}

TEST_CASE("a linear layer costs what its arrays and products say") {
  const Linear g = problem::resolve(Linear{.channels = 4,
                                           .weight_channels = 2,
                                           .m = 3,
                                           .n = 5,
                                           .k = 7,
                                           .dtype_a = Dtype::fp32,
                                           .dtype_c = Dtype::bf16,
                                           .bias = true});
  CHECK(g.flops() == 2 * 4 * 3 * 5 * 7);
  CHECK(g.compulsory_bytes() == 4 * (4 * 3 * 7) + 2 * (2 * 5 * 7) + 2 * (2 * 5) + 2 * (4 * 3 * 5));
}

TEST_CASE("the activations are those of PyTorch, at numbers worked out by hand, and at what is not finite") {
  using reference::activate;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CHECK(activate(reference::Activation::none, -3.0) == -3);
  CHECK(activate(reference::Activation::relu, -3.0) == 0);
  CHECK(activate(reference::Activation::relu, 2.0) == 2);
  CHECK(activate(reference::Activation::relu, -infinity) == 0);
  CHECK(std::isnan(activate(reference::Activation::relu, std::numeric_limits<double>::quiet_NaN())));
  CHECK(activate(reference::Activation::gelu, 1.0) == Approx(0.8413447460685429));
  CHECK(activate(reference::Activation::gelu, -1.0) == Approx(-0.15865525393145707));
  CHECK(activate(reference::Activation::silu, 1.0) == Approx(0.7310585786300049));
  CHECK(activate(reference::Activation::silu, -1.0) == Approx(-0.2689414213699951));
  for (const auto activation : {reference::Activation::gelu, reference::Activation::silu}) {
    CHECK(activate(activation, infinity) == infinity);
    CHECK(std::isnan(activate(activation, -infinity)));  // −∞ · 0
    CHECK(activate(activation, -1e30) == 0);
  }
}

TEST_CASE("honest linear layers pass, in every type, with every activation, and with sums that cancel") {
  for (const Activation activation : activations) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      for (const Dtype dtype_c : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
        for (const auto kind : {problem::LinearInputKind::normal, problem::LinearInputKind::cancelling}) {
          for (const int k : {1, 40, 700}) {
            const check::TensorVerdict verdict = judged(shape(activation, dtype, dtype_c, k), {}, kind);
            INFO(problem::to_string(problem::resolve(shape(activation, dtype, dtype_c, k))) << ": " << verdict.reason);
            CHECK(verdict.pass);
          }
        }
      }
    }
  }
}

TEST_CASE("broken linear layers are rejected, whatever type C has") {
  const auto rejected = [](Activation activation, const Fault& fault) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      for (const Dtype dtype_c : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
        const Linear g = shape(activation, dtype, dtype_c);
        INFO(problem::to_string(problem::resolve(g)));
        CHECK_FALSE(judged(g, fault).pass);
      }
    }
  };
  for (const Activation activation : activations) {
    rejected(activation, {.no_bias = true});
    rejected(activation, {.other_weights = true});
    rejected(activation, {.last_element_of_k_lost = true});
    if (activation != Activation::none) rejected(activation, {.activation_before_bias = true});
  }
  // What is as small as the rounding of a 16-bit C shows where C is fp32.
  CHECK_FALSE(judged(shape(Activation::gelu, Dtype::fp16, Dtype::fp32), {.tanh_gelu = true}).pass);
  CHECK_FALSE(judged(shape(Activation::none, Dtype::fp16, Dtype::fp32), {.unrounded_tokens = true}).pass);
  CHECK_FALSE(judged(shape(Activation::none, Dtype::bf16, Dtype::fp32), {.unrounded_tokens = true}).pass);
}

TEST_CASE("a layer whose rows are sampled is still asked for every element") {
  const Linear g = problem::resolve(Linear{.m = 600, .n = 2100, .k = 2000, .dtype_c = Dtype::fp32});
  LinearInputs in{Tensor({1, 1, g.m, g.k}, 1.0f), Tensor({1, 1, g.n, g.k}, 0.5f), std::nullopt};
  const run::LinearTruth truth(g, in);
  Tensor c({1, 1, g.m, g.n}, 1000.0f);
  CHECK(truth.judge(c).pass);
  c.values[std::int64_t{300} * g.n + 5] = check::poison_value(Dtype::fp32);
  CHECK_FALSE(truth.judge(c).pass);
  c.values[std::int64_t{300} * g.n + 5] = std::numeric_limits<float>::infinity();
  CHECK_FALSE(truth.judge(c).pass);
}
