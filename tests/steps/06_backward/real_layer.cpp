// Step 06 on real input: the gradient of a loss through one layer of a real model, as PyTorch's autograd computed it in float64
// when the data was made (data/minilm_layer). The reference agrees with it, and so does every variant, as far as its type can.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "common/check/verdict.h"
#include "common/problem/npy.h"
#include "common/reference/attention.h"
#include "common/run/family/attention_truth.h"
#include "common/run/family/baseline_rounding.h"
#include "tests/catch.h"
#include "tests/suites/backward_suite.h"

namespace {

using problem::Dtype;
using problem::Tensor;
using reference::Gradients;
using Numbers = std::vector<double>;

constexpr int all_heads = 12, tokens = 207, dim = 32, width = all_heads * dim;
constexpr int heads[] = {4, 8};  // a sharp one and a broad one; the tour takes all
constexpr int head_count = std::size(heads), rows = head_count * tokens;

const reference::AttentionSpec spec = {
    .heads = head_count, .kv_heads = head_count, .seq_q = tokens, .seq_k = tokens, .dim = dim, .scale = 1 / std::sqrt(32.0)};

Tensor stored(const std::string& name) { return problem::read_npy("data/minilm_layer/" + name + ".npy").tensor; }

// Our heads of a stored [1, 12, tokens, dim].
Numbers of_heads(const std::string& name) {
  const Tensor all = stored(name);
  REQUIRE(all.shape == std::vector<std::int64_t>{1, all_heads, tokens, dim});
  Numbers some;
  for (const int head : heads) {
    const auto first = all.values.begin() + head * tokens * dim;
    some.insert(some.end(), first, first + tokens * dim);
  }
  REQUIRE(std::all_of(some.begin(), some.end(), [](double x) { return std::isfinite(x); }));
  return some;
}

// x Wᵀ + b of our heads: Q, K or V by the part of W and b.
Numbers projected(int part) {
  const Tensor x = stored("x"), weight = stored("in_proj_weight"), bias = stored("in_proj_bias");
  Numbers result;
  for (const int head : heads) {
    for (int i = 0; i < tokens; ++i) {
      for (int t = 0; t < dim; ++t) {
        const int out = part * width + head * dim + t;
        double sum = bias.values[out];
        for (int in = 0; in < width; ++in) sum += double{x.values[i * width + in]} * weight.values[out * width + in];
        result.push_back(sum);
      }
    }
  }
  return result;
}

// All are [heads, tokens, dim], in double.
struct Layer {
  Numbers q = projected(0), k = projected(1), v = projected(2), d_o = of_heads("do");
  Gradients gradients = {of_heads("dq"), of_heads("dk"), of_heads("dv")};  // the committed ones
};

// The same problem with Q, K, V and dO rounded to a type.
suite::BackwardCase rounded(const Layer& layer, Dtype dtype) {
  problem::Attention shape;
  shape.heads = shape.kv_heads = head_count;
  shape.seq_q = shape.seq_k = tokens;
  shape.dim = dim;
  shape.dtype = dtype;
  const auto tensor = [&](const Numbers& values) {
    Tensor result({1, head_count, tokens, dim});
    std::transform(values.begin(), values.end(), result.values.begin(),
                   [&](double x) { return problem::round_to(dtype, static_cast<float>(x)); });
    return result;
  };
  return suite::ready(run::this_step_as<run::BackwardStep>(), problem::resolve(shape),
                      {tensor(layer.q), tensor(layer.k), tensor(layer.v), tensor(layer.d_o)});
}

// The checker's rule for rows of gradients (docs/checking.md), with the committed gradient for the truth: the largest error of
// a row is at most three times the baseline's, or three times the floor. The baseline's error is its distance from the
// reference's gradient of the layer as it is. The baseline gets rounded inputs, so the rule allows for their rounding.
class Judge {
 public:
  Judge(const Layer& layer, const suite::BackwardCase& c)
      : truth_(layer.gradients),
        exact_(reference::backward(spec, layer.q, layer.k, layer.v, layer.d_o)),
        dtype_(c.shape.dtype) {
    const auto& [q, k, v, d_o, o, lse] = c.inputs;
    const reference::BackwardRows all = reference::all_backward_rows(spec);
    baseline_ = reference::backward_baseline(spec, all, q.values, k.values, v.values, d_o.values, o.values, lse.values,
                                             run::round_to_dtype(dtype_));
    in_fp32_ = reference::backward_rounding(spec, all, q.values, k.values, v.values, d_o.values, o.values, lse.values,
                                            reference::backward(spec, q.values, k.values, v.values, d_o.values));
  }

  // Error over allowed error, of the worst row.
  template <class T>
  double of_dq(const std::vector<T>& made) const {
    return worst_row(made, truth_.dq, exact_.dq, baseline_.dq, in_fp32_.dq);
  }
  template <class T>
  double of_dk(const std::vector<T>& made) const {
    return worst_row(made, truth_.dk, exact_.dk, baseline_.dk, in_fp32_.dk);
  }
  template <class T>
  double of_dv(const std::vector<T>& made) const {
    return worst_row(made, truth_.dv, exact_.dv, baseline_.dv, in_fp32_.dv);
  }

