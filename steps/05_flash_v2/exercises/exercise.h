// Step 05: what its exercises share. An exercise is a step of its own, in fp16 with rows of 64 elements; its only variant runs
// one kernel.
#pragma once

#include "common/run/family/any_step.h"
#include "steps/05_flash_v2/07_registers.cuh"
#include "steps/05_flash_v2/host.h"

namespace flash_v2 {

constexpr int exercise_dim = 64;

inline run::AttentionStep exercise_step(std::string name, std::string question, Kernel<__half> kernel,
                                        std::size_t shared_bytes) {
  run::AttentionVariant variant;
  variant.name = "yours";
  variant.idea = "what task.cuh says";
  variant.supports.dtypes = {problem::Dtype::fp16};
  variant.supports.dims = {exercise_dim};
  variant.supports.window = true;
  variant.shared_bytes = [=](const problem::Attention&) { return shared_bytes; };
  variant.cost = [](const problem::Attention& a) { return std::vector{problem::flash_cost(a)}; };
  variant.launch = [=](const run::AttentionLaunch& l) {
    launch_tiles<__half>(l, kernel, tile_rows, tile_threads, shared_bytes);
  };
  run::AttentionStep step;
  step.name = std::move(name);
  step.question = std::move(question);
  step.default_shape.heads = 2;
  step.default_shape.kv_heads = 2;
  step.default_shape.seq_q = 200;
  step.default_shape.seq_k = 200;
  step.default_shape.dim = exercise_dim;
  step.default_shape.dtype = problem::Dtype::fp16;
  step.default_variant = variant.name;
  step.variants = {variant};
  return step;
}

}  // namespace flash_v2
