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
  if (std::isnan(x)) return "nan";  // of either sign
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

void reject(TensorVerdict& verdict, std::string reason) {
  verdict.pass = false;
  verdict.reason = std::move(reason);
}

// The first power of two beyond the dtype's numbers.
double beyond_largest(Dtype dtype) { return std::ldexp(1.0, dtype == Dtype::fp16 ? 16 : 128); }

// What an infinite element stands for, where the truth is finite: all that is beyond the dtype's largest number.
double value_for(Dtype dtype, float value, double truth) {
  if (!std::isinf(value)) return value;
  return std::copysign(std::max(beyond_largest(dtype), std::abs(truth)), value);
}

// What an element may be besides its truth.
struct NonFinite {
  bool may_overflow = false;
  bool nan_for_infinity = false;
  bool any = false;
};

// How an element breaks the rule "finite", given its truth; empty where it keeps it.
std::string fault_beside(double truth, NonFinite allowed, Dtype dtype, float value) {
  const auto must_be = [&] { return "is " + short_number(value) + " where it must be " + short_number(truth); };
  if (allowed.any && !std::isfinite(truth)) return std::isfinite(value) ? must_be() : "";
  if (std::isnan(truth)) return std::isnan(value) ? "" : must_be();
  if (allowed.may_overflow && !std::isfinite(value)) return "";
  if (std::isinf(truth)) return value == truth || (allowed.nan_for_infinity && std::isnan(value)) ? "" : must_be();
  const bool near_limit = std::abs(truth) >= 0.5 * beyond_largest(dtype);
  return std::isfinite(value) || (near_limit && std::isinf(value)) ? "" : "is " + short_number(value);
}

// The figures of a row that is compared.
struct RowErrors {
  double largest = 0;             // |error|
  double baseline = 0;            // the largest |error| of the baseline
  double worst = 0, allowed = 1;  // of the element with the largest error over allowed error
  double sum = 0;                 // of |error|
  double baseline_sum = 0;        // of the baseline's |error|
  double floor_sum = 0;           // of the floors of the elements
  double mean_floor_sum = 0;      // of what the mean of many is held to
  std::int64_t elements = 0;      // those with a finite truth that did not overflow
  bool judged = true;             // the baseline is finite wherever it must be
};

// One row against its truth, with all that an element is allowed.
class RowJudge {
 public:
  RowJudge(const Output& output, const Expected& expected, std::int64_t row)
      : output_(output), expected_(expected), row_(row), cols_(output.cols) {}

  RowErrors errors() {
    read();
    RowErrors errors;
    for (std::int64_t d = 0; d < cols_; ++d) {
      errors.judged &= std::isfinite(baseline_[d]);
      if (!compared_[d]) continue;
      errors.largest = std::max(errors.largest, std::abs(error_[d]));
      errors.baseline = std::max(errors.baseline, std::abs(baseline_[d]));
      errors.sum += std::abs(error_[d]);
      errors.baseline_sum += std::abs(baseline_[d]);
      ++errors.elements;
    }
    if (errors.judged) compare(errors);
    return errors;
  }

 private:
  using Vector = std::vector<double>;

  template <class T>
  T at(std::span<const T> all, std::int64_t d, T none) const {
    return all.empty() ? none : all[row_ * cols_ + d];
  }

  void read() {
    for (std::int64_t d = 0; d < cols_; ++d) {
      const std::int64_t i = row_ * cols_ + d;
      const double truth = expected_.truth[i];
      const float value = output_.values[i], baseline = expected_.baseline[i];
      const bool may_overflow = at(expected_.may_overflow, d, std::uint8_t{0});
      compared_[d] = std::isfinite(truth) && !(may_overflow && !std::isfinite(value));
      if (!compared_[d]) continue;
      error_[d] = value_for(output_.dtype, value, truth) - truth;
      if (!may_overflow || std::isfinite(baseline)) baseline_[d] = value_for(output_.dtype, baseline, truth) - truth;
      largest_truth_ = std::max(largest_truth_, std::abs(truth));
    }
  }

  double floor(std::int64_t d) const { return std::max((is_fp32() ? 16 : 2) * ulp_of(d), rounding(d)); }
  double mean_floor(std::int64_t d) const { return is_fp32() ? floor(d) : std::max(ulp_of(d), rounding(d)) / 2; }

