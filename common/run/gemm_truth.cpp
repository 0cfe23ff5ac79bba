#include "common/run/gemm_truth.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/run/truth.h"

namespace run {
namespace {

using check::RowRule;

// Comparing all rows costs about this many FLOPs twice, in double and in fp32.
constexpr double most_flops_for_all_rows = 5e9;

// Of a [..., cols] tensor.
std::vector<bool> finite_rows(const problem::Tensor& tensor) {
  const std::int64_t cols = tensor.shape.back();
  std::vector<bool> finite;
  for (auto row = tensor.values.begin(); row != tensor.values.end(); row += cols) {
    finite.push_back(std::all_of(row, row + cols, [](float x) { return std::isfinite(x); }));
  }
  return finite;
}

}  // namespace

GemmTruth::GemmTruth(const problem::Gemm& shape, const problem::GemmInputs& in)
    : shape_(problem::resolve(shape)),
      spec_{shape_.batch, shape_.batch_a, shape_.m, shape_.n, shape_.k},
      b_finite_(finite_rows(in.b)) {
  const std::vector<bool> a_finite = finite_rows(in.a);
  for (const std::int64_t row : reference::all_rows(spec_)) {
    rules_.push_back(a_finite[shape_.batch_a == 1 ? row % shape_.m : row] ? RowRule::compare : RowRule::written);
  }
  rows_ = shape_.flops() <= most_flops_for_all_rows ? reference::all_rows(spec_) : reference::sample_rows(spec_);
  product_ = reference::product(spec_, rows_, in.a.values, in.b.values);
  baseline_ = reference::product_baseline(spec_, rows_, in.a.values, in.b.values, round_to_dtype(shape_.dtype));
  rounding_ = reference::product_rounding(spec_, rows_, in.a.values, in.b.values);
  clear_exempt(rows_, product_);
  clear_exempt(rows_, baseline_);
}

template <class T>
void GemmTruth::clear_exempt(const reference::GemmRows& rows, std::vector<T>& values) const {
  if (std::find(b_finite_.begin(), b_finite_.end(), false) == b_finite_.end()) return;
  const auto poison = std::bit_cast<std::uint32_t>(check::poison_value(shape_.dtype));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (int col = 0; col < shape_.n; ++col) {
      T& value = values[r * shape_.n + col];
      if (exempt(rows[r], col) && std::bit_cast<std::uint32_t>(static_cast<float>(value)) != poison) value = 0;
    }
  }
}

check::TensorVerdict GemmTruth::judge(const problem::Tensor& c) const {
  const auto name_of = [this](const reference::GemmRows& rows) {
    return [this, &rows](std::int64_t r) { return reference::row_text(spec_, rows[r]); };
  };
  const reference::GemmRows all = reference::all_rows(spec_);
  std::vector<float> values = c.values;
  clear_exempt(all, values);
  const check::Output whole{
      .name = "C", .dtype = shape_.dtype, .cols = shape_.n, .values = values, .rules = rules_, .row_name = name_of(all)};
  check::TensorVerdict written = check::judge_written(whole);
  if (!written.pass) return written;

  std::vector<float> compared;
  std::vector<RowRule> rules;
  for (const std::int64_t row : rows_) {
    const auto first = values.begin() + row * shape_.n;
    compared.insert(compared.end(), first, first + shape_.n);
    rules.push_back(rules_[row]);
  }
  check::Output some = whole;
  some.values = compared;
  some.rules = rules;
  some.row_name = name_of(rows_);
  return check::judge(some, {product_, baseline_, rounding_});
}

}  // namespace run
