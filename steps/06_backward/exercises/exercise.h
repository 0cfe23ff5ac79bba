// Step 06: what its exercises share. An exercise is a step of its own; its only variant makes dQ, dK and dV.
#pragma once

#include "common/launches/backward.h"
#include "common/run/family/any_step.h"
#include "steps/06_backward/costs.h"

namespace flash_v2 {
run::AnyStep step();  // step 05's: its forward makes O and LSE
}

namespace backward {

constexpr int exercise_dim = 64;  // at most

inline run::BackwardStep exercise_step(std::string name, std::string question, problem::Dtype dtype,
                                       run::BackwardVariant variant) {
  variant.supports = {.dtypes = {dtype}, .max_dim = exercise_dim, .window = true};
  return {{.name = std::move(name),
           .question = std::move(question),
           .default_shape = {{.heads = 2, .kv_heads = 2, .seq_q = 24, .seq_k = 37, .dim = 32, .dtype = dtype}},
           .default_variant = variant.name,
           .variants = {variant}},
          std::get<const run::AttentionStep*>(flash_v2::step())};
}

}  // namespace backward
