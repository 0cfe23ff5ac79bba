// What dQ, dK and dV must be: the truth and the baseline, computed once and used for every variant.
#pragma once

#include <vector>

#include "common/check/verdict.h"
#include "common/problem/backward.h"
#include "common/reference/backward.h"
#include "common/run/family/attention_truth.h"

namespace run {

class BackwardTruth {
 public:
  // Inputs rounded to shape.dtype, with the O and LSE that the kernel is given. Where all rows would take long, at least 64
  // sampled queries of each head and 64 keys of some key/value heads are compared (reference::sample_backward_rows); all other
  // rows must be written, and finite unless they depend on what is not. Throws std::invalid_argument for tensors that do not
  // fit the shape.
  BackwardTruth(const problem::Backward& shape, problem::BackwardInputs inputs);
  BackwardTruth(const BackwardTruth&) = delete;

  // Of dQ, dK and dV, and of O and LSE as given: gradients made from a wrong forward pass are no reason to pass.
  // Queries without keys must have dQ = 0, keys that no query sees dK = dV = 0, exactly. Exempt (but for the poison) are rows
  // for whose pairs scores may overflow in fp32, or are rounded by so much that P may be anything
  // (reference::GradientRounding); rows_exempt counts them.
  const problem::Backward& shape() const { return shape_; }
  std::vector<check::TensorVerdict> judge(const problem::Tensor& dq,         // [batch, heads, seq_q, dim]
                                          const problem::Tensor& dk,         // [batch, kv_heads, seq_k, dim]
                                          const problem::Tensor& dv) const;  // [batch, kv_heads, seq_k, dim]

 private:
  void make_rules();

  problem::Backward shape_;
  reference::AttentionSpec spec_;
  problem::BackwardInputs in_;
  std::vector<check::TensorVerdict> forward_;  // of O and LSE as given
  reference::BackwardRows rows_;               // the compared ones, as all below
  reference::Gradients truth_;
  reference::GradientsBaseline baseline_;
  reference::GradientRounding rounding_;
  check::Sample queries_, keys_;
};

}  // namespace run