  bool is_fp32() const { return output_.dtype == Dtype::fp32; }
  double ulp_of(std::int64_t d) const { return ulp(output_.dtype, at(expected_.size, d, largest_truth_)); }
  double rounding(std::int64_t d) const {
    if (expected_.rounding.empty()) return 0;
    return expected_.rounding[expected_.size.empty() ? row_ : row_ * cols_ + d];
  }

  // What honest rounding makes of the element in the direction of `error`.
  double reach(std::int64_t d, double error) const {
    if (!expected_.reach) return 0;
    Vector direction(cols_, 0.0);
    direction[d] = std::copysign(1.0, error);
    return expected_.reach(row_, direction);
  }

  void compare(RowErrors& errors) const {
    Vector allowed(cols_, 0.0);
    bool beyond = false;
    for (std::int64_t d = 0; d < cols_; ++d) {
      if (!compared_[d]) continue;
      double baseline = expected_.size.empty() ? errors.baseline : std::abs(baseline_[d]);
      if (baseline > floor(d)) baseline = std::max(0.0, baseline - reach(d, baseline_[d]));
      allowed[d] = expected_.factor * std::max(baseline, floor(d));
      double reached = 0;
      if (std::abs(error_[d]) > floor(d)) reached = reach(d, error_[d]);
      beyond |= std::abs(error_[d]) > allowed[d];
      errors.floor_sum += floor(d) + reached;
      errors.mean_floor_sum += mean_floor(d) + reached;
      take(errors, std::abs(error_[d]), allowed[d] + reached);
    }
    if (beyond && expected_.reach) compare_together(errors, allowed);
  }

  // Each element alone may be within reach of wrong scores and all together not: they share their scores. One direction is
  // tried, that of the errors, each in units of what it is allowed.
  void compare_together(RowErrors& errors, const Vector& allowed) const {
    Vector direction(cols_, 0.0);
    double along = 0, allowed_along = 0;
    for (std::int64_t d = 0; d < cols_; ++d) {
      if (!compared_[d]) continue;
      direction[d] = error_[d] / (allowed[d] * allowed[d]);
      along += direction[d] * error_[d];
      allowed_along += std::abs(direction[d]) * allowed[d];
    }
    const double share = (allowed_along + expected_.reach(row_, direction)) / along;
    take(errors, errors.largest, errors.largest * share);
  }

  static void take(RowErrors& errors, double error, double allowed) {
    if (error * errors.allowed <= errors.worst * allowed) return;
    errors.worst = error;
    errors.allowed = allowed;
  }

  const Output& output_;
  const Expected& expected_;
  std::int64_t row_, cols_;
  double largest_truth_ = 0;
  Vector error_ = Vector(cols_, 0.0), baseline_ = Vector(cols_, 0.0);  // signed
  std::vector<bool> compared_ = std::vector<bool>(cols_, false);
};

// Means over the elements of all rows that are compared.
class Means {
 public:
  void add(const RowErrors& row) {
    sum_ += row.sum;
    baseline_sum_ += row.baseline_sum;
    floor_sum_ += row.floor_sum;
    mean_floor_sum_ += row.mean_floor_sum;
    elements_ += row.elements;
  }
  double error() const { return mean(sum_); }
  double allowed() const { return mean_factor * std::max(mean(baseline_sum_), floor()); }

 private:
  // The mean of few elements may be off by as much as one of them, that of many is sharp: from one to the other as 1/√elements.
  double floor() const {
    const double of_many = mean(mean_floor_sum_);
    if (elements_ == 0) return of_many;
    return of_many + (mean(floor_sum_) - of_many) / std::sqrt(static_cast<double>(elements_));
  }
  double mean(double sum) const { return elements_ == 0 ? 0 : sum / static_cast<double>(elements_); }

  double sum_ = 0;
  double baseline_sum_ = 0;
  double floor_sum_ = 0;
  double mean_floor_sum_ = 0;
  std::int64_t elements_ = 0;
};

struct Worst {
  double error = 0;
  double allowed = 0;
};

