#include "common/reference/linear.h"

#include <numbers>

#include "common/reference/parts.h"

namespace reference {
namespace {

template <class Real>
Real activated(Activation activation, Real x) {
  switch (activation) {
    case Activation::relu:
      return x < 0 ? Real{0} : x;  // NaN stays NaN
    case Activation::gelu:
      return x * (Real{0.5} * (1 + std::erf(x * static_cast<Real>(1 / std::numbers::sqrt2))));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::none:
      break;
  }
  return x;
}

// Adds the bias to the sums [rows, n].
template <class Real>
void add_bias(const LinearSpec& spec, const GemmRows& rows, std::span<const float> bias, std::vector<Real>& sums) {
  if (bias.empty()) return;
  for (std::size_t at = 0; at < sums.size(); ++at) {
    const std::int64_t row = rows[at / spec.n];
    sums[at] += static_cast<Real>(bias[spec.b_entry(row / spec.m) * spec.n + static_cast<std::int64_t>(at % spec.n)]);
  }
}

template <class Real>
std::vector<Real> activated(Activation activation, std::vector<Real> sums) {
  for (Real& x : sums) x = activated(activation, x);
  return sums;
}

}  // namespace

double activate(Activation activation, double x) { return activated(activation, x); }
float activate(Activation activation, float x) { return activated(activation, x); }

LinearReference linear(const LinearSpec& spec, const GemmRows& rows, std::span<const float> a, std::span<const float> b,
                       std::span<const float> bias, Round round) {
  if (!bias.empty()) require_size(bias, std::ssize(b) / spec.k, "bias");
  std::vector<double> sums = product(spec, rows, a, b);
  add_bias(spec, rows, bias, sums);
  std::vector<float> fp32_sums = product_baseline(spec, rows, a, b);
  add_bias(spec, rows, bias, fp32_sums);

  LinearReference result{activated(spec.activation, sums), activated(spec.activation, std::move(fp32_sums)), {}};
  for (float& x : result.baseline) x = round(x);
  result.rounding = product_rounding(spec, rows, a, b, result.truth);
  // A sum is rounded once more where the bias is added. No activation is steeper than 1.13, and each is made by a few
  // operations of fp32 whose errors are relative to |x|: 1 + erf cancels below 0.
  for (std::size_t at = 0; at < sums.size(); ++at) {
    const double x = std::isfinite(sums[at]) ? std::abs(sums[at]) : 0;
    const double more = (bias.empty() ? 0 : fp32_unit * x) + (spec.activation == Activation::none ? 0 : 4 * fp32_unit * x);
    result.rounding.sum[at] = (spec.activation == Activation::none ? 1 : 1.13) * result.rounding.sum[at] + more;
  }
  return result;
}

LinearReference routed(const LinearReference& pairs, std::span<const float> routing, const std::vector<bool>& named, int top,
                       int n, Round round) {
  require_size(routing, std::ssize(named), "routing");
  const std::int64_t elements = std::ssize(named) / top * n;
  LinearReference result{std::vector<double>(elements),
                         std::vector<float>(elements),
                         {std::vector<double>(elements), std::vector<double>(elements), std::vector<std::uint8_t>(elements)}};
  for (std::int64_t at = 0; at < elements; ++at) {
    const std::int64_t token = at / n;
    for (std::int64_t pair = token * top; pair < (token + 1) * top; ++pair) {
      if (!named[pair]) continue;
      const std::int64_t from = pair * n + at % n;
      const double weight = routing[pair], size = std::abs(weight), term = size * std::abs(pairs.truth[from]);
      result.truth[at] += weight * pairs.truth[from];
      result.baseline[at] += routing[pair] * pairs.baseline[from];
      result.rounding.size[at] += size * pairs.rounding.size[from];
      // A product with its weight, and a sum of `top` terms, in fp32.
      result.rounding.sum[at] += size * pairs.rounding.sum[from] + (std::isfinite(term) ? (1 + top) * fp32_unit * term : 0);
      result.rounding.may_overflow[at] |= pairs.rounding.may_overflow[from];
    }
    result.baseline[at] = round(result.baseline[at]);
  }
  return result;
}

}  // namespace reference
