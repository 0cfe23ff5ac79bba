// What a row softmax must be: the truth and the baseline, computed once and used for every variant.
#pragma once

#include <vector>

#include "common/check/verdict.h"
#include "common/problem/softmax.h"
#include "common/reference/softmax.h"

namespace run {

class SoftmaxTruth {
 public:
  // x [rows, cols], rounded to shape.dtype. Where all rows would take long, at least 64 sampled ones are compared.
  SoftmaxTruth(const problem::Softmax& shape, const problem::Tensor& x);

  // A row with a NaN or +∞ must be NaN throughout; one of −∞ alone must be 0.
  check::TensorVerdict judge(const problem::Tensor& y) const;  // [rows, cols]

 private:
  problem::Softmax shape_;
  check::Sample sample_;
  std::vector<double> softmax_;  // of the compared rows, as the next two
  std::vector<float> baseline_;
  std::vector<double> rounding_;  // fp32: [rows]; 16 bits: of each element
};

}  // namespace run