// Takes a row into the verdict's figures; `worst` follows verdict.worst_row.
void add_row(TensorVerdict& verdict, Worst& worst, std::int64_t row, double error, double allowed) {
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
  reject(verdict, row_text(output, row) + ": the baseline is not finite where the truth is, so the row cannot be judged");
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
    int beyond;     // of the first power of two beyond the largest number
  };
  const Format format = dtype == Dtype::fp32   ? Format{24, -149, 128}
                        : dtype == Dtype::fp16 ? Format{11, -24, 16}
                                               : Format{8, -133, 128};
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| = f · 2^exponent, f in [½, 1)
  exponent = std::min(exponent, format.beyond);
  return std::ldexp(1.0, x == 0 ? format.smallest : std::max(exponent - format.precision, format.smallest));
}

namespace {

// The rules that come before any comparison; `fault` says what is wrong with element col of a row of RowRule::compare.
template <class Fault>
TensorVerdict judge_elements(const Output& output, const Fault& fault) {
  require_valid(output);
  const auto poison = std::bit_cast<std::uint32_t>(poison_value(output.dtype));
  TensorVerdict verdict;
  verdict.name = output.name;
  for (std::int64_t row = 0; row < row_count(output); ++row) {
    const RowRule rule = rule_of(output, row);
    ++(rule == RowRule::written ? verdict.rows_exempt : verdict.rows_checked);
    for (std::int64_t col = 0; col < output.cols && verdict.pass; ++col) {
      const std::int64_t i = row * output.cols + col;
      const float value = output.values[i];
      std::string text;
      if (std::bit_cast<std::uint32_t>(value) == poison) {
        text = "was not written";
      } else if (rule == RowRule::compare) {
        text = fault(i, value);
      } else if (rule == RowRule::empty && static_cast<double>(value) != output.empty_value) {  // either zero is 0
        text = "is " + short_number(value) + " where no key is seen, so that it must be " + short_number(output.empty_value);
      }
      if (!text.empty()) reject(verdict, row_text(output, row) + ": element " + std::to_string(col) + " " + text);
    }
  }
  return verdict;
}

}  // namespace

TensorVerdict judge_written(const Output& output) {
  return judge_elements(output,
                        [](std::int64_t, float value) { return std::isfinite(value) ? "" : "is " + short_number(value); });
}

TensorVerdict judge(const Output& output, const Expected& expected) {
  const std::size_t elements = output.values.size();
  const auto fits = [&](std::size_t size) { return size == 0 || size == elements; };
  require(expected.truth.size() == elements, output, "truth must have the shape of the values");
  require(expected.baseline.size() == elements, output, "the baseline must have the shape of the values");
  require(fits(expected.size.size()) && fits(expected.may_overflow.size()), output,
          "sizes and overflow must have the shape of the values, or be none");
  TensorVerdict verdict = judge_elements(output, [&](std::int64_t i, float value) {
    const bool may_overflow = !expected.may_overflow.empty() && expected.may_overflow[i];
    return fault_beside(expected.truth[i], {may_overflow, expected.nan_for_infinity, expected.any_non_finite}, output.dtype,
                        value);
  });
  const std::int64_t roundings = expected.size.empty() ? row_count(output) : std::ssize(output.values);
  require(expected.rounding.empty() || std::ssize(expected.rounding) == roundings, output,
          "there must be one rounding error an element, or a row where there are no sizes");
  if (!verdict.pass) return verdict;

  verdict.max_error = verdict.max_baseline_error = verdict.worst_ratio = 0;
  Worst worst;
  Means means;
  for (std::int64_t row = 0; row < row_count(output); ++row) {
    if (rule_of(output, row) != RowRule::compare) continue;
    const RowErrors errors = RowJudge(output, expected, row).errors();
    if (!errors.judged) {
      reject_unjudged(output, verdict, row);
      return verdict;
    }
    add_row(verdict, worst, row, errors.worst, errors.allowed);
    verdict.max_error = std::max(verdict.max_error, errors.largest);
    verdict.max_baseline_error = std::max(verdict.max_baseline_error, errors.baseline);
    means.add(errors);
  }
  verdict.mean_error = means.error();
  verdict.mean_allowed = means.allowed();
  apply_row_rule(output, verdict, worst);
  apply_mean_rule(verdict);
  return verdict;
}

