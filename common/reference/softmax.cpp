#include "common/reference/softmax.h"

#include <limits>
#include <numeric>

#include "common/reference/parts.h"
#include "common/reference/sample.h"

namespace reference {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

void require_valid(const SoftmaxSpec& spec, std::span<const float> x) {
  require(std::min(spec.rows, spec.cols) >= 1, "every extent must be ≥ 1");
  require_size(x, std::int64_t{spec.rows} * spec.cols, "x");
}

template <class Real>
std::vector<Real> compute(const SoftmaxSpec& spec, const SoftmaxRows& rows, std::span<const float> x) {
  require_valid(spec, x);
  std::vector<Real> y(rows.size() * spec.cols);
  parallel_for(std::ssize(rows), [&](std::int64_t r) {
    const float* x_row = &x[rows[r] * spec.cols];
    Real* y_row = &y[r * spec.cols];
    const bool defined = std::all_of(x_row, x_row + spec.cols, [](float score) { return score < infinity; });
    if (!defined) {
      std::fill_n(y_row, spec.cols, std::numeric_limits<Real>::quiet_NaN());
      return;
    }
    const float m = *std::max_element(x_row, x_row + spec.cols);
    const Real shift = m == -infinity ? Real{0} : static_cast<Real>(m);  // −∞ − (−∞) would be NaN
    Real sum = 0;
    for (int j = 0; j < spec.cols; ++j) sum += y_row[j] = std::exp(static_cast<Real>(x_row[j]) - shift);
    for (int j = 0; j < spec.cols && sum != 0; ++j) y_row[j] /= sum;
  });
  return y;
}

}  // namespace

SoftmaxRows all_rows(const SoftmaxSpec& spec) {
  SoftmaxRows rows(spec.rows);
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  return rows;
}

SoftmaxRows sample_rows(const SoftmaxSpec& spec, int wanted, std::uint64_t seed) {
  if (spec.rows <= std::max(wanted, least_sample)) return all_rows(spec);
  const std::set<int> sample = Sampler(spec.rows, wanted, seed).next();
  return {sample.begin(), sample.end()};
}

std::vector<double> softmax(const SoftmaxSpec& spec, const SoftmaxRows& rows, std::span<const float> x) {
  return compute<double>(spec, rows, x);
}

std::vector<float> softmax_baseline(const SoftmaxSpec& spec, const SoftmaxRows& rows, std::span<const float> x, Round round) {
  std::vector<float> y = compute<float>(spec, rows, x);
  for (float& value : y) value = round(value);
  return y;
}

std::vector<double> softmax_rounding(const SoftmaxSpec& spec, std::span<const double> y) {
  std::vector<double> errors(y.size() / spec.cols);
  for (std::size_t row = 0; row < errors.size(); ++row) {
    const double largest = std::ranges::max(y.subspan(row * spec.cols, spec.cols));
    if (largest > 0) errors[row] = 0.5 * std::sqrt(spec.cols) * fp32_unit * largest;
  }
  return errors;
}

}  // namespace reference
