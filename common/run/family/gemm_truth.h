// What a matrix product must be: the truth and the baseline, computed once and used for every variant.
#pragma once

#include <cstdint>
#include <vector>

#include "common/check/verdict.h"
#include "common/problem/gemm.h"
#include "common/reference/gemm.h"

namespace run {

class GemmTruth {
 public:
  // Inputs rounded to shape.dtype. Where all rows would take long, at least 64 sampled rows of each batch entry are compared.
  GemmTruth(const problem::Gemm& shape, const problem::GemmInputs& inputs);

  // NaN and infinities of A and B must be in C where the truth has them, and nowhere else.
  check::TensorVerdict judge(const problem::Tensor& c) const;  // [batch, m, n]

 private:
  // What is asked of all rows, without a truth: none is NaN or infinite, unless A or B hold such, or numbers beyond all
  // measure.
  std::vector<check::RowRule> written_rules(const problem::GemmInputs& in) const;

  problem::Gemm shape_;
  reference::GemmSpec spec_;
  check::Sample sample_;
  std::vector<double> product_;  // of the compared rows, as the next two
  std::vector<float> baseline_;
  reference::ProductRounding rounding_;
};

}  // namespace run