TensorVerdict judge_sample(const Output& output, const Sample& sample,
                           const std::function<TensorVerdict(const Output&)>& judge_rows) {
  Output all = output;
  all.rules = sample.all_rules;
  if (!sample.all_rules.empty()) {
    TensorVerdict written = judge_written(all);
    if (!written.pass) return written;
  }
  Output compared = output;
  compared.rules = sample.rules;
  std::vector<float> values;
  if (!sample.rows.empty()) {
    values.reserve(sample.rows.size() * static_cast<std::size_t>(output.cols));
    for (const std::int64_t row : sample.rows) {
      const auto first = output.values.begin() + row * output.cols;
      values.insert(values.end(), first, first + output.cols);
    }
    compared.values = values;
    compared.row_name = [&](std::int64_t r) { return output.row_name(sample.rows[static_cast<std::size_t>(r)]); };
  }
  return judge_rows(compared);
}

TensorVerdict judge_lse(const Output& output, std::span<const double> truth, Dtype inputs, std::span<const double> rounding) {
  require(output.cols == 1 && output.dtype == Dtype::fp32, output, "LSE is one fp32 number a row");
  require(truth.size() == output.values.size(), output, "truth must have the shape of the values");
  require(rounding.empty() || rounding.size() == truth.size(), output, "there must be one rounding error a row");
  TensorVerdict verdict =
      judge_elements(output, [&](std::int64_t i, float value) { return fault_beside(truth[i], {}, Dtype::fp32, value); });
  if (!verdict.pass) return verdict;

  verdict.max_error = verdict.worst_ratio = verdict.mean_error = 0;
  Worst worst;
  double sum = 0;
  std::int64_t rows = 0;
  for (std::int64_t row = 0; row < row_count(output); ++row) {
    if (rule_of(output, row) != RowRule::compare || !std::isfinite(truth[row])) continue;
    const double error = std::abs(value_for(Dtype::fp32, output.values[row], truth[row]) - truth[row]);
    const double by_dtype = inputs == Dtype::fp32 ? 1e-5 * std::max(1.0, std::abs(truth[row])) : 1e-3;
    add_row(verdict, worst, row, error, rounding.empty() ? by_dtype : std::max(by_dtype, rounding[row]));
    verdict.max_error = std::max(verdict.max_error, error);
    sum += error;
    ++rows;
  }
  verdict.mean_error = sum / static_cast<double>(std::max<std::int64_t>(rows, 1));
  apply_row_rule(output, verdict, worst);
  return verdict;
}

std::optional<TensorVerdict> judge_shape(const std::string& name, const std::vector<std::int64_t>& shape,
                                         const std::vector<std::int64_t>& expected) {
  if (shape == expected) return std::nullopt;
  TensorVerdict verdict;
  verdict.name = name;
  reject(verdict, "its shape is " + problem::to_string(shape) + " and must be " + problem::to_string(expected));
  return verdict;
}

namespace {

// Of an int8 the poison is no number that kernels never compute: it is one of two.
std::string poison_text(std::int32_t value, problem::Element element) {
  if (element == problem::Element::int8()) {
    const auto is = [&](std::uint32_t byte) { return value == static_cast<std::int8_t>(byte & 255); };
    return is(poison_word) || is(poison_word >> 8) ? ", which it is if nobody wrote it," : "";
  }
  return value == static_cast<std::int32_t>(poison_word) ? ", which nobody wrote," : "";
}

}  // namespace

TensorVerdict judge_integers(const std::string& name, const problem::Integers& values, const problem::Integers& truth,
                             problem::Element element) {
  if (const auto wrong = judge_shape(name, values.shape, truth.shape)) return *wrong;
  TensorVerdict verdict;
  verdict.name = name;
  const auto odd = std::mismatch(values.values.begin(), values.values.end(), truth.values.begin());
  if (odd.first != values.values.end()) {
    std::int64_t rest = odd.first - values.values.begin();
    std::vector<std::int64_t> place(truth.shape.size());
    for (std::size_t d = place.size(); d-- > 0; rest /= truth.shape[d]) place[d] = rest % truth.shape[d];
    reject(verdict, "element " + problem::to_string(place) + " is " + std::to_string(*odd.first) +
                        poison_text(*odd.first, element) + " and must be " + std::to_string(*odd.second));
    return verdict;
  }
  verdict.max_error = verdict.max_baseline_error = verdict.worst_ratio = verdict.mean_error = verdict.mean_allowed = 0;
  verdict.rows_checked = truth.shape.size() > 1 ? std::ssize(truth.values) / truth.shape.back() : std::ssize(truth.values);
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
