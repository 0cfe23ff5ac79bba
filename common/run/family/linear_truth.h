// What a linear layer must give: the truth and the baseline, computed once and used for every variant.
#pragma once

#include <vector>

#include "common/check/verdict.h"
#include "common/problem/linear.h"
#include "common/reference/linear.h"

namespace run {

class LinearTruth {
 public:
  // Inputs rounded to their types. Tokens of fp32 are rounded to the weights' type first, as every kernel does on loading them:
  // the truth is that of the rounded tokens. Where all rows would take long, at least 64 sampled rows of each entry are
  // compared. The products of routed tokens are not rounded before they are added: kernels keep them in fp32.
  LinearTruth(const problem::Linear& shape, const problem::LinearInputs& inputs);

  // NaN and infinities of A, B and the bias must be in C where the truth has them, and nowhere else.
  check::TensorVerdict judge(const problem::Tensor& c) const;  // [samples, channels, m, n]

 private:
  // What is asked of all rows, without a truth: none is NaN or infinite, unless A, B or the bias hold such, or numbers beyond
  // all measure.
  std::vector<check::RowRule> written_rules(const problem::Tensor& tokens, const problem::LinearInputs& in) const;

  problem::Linear shape_;
  reference::LinearSpec spec_;
  check::Sample sample_;
  reference::LinearReference reference_;  // of the compared rows
};

}  // namespace run
