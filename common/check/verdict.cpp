#include "common/check/verdict.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <stdexcept>

namespace check {
namespace {

using problem::Dtype;

std::string short_number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", x);
  return text;
}

std::string row_text(const Output& output, std::int64_t row) {
  return "row (" + (output.row_name ? output.row_name(row) : std::to_string(row)) + ")";
}

std::int64_t row_count(const Output& output) { return std::ssize(output.values) / output.cols; }

RowRule rule_of(const Output& output, std::int64_t row) { return output.rules.empty() ? RowRule::compare : output.rules[row]; }

void require(bool condition, const Output& output, const char* message) {
  if (!condition) throw std::invalid_argument("check: " + output.name + ": " + message);
}

void require_valid(const Output& output) {
  require(output.cols >= 1 && std::ssize(output.values) % output.cols == 0, output, "values must be whole rows");
  require(output.rules.empty() || std::ssize(output.rules) == row_count(output), output, "there must be one rule a row");
}

void require_rounding(const Output& output, std::span<const double> rounding) {
  require(rounding.empty() || std::ssize(rounding) == row_count(output), output, "there must be one rounding error a row");
}

void reject(TensorVerdict& verdict, std::string reason) {
  verdict.pass = false;
  verdict.reason = std::move(reason);
}

// How an element breaks the rules "written" and "finite", for people; empty where it keeps them.
std::string fault_of(const Output& output, RowRule rule, std::uint32_t poison, float value) {
  if (std::bit_cast<std::uint32_t>(value) == poison) return "was not written";
  if (rule == RowRule::compare && !std::isfinite(value)) return "is " + short_number(value);
  // The comparison takes either zero for 0, and no NaN.
  if (rule == RowRule::empty && static_cast<double>(value) != output.empty_value) {
    return "is " + short_number(value) + " where no key is seen, so that it must be " + short_number(output.empty_value);
  }
  return "";
}

// The figures of a row that is compared.
struct RowErrors {
  double largest = 0;   // |error|
  double baseline = 0;  // the largest |error| of the baseline
  double floor = 0;
  double sum = 0;           // of |error|
  double baseline_sum = 0;  // of the baseline's |error|
};

RowErrors errors_of(const Output& output, std::int64_t row, const Expected& expected) {
  RowErrors errors;
  double largest_truth = 0;
  for (std::int64_t i = row * output.cols; i < (row + 1) * output.cols; ++i) {
    const double truth = expected.truth[i];
    const double error = std::abs(output.values[i] - truth);
    const double baseline_error = std::abs(expected.baseline[i] - truth);
    errors.largest = std::max(errors.largest, error);
    errors.baseline = std::max(errors.baseline, baseline_error);
    errors.sum += error;
    errors.baseline_sum += baseline_error;
    largest_truth = std::max(largest_truth, std::abs(truth));
  }
  const double floor_ulps = output.dtype == Dtype::fp32 ? 16 : 2;
  const double rounding = expected.rounding.empty() ? 0 : expected.rounding[row];
  errors.floor = std::max(floor_ulps * ulp(output.dtype, largest_truth), rounding);
  return errors;
}

// Means over the elements of all rows that are compared.
class Means {
 public:
  void add(const RowErrors& row, std::int64_t cols) {
    sum_ += row.sum;
    baseline_sum_ += row.baseline_sum;
    floor_sum_ += row.floor * static_cast<double>(cols);
    elements_ += cols;
  }
  double error() const { return mean(sum_); }
  double allowed() const { return mean_factor * std::max(mean(baseline_sum_), mean(floor_sum_)); }

 private:
  double mean(double sum) const { return elements_ == 0 ? 0 : sum / static_cast<double>(elements_); }

  double sum_ = 0;
  double baseline_sum_ = 0;
  double floor_sum_ = 0;
  std::int64_t elements_ = 0;
};

struct Worst {
  double error = 0;
  double allowed = 0;
};

// Takes a row into the verdict's figures; `worst` follows verdict.worst_row.
void add_row(TensorVerdict& verdict, Worst& worst, std::int64_t row, double error, double allowed) {
  verdict.max_error = std::max(verdict.max_error, error);
  const double ratio = error / allowed;
  if (verdict.worst_row >= 0 && ratio <= verdict.worst_ratio) return;
  verdict.worst_row = row;
  verdict.worst_ratio = ratio;
  worst = {error, allowed};
}

void apply_row_rule(const Output& output, TensorVerdict& verdict, const Worst& worst) {
  if (verdict.worst_ratio <= 1) return;
  reject(verdict, row_text(output, verdict.worst_row) + ": error " + short_number(worst.error) + " where " +
                      short_number(worst.allowed) + " is allowed");
}

void apply_mean_rule(TensorVerdict& verdict) {
  if (!verdict.pass || verdict.mean_error <= verdict.mean_allowed) return;
  reject(verdict, "mean error " + short_number(verdict.mean_error) + " where " + short_number(verdict.mean_allowed) +
                      " is allowed, though every row is within its own bounds");
}

void reject_unjudged(const Output& output, TensorVerdict& verdict, std::int64_t row) {
  reject(verdict, row_text(output, row) + ": the reference or the baseline is not finite, so the row cannot be judged");
}

}  // namespace

