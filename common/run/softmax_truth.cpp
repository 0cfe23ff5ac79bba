#include "common/run/softmax_truth.h"

#include <algorithm>
#include <limits>

#include "common/run/truth.h"

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
  for (const std::int64_t row : reference::all_rows(spec)) rules_.push_back(rule_of(&x.values[row * shape_.cols], shape_.cols));
  const double elements = static_cast<double>(shape_.rows) * shape_.cols;
  rows_ = elements <= most_elements_for_all_rows ? reference::all_rows(spec) : reference::sample_rows(spec);
  softmax_ = reference::softmax(spec, rows_, x.values);
  baseline_ = reference::softmax_baseline(spec, rows_, x.values, round_to_dtype(shape_.dtype));
  rounding_ = reference::softmax_rounding(spec, softmax_);
}

check::TensorVerdict SoftmaxTruth::judge(const problem::Tensor& y) const {
  check::Output output{.name = "y", .dtype = shape_.dtype, .cols = shape_.cols, .values = y.values, .rules = rules_};
  output.row_name = [](std::int64_t row) { return std::to_string(row); };
  check::TensorVerdict written = check::judge_written(output);
  if (!written.pass) return written;

  std::vector<float> compared;
  std::vector<RowRule> rules;
  for (const std::int64_t row : rows_) {
    const auto first = y.values.begin() + row * shape_.cols;
    compared.insert(compared.end(), first, first + shape_.cols);
    rules.push_back(rules_[row] == RowRule::empty ? RowRule::empty : RowRule::compare);
  }
  output.values = compared;
  output.rules = rules;
  output.row_name = [this](std::int64_t r) { return std::to_string(rows_[r]); };
  check::Expected expected{softmax_, baseline_};
  expected.rounding = rounding_;
  return check::judge(output, expected);
}

}  // namespace run
