// Step 02: what its exercises share. An exercise is a step of its own, in fp16; its variants run one kernel each.
#pragma once

#include "common/run/family/any_step.h"
#include "steps/02_tiled_gemm/04_tensor_cores.cuh"
#include "steps/02_tiled_gemm/host.h"

namespace tiled_gemm {

inline run::GemmVariant exercise_variant(std::string name, std::string idea, std::size_t shared_bytes,
                                         std::function<void(const run::GemmLaunch&)> launch) {
  run::GemmVariant variant;
  variant.name = std::move(name);
  variant.idea = std::move(idea);
  variant.supports.dtypes = {problem::Dtype::fp16};
  variant.supports.k_multiple = chunk;
  variant.supports.ld_multiple = chunk;
  variant.shared_bytes = [=](const problem::Gemm&) { return shared_bytes; };
  variant.cost = [](const problem::Gemm& g) { return std::vector{problem::gemm_cost(g)}; };
  variant.launch = std::move(launch);
  return variant;
}

inline run::GemmStep exercise_step(std::string name, std::string question, int m, int n, int k,
                                   std::vector<run::GemmVariant> variants) {
  run::GemmStep step;
  step.name = std::move(name);
  step.question = std::move(question);
  step.default_shape.m = m;
  step.default_shape.n = n;
  step.default_shape.k = k;
  step.default_variant = variants.front().name;
  step.variants = std::move(variants);
  return step;
}

}  // namespace tiled_gemm