float poison_value(Dtype dtype) {
  constexpr auto half = static_cast<std::uint16_t>(poison_word);
  switch (dtype) {
    case Dtype::fp16:
      return problem::fp16_value(half);
    case Dtype::bf16:
      return problem::bf16_value(half);
    case Dtype::fp32:
      break;
  }
  return std::bit_cast<float>(poison_word);
}

double ulp(Dtype dtype, double x) {
  struct Format {
    int precision;  // bits of the significand, the hidden one among them
    int smallest;   // exponent of the smallest number above zero
  };
  const Format format = dtype == Dtype::fp32 ? Format{24, -149} : dtype == Dtype::fp16 ? Format{11, -24} : Format{8, -133};
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| = f · 2^exponent, f in [½, 1)
  return std::ldexp(1.0, x == 0 ? format.smallest : std::max(exponent - format.precision, format.smallest));
}

TensorVerdict judge_written(const Output& output) {
  require_valid(output);
  const auto poison = std::bit_cast<std::uint32_t>(poison_value(output.dtype));
  TensorVerdict verdict;
  verdict.name = output.name;
  for (std::int64_t row = 0; row < row_count(output); ++row) {
    const RowRule rule = rule_of(output, row);
    ++(rule == RowRule::written ? verdict.rows_exempt : verdict.rows_checked);
    for (std::int64_t col = 0; col < output.cols && verdict.pass; ++col) {
      const std::string fault = fault_of(output, rule, poison, output.values[row * output.cols + col]);
      if (!fault.empty()) reject(verdict, row_text(output, row) + ": element " + std::to_string(col) + " " + fault);
    }
  }
  return verdict;
}

TensorVerdict judge(const Output& output, const Expected& expected) {
  TensorVerdict verdict = judge_written(output);
  require(expected.truth.size() == output.values.size(), output, "truth must have the shape of the values");
  require(expected.baseline.size() == output.values.size(), output, "the baseline must have the shape of the values");
  require_rounding(output, expected.rounding);
  if (!verdict.pass) return verdict;

  verdict.max_error = verdict.max_baseline_error = verdict.worst_ratio = 0;
  Worst worst;
  Means means;
  for (std::int64_t row = 0; row < row_count(output); ++row) {
    if (rule_of(output, row) != RowRule::compare) continue;
    const RowErrors errors = errors_of(output, row, expected);
    if (!std::isfinite(errors.sum + errors.baseline_sum)) {
      reject_unjudged(output, verdict, row);
      return verdict;
    }
    add_row(verdict, worst, row, errors.largest, expected.factor * std::max(errors.baseline, errors.floor));
    verdict.max_baseline_error = std::max(verdict.max_baseline_error, errors.baseline);
    means.add(errors, output.cols);
  }
  verdict.mean_error = means.error();
  verdict.mean_allowed = means.allowed();
  apply_row_rule(output, verdict, worst);
  apply_mean_rule(verdict);
  return verdict;
}

TensorVerdict judge_lse(const Output& output, std::span<const double> truth, Dtype inputs, std::span<const double> rounding) {
  require(output.cols == 1 && output.dtype == Dtype::fp32, output, "LSE is one fp32 number a row");
  TensorVerdict verdict = judge_written(output);
  require(truth.size() == output.values.size(), output, "truth must have the shape of the values");
  require_rounding(output, rounding);
  if (!verdict.pass) return verdict;

  verdict.max_error = verdict.worst_ratio = verdict.mean_error = 0;
  Worst worst;
  double sum = 0;
  std::int64_t rows = 0;
  for (std::int64_t row = 0; row < row_count(output); ++row) {
    if (rule_of(output, row) != RowRule::compare) continue;
    const double error = std::abs(output.values[row] - truth[row]);
    if (!std::isfinite(error)) {
      reject_unjudged(output, verdict, row);
      return verdict;
    }
    const double by_dtype = inputs == Dtype::fp32 ? 1e-5 * std::max(1.0, std::abs(truth[row])) : 1e-3;
    add_row(verdict, worst, row, error, rounding.empty() ? by_dtype : std::max(by_dtype, output_factor * rounding[row]));
    sum += error;
    ++rows;
  }
  verdict.mean_error = sum / static_cast<double>(std::max<std::int64_t>(rows, 1));
  apply_row_rule(output, verdict, worst);
  return verdict;
}

std::optional<std::int64_t> first_difference(std::span<const float> run, std::span<const float> again) {
  if (run.size() != again.size()) throw std::invalid_argument("check: two runs must be of one length");
  const auto same_bits = [](float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); };
  const auto at = std::mismatch(run.begin(), run.end(), again.begin(), same_bits).first;
  if (at == run.end()) return std::nullopt;
  return at - run.begin();
}

bool Verdict::pass() const { return reason().empty(); }

std::string Verdict::reason() const {
  for (const TensorVerdict& tensor : tensors) {
    if (!tensor.pass) return tensor.name + ": " + tensor.reason;
  }
  if (!guards_intact) return "memory before or after a buffer was written";
  if (repeatable == false) return "two runs gave different bits";
  return "";
}

}  // namespace check