 private:
  template <class T>
  double worst_row(const std::vector<T>& made, const Numbers& truth, const Numbers& exact, const std::vector<float>& baseline,
                   const reference::SumRounding& in_fp32) const {
    REQUIRE(made.size() == truth.size());
    double worst = 0;
    for (int row = 0; row < rows; ++row) {
      double largest = 0, error = 0, honest = 0;
      for (int e = row * dim; e < (row + 1) * dim; ++e) {
        if (!std::isfinite(made[e])) return std::numeric_limits<double>::infinity();
        largest = std::max(largest, std::abs(exact[e]));
        error = std::max(error, std::abs(made[e] - truth[e]));
        honest = std::max({honest, std::abs(baseline[e] - exact[e]), in_fp32.sum[e]});
      }
      const double floor = (dtype_ == Dtype::fp32 ? 16 : 2) * check::ulp(dtype_, largest);
      worst = std::max(worst, error / (3 * std::max(honest, floor)));
    }
    return worst;
  }

  const Gradients& truth_;
  Gradients exact_;
  Dtype dtype_;
  reference::GradientsBaseline baseline_;
  reference::GradientRounding in_fp32_;  // what rounding in fp32 can amount to, whatever the order of the sums
};

Numbers times(double factor, Numbers values) {
  for (double& x : values) x *= factor;
  return values;
}

}  // namespace

TEST_CASE("on a real layer the reference has the gradient of PyTorch's autograd, up to rounding to fp32") {
  const Layer layer;
  const Gradients made = reference::backward(spec, layer.q, layer.k, layer.v, layer.d_o);
  // dO and the result are stored in fp32: two roundings, each of 2⁻²⁴.
  const auto off = [](const Numbers& a, const Numbers& b) {
    double largest = 0, difference = 0;
    for (std::size_t e = 0; e < a.size(); ++e) {
      largest = std::max(largest, std::abs(a[e]));
      difference = std::max(difference, std::abs(a[e] - b[e]));
    }
    return difference / largest;
  };
  CHECK(off(layer.gradients.dq, made.dq) < 0x1p-23);
  CHECK(off(layer.gradients.dk, made.dk) < 0x1p-23);
  CHECK(off(layer.gradients.dv, made.dv) < 0x1p-23);
}

TEST_CASE("on a real layer every variant agrees with PyTorch's autograd, as far as fp32, fp16 or bf16 can") {
  const Layer layer;
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const suite::BackwardCase c = rounded(layer, dtype);
    const Judge judge(layer, c);
    int ran = 0;
    for (const run::BackwardVariant& variant : run::this_step_as<run::BackwardStep>().variants) {
      if (run::refusal(variant.supports, c.shape)) continue;
      // In 16 bits the tour runs them: they take the simulator long.
      if (dtype != Dtype::fp32 && (variant.name == "standard" || variant.name == "recompute")) continue;
      const run::Outcome outcome = suite::clean(variant, c);
      INFO(variant.name << ", " << problem::name(dtype));
      CHECK(judge.of_dq(outcome.output("dq").values) <= 1);
      CHECK(judge.of_dk(outcome.output("dk").values) <= 1);
      CHECK(judge.of_dv(outcome.output("dv").values) <= 1);
      ++ran;
    }
    CHECK(ran >= 2);
  }
}

TEST_CASE("on a real layer wrong gradients do not agree: D dropped, no scale, the last queries left out") {
  const Layer layer;
  // Without D, dS has P ∘ D more: dQ has scale · D ∘ (P K) more, and dK has what dV would be if dO were scale · D ∘ Q.
  const std::vector<reference::Row> all = reference::all_rows(spec);
  const Numbers o = reference::forward(spec, all, layer.q, layer.k, layer.v).o;
  const Numbers mean_key = reference::forward(spec, all, layer.q, layer.k, layer.k).o;
  Numbers scaled_q = layer.q, dq_without_d = layer.gradients.dq;
  for (int row = 0; row < rows; ++row) {
    double d = 0;
    for (int e = row * dim; e < (row + 1) * dim; ++e) d += layer.d_o[e] * o[e];
    for (int e = row * dim; e < (row + 1) * dim; ++e) {
      scaled_q[e] *= spec.scale * d;
      dq_without_d[e] += spec.scale * d * mean_key[e];
    }
  }
  Numbers dk_without_d = reference::backward(spec, layer.q, layer.k, layer.v, scaled_q).dv;
  for (std::size_t e = 0; e < dk_without_d.size(); ++e) dk_without_d[e] += layer.gradients.dk[e];

  constexpr int left_out = tokens % 32;  // the last tile of 32 queries
  Numbers d_o = layer.d_o;
  for (int head = 0; head < head_count; ++head) {
    std::fill_n(d_o.begin() + ((head + 1) * tokens - left_out) * dim, left_out * dim, 0.0);
  }
  const Gradients of_fewer = reference::backward(spec, layer.q, layer.k, layer.v, d_o);

  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const Judge judge(layer, rounded(layer, dtype));
    INFO(problem::name(dtype));
    CHECK(judge.of_dq(dq_without_d) > 1);
    CHECK(judge.of_dk(dk_without_d) > 1);
    CHECK(judge.of_dq(times(1 / spec.scale, layer.gradients.dq)) > 1);
    CHECK(judge.of_dk(times(1 / spec.scale, layer.gradients.dk)) > 1);
    CHECK(judge.of_dk(of_fewer.dk) > 1);
    CHECK(judge.of_dv(of_fewer.dv) > 1);
    CHECK(judge.of_dq(layer.gradients.dq) == 0);
  }
}
