// Step 08: what its exercises share. An exercise is a step of its own, in fp16, with one variant.
#pragma once

#include "common/run/family/any_step.h"
#include "steps/08_few_tokens/host.h"

namespace few_tokens {

inline run::LinearStep exercise_step(std::string name, std::string question, problem::Linear default_shape,
                                     run::LinearVariant variant) {
  variant.supports.dtypes = {problem::Dtype::fp16};
  variant.supports.fp32_tokens = false;
  variant.supports.k_multiple = 8;
  variant.supports.row_bytes = 16;
  return {.name = std::move(name),
          .question = std::move(question),
          .default_shape = default_shape,
          .default_variant = variant.name,
          .variants = {variant}};
}

}  // namespace few_tokens
