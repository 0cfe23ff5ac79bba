// What a step of matrix products offers: C[m, n] = A[m, k] · B[n, k]ᵀ. step.cu fills in one of these; as with attention, all
// else is made from it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/problem/cost.h"
#include "common/problem/gemm.h"
#include "common/run/counters.h"
#include "common/run/scratch.h"

namespace run {

// What a variant can compute. A request beyond it is refused by name, never served wrongly.
struct GemmSupport {
  std::vector<problem::Dtype> dtypes = {problem::Dtype::fp16, problem::Dtype::bf16};
  int k_multiple = 1;     // k must be a multiple of this
  int ld_multiple = 1;    // lda and ldb: rows that start at an address of so many elements
  int ldc_multiple = 1;   // ldc
  bool batch = true;      // batches of 2 and more
  int max_batch = 65535;  // CUDA's limit on y and z of a grid, which is where the batch goes
  int max_m = std::numeric_limits<int>::max();
  int max_n = std::numeric_limits<int>::max();
  int max_k = std::numeric_limits<int>::max();
  int max_ld = std::numeric_limits<int>::max();  // lda and ldb
};

std::string to_string(const GemmSupport& supports);  // "fp16; any m; any n; k a multiple of 8; any strides; batch 1"

// Why the request cannot be served, naming what is supported; nothing if it can. The shape is resolved.
std::optional<std::string> refusal(const GemmSupport& supports, const problem::Gemm& shape);

// One launch of a variant: everything in device memory. Strides count elements; the first row of each batch entry starts at
// a multiple of the row stride, and the arrays at 256 bytes.
struct GemmLaunch {
  problem::Gemm shape;          // resolved
  const void* a;                // [batch_a, m, lda]
  const void* b;                // [batch, n, ldb]
  void* c;                      // [batch, m, ldc]
  std::int64_t a_batch_stride;  // 0 where A is shared
  std::int64_t b_batch_stride;
  std::int64_t c_batch_stride;
  const Scratch& scratch;
};

struct GemmVariant {
  std::string name;
  std::string idea;  // in one line
  GemmSupport supports;
  std::function<std::size_t(const problem::Gemm&)> shared_bytes;  // of the block that needs the most
  std::function<std::vector<ScratchNeed>(const problem::Gemm&)> scratch;
  std::function<std::vector<problem::KernelCost>(const problem::Gemm&)> cost;  // one entry per kernel, in launch order
  std::function<void(const GemmLaunch&)> launch;
  bool deterministic = true;  // two runs give the same bits
};

struct GemmStep {
  std::string name;      // "02_tiled_gemm"
  std::string question;  // that the step answers, in one line
  problem::Gemm default_shape;
  std::string default_variant;  // the best one
  std::vector<GemmVariant> variants;
  // Where nvcc's code accesses memory otherwise than the source says.
  std::function<std::vector<Estimate>(const problem::Gemm&)> estimates = [](const auto&) { return std::vector<Estimate>{}; };
};

const GemmStep& this_gemm_step();  // defined by step.cu

}  // namespace run
