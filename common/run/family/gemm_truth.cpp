#include "common/run/family/gemm_truth.h"

#include <algorithm>

#include "common/run/family/baseline_rounding.h"
#include "common/run/family/ordinary_rows.h"

namespace run {
namespace {

using check::RowRule;

// Comparing all rows costs about this many FLOPs twice, in double and in fp32.
constexpr double most_flops_for_all_rows = 5e9;

}  // namespace

GemmTruth::GemmTruth(const problem::Gemm& shape, const problem::GemmInputs& in)
    : shape_(problem::resolve(shape)), spec_{shape_.batch, shape_.batch_a, shape_.m, shape_.n, shape_.k} {
  const bool all = shape_.flops() <= most_flops_for_all_rows;
  const reference::GemmRows rows = all ? reference::all_rows(spec_) : reference::sample_rows(spec_);
  sample_.rows = rows;
  if (!all) sample_.all_rules = written_rules(in);
  product_ = reference::product(spec_, rows, in.a.values, in.b.values);
  baseline_ = reference::product_baseline(spec_, rows, in.a.values, in.b.values, round_to_dtype(shape_.dtype));
  rounding_ = reference::product_rounding(spec_, rows, in.a.values, in.b.values, product_);
}

std::vector<RowRule> GemmTruth::written_rules(const problem::GemmInputs& in) const {
  const std::vector<bool> a = ordinary_rows(in.a, shape_.dtype), b = ordinary_rows(in.b, shape_.dtype);
  const bool all_b = std::find(b.begin(), b.end(), false) == b.end();
  std::vector<RowRule> rules;
  for (const std::int64_t row : reference::all_rows(spec_)) {
    rules.push_back(all_b && a[shape_.batch_a == 1 ? row % shape_.m : row] ? RowRule::compare : RowRule::written);
  }
  return rules;
}

check::TensorVerdict GemmTruth::judge(const problem::Tensor& c) const {
  const check::Output output{
      .name = "C", .dtype = shape_.dtype, .cols = shape_.n, .values = c.values, .row_name = [this](std::int64_t row) {
        return reference::row_text(spec_, row);
      }};
  return check::judge_sample(output, sample_, [this](const check::Output& rows) {
    return check::judge(rows, {product_, baseline_, rounding_.size, rounding_.sum, rounding_.may_overflow});
  });
}

}  // namespace run
