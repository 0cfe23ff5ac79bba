// Step 02: what its exercises share. An exercise is a step of its own, in fp16; its variants run one kernel each.
#pragma once

#include "common/run/gemm_step.h"
#include "steps/02_tiled_gemm/4_tensor_cores.cuh"

namespace tiled_gemm {

// Launches a kernel whose blocks compute rows × columns elements of C each.
template <class... Arguments>
void launch_blocks(const run::GemmLaunch& l,
                   void (*kernel)(Shape, Matrix<const __half>, Matrix<const __half>, Matrix<__half>, Arguments...), int rows,
                   int columns, int threads, std::size_t shared_bytes, Arguments... arguments) {
  const problem::Gemm& g = l.shape;
  const dim3 blocks(static_cast<unsigned>(ceil_div(g.m, rows) * ceil_div(g.n, columns)), static_cast<unsigned>(g.batch));
  const Matrix<const __half> a{static_cast<const __half*>(l.a), l.a_batch_stride, g.lda};
  const Matrix<const __half> b{static_cast<const __half*>(l.b), l.b_batch_stride, g.ldb};
  const Matrix<__half> c{static_cast<__half*>(l.c), l.c_batch_stride, g.ldc};
  device::launch(kernel, blocks, threads, shared_bytes, Shape{g.m, g.n, g.k}, a, b, c, arguments...);
}

inline run::GemmVariant exercise_variant(std::string name, std::string idea, std::size_t shared_bytes,
                                         std::function<void(const run::GemmLaunch&)> launch) {
  run::GemmVariant variant;
  variant.name = std::move(name);
  variant.idea = std::move(idea);
  variant.supports.dtypes = {problem::Dtype::fp16};
  variant.supports.k_multiple = chunk;
  variant.supports.ld_multiple = chunk;
  variant.shared_bytes = [=](const problem::Gemm&) { return shared_bytes; };
  variant.scratch = [](const problem::Gemm&) { return std::vector<run::ScratchNeed>{}; };
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
