// What a problem's outputs must be: the truth and the baseline, computed once and used for every variant.
#pragma once

#include <optional>
#include <vector>

#include "common/check/verdict.h"
#include "common/problem/attention.h"
#include "common/reference/attention.h"

namespace run {

reference::AttentionSpec spec_of(const problem::Attention& shape);  // of a resolved one

class AttentionTruth {
 public:
  // Inputs rounded to shape.dtype. Where all rows would take long, at least 64 sampled rows of each head are compared.
  AttentionTruth(const problem::Attention& shape, problem::AttentionInputs inputs);
  AttentionTruth(const AttentionTruth&) = delete;

  const problem::Attention& shape() const { return shape_; }
  std::vector<check::TensorVerdict> judge(const problem::Tensor& o,           // [batch, heads, seq_q, dim]
                                          const problem::Tensor& lse) const;  // [batch, heads, seq_q]

 private:
  problem::Attention shape_;
  reference::AttentionSpec spec_;
  problem::AttentionInputs in_;
  reference::ScoreRounding scores_;
  std::vector<reference::Row> rows_;  // the compared ones, as all below
  check::Sample sample_;
  reference::Forward forward_;
  std::vector<float> baseline_;  // O
  reference::Rounding rounding_;
};

// The inputs of a self-attention layer, fp32, as PyTorch's MultiheadAttention stores its weights; E = heads · dim.
struct LayerInputs {
  problem::Tensor x;                // [batch, seq, E]
  problem::Tensor in_proj_weight;   // [3E, E]
  problem::Tensor in_proj_bias;     // [3E]
  problem::Tensor out_proj_weight;  // [E, E]
  problem::Tensor out_proj_bias;    // [E]
};

class LayerTruth {
 public:
  // seq_q = seq_k, kv_heads = heads; throws std::invalid_argument for what the reference of a layer lacks (windows, scales).
  LayerTruth(const problem::Attention& shape, const LayerInputs& inputs);
  LayerTruth(const LayerTruth&) = delete;

  std::vector<check::TensorVerdict> judge(const problem::Tensor& o,         // [batch, heads, seq, dim]
                                          const problem::Tensor& lse,       // [batch, heads, seq]
                                          const problem::Tensor& y) const;  // [batch, seq, E]

 private:
  reference::AttentionSpec spec_;
  reference::LayerResult<double> layer_;
  reference::LayerResult<float> baseline_;
  problem::AttentionInputs parts_;    // Q, K and V, rounded to fp32
  std::vector<reference::Row> rows_;  // of O: all
  reference::Forward forward_;        // of the attention alone, as the next two
  reference::Rounding rounding_;
  std::optional<reference::ScoreRounding> scores_;
  std::vector<check::RowRule> token_rules_;  // [batch, seq]: of y
  std::vector<check::RowRule> head_rules_;   // [batch, heads, seq]: of O and LSE
};

}  // namespace run
