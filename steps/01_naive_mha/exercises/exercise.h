// Step 01: what its exercises share. An exercise is a step of its own with one variant, the reader's.
#pragma once

#include "../host.h"
#include "common/run/family/any_step.h"

namespace naive_mha {

// A step whose one variant runs three kernels, scores, softmax and P·V; its `launch` says which.
inline run::AttentionStep exercise_step(std::string name, std::string question, int dim, run::AttentionVariant variant) {
  variant.scratch = [](const Attention& a) { return run::Arrays{score_matrix("S", a), score_matrix("P", a)}; };
  variant.cost = [](const Attention& a) {
    return std::vector<problem::KernelCost>{problem::scores_cost(a), problem::softmax_cost(a), problem::pv_cost(a)};
  };
  run::AttentionStep step;
  step.name = std::move(name);
  step.question = std::move(question);
  step.default_shape.heads = step.default_shape.kv_heads = 2;
  step.default_shape.seq_q = step.default_shape.seq_k = 100;
  step.default_shape.dim = dim;
  step.default_variant = variant.name;
  step.variants = {std::move(variant)};
  return step;
}

// Grid: x over queries, y over heads, z over the batch; one block a row.
inline dim3 block_per_row(const device::AttentionShape& shape) {
  return dim3(static_cast<unsigned>(shape.seq_q), static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.batch));
}

}  // namespace naive_mha
