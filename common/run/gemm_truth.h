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

  // A row of A that is not finite exempts its row of C, a row of B its column: they must be written, and nothing else.
  check::TensorVerdict judge(const problem::Tensor& c) const;  // [batch, m, n]

 private:
  // The element of C in that row, of all batch entries, is made from a row of B that is not finite.
  bool exempt(std::int64_t row, int col) const { return !b_finite_[row / shape_.m * shape_.n + col]; }
  // Sets exempt elements of these rows, of n columns each, to 0; not those that still bear the poison.
  template <class T>
  void clear_exempt(const reference::GemmRows& rows, std::vector<T>& values) const;

  problem::Gemm shape_;
  reference::GemmSpec spec_;
  std::vector<check::RowRule> rules_;  // of all rows
  std::vector<bool> b_finite_;         // [batch, n]
  reference::GemmRows rows_;           // the compared ones
  std::vector<double> product_;        // of the compared rows, as the next two
  std::vector<float> baseline_;
  std::vector<double> rounding_;
};

}  // namespace run
