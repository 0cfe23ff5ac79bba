#include "common/run/family/softmax_truth.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/run/family/baseline_rounding.h"

namespace run {
namespace {

using check::RowRule;

constexpr float infinity = std::numeric_limits<float>::infinity();

// Comparing a row costs about 10 ns an element, in double and in fp32.
constexpr double most_elements_for_all_rows = 3e7;

// What is asked of a row without a truth: of one with a NaN or +∞, only that it be written.
RowRule rule_of(const float* row, int cols) {
  if (std::any_of(row, row + cols, [](float x) { return x != x || x == infinity; })) return RowRule::written;
  return std::all_of(row, row + cols, [](float x) { return x == -infinity; }) ? RowRule::empty : RowRule::compare;
}

}  // namespace

SoftmaxTruth::SoftmaxTruth(const problem::Softmax& shape, const problem::Tensor& x) : shape_(problem::resolve(shape)) {
  const reference::SoftmaxSpec spec{shape_.rows, shape_.cols};
  for (const std::int64_t row : reference::all_rows(spec))
    sample_.all_rules.push_back(rule_of(&x.values[row * shape_.cols], shape_.cols));
  const double elements = static_cast<double>(shape_.rows) * shape_.cols;
  const reference::SoftmaxRows rows =
      elements <= most_elements_for_all_rows ? reference::all_rows(spec) : reference::sample_rows(spec);
  sample_.rows = rows;
  for (const std::int64_t row : rows) {  // where there is a NaN, the truth says what must come of it
    sample_.rules.push_back(sample_.all_rules[row] == RowRule::empty ? RowRule::empty : RowRule::compare);
  }
  softmax_ = reference::softmax(spec, rows, x.values);
  baseline_ = reference::softmax_baseline(spec, rows, x.values, round_to_dtype(shape_.dtype));
  rounding_ = reference::softmax_rounding(spec, softmax_);
  if (shape_.dtype == problem::Dtype::fp32) return;
  // In 16 bits the last rounding, by the element's own size, is far more than all that fp32 does before: what the row shares,
  // and the score less the maximum, at most 104 of it above exp's zero. Below fp32's normal numbers exp may give 0.
  const double shared = 104 * 0x1p-22 + std::sqrt(shape_.cols) * 0x1p-24;
  rounding_.clear();
  for (const double y : softmax_) rounding_.push_back(std::max(shared * y, 0x1p-126));
}

check::TensorVerdict SoftmaxTruth::judge(const problem::Tensor& y) const {
  const check::Output output{
      .name = "y", .dtype = shape_.dtype, .cols = shape_.cols, .values = y.values, .row_name = [](std::int64_t row) {
        return std::to_string(row);
      }};
  return check::judge_sample(output, sample_, [this](const check::Output& rows) {
    check::Expected expected{softmax_, baseline_};
    expected.rounding = rounding_;
    if (shape_.dtype != problem::Dtype::fp32) expected.size = softmax_;
    return check::judge(rows, expected);
  });
}

}  // namespace run
