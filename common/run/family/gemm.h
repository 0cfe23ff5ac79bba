// The family of matrix products: C[m, n] = A[m, k] · B[n, k]ᵀ.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/problem/gemm.h"
#include "common/run/family/gemm_truth.h"
#include "common/run/harness/execute.h"

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
  const DeviceArrays& arrays;  // all of the program's; a step takes its scratch memory from it
};

struct GemmFamily {
  using Problem = problem::Gemm;
  using Inputs = problem::GemmInputs;
  using Support = GemmSupport;
  using Launch = GemmLaunch;
  using Truth = GemmTruth;

  // With gaps, three more rows after each matrix.
  static Arrays arrays(const Problem& g, Layout layout = {});
  static std::vector<Given> given(const Problem& shape, const Inputs& inputs);
  static Launch bind(const Problem& g, const DeviceArrays& arrays);
  static std::vector<check::TensorVerdict> judge(const Truth& truth, const std::vector<NamedTensor>& outputs);
};

using GemmVariant = Variant<GemmFamily>;
using GemmStep = Step<GemmFamily>;

int step_main(int argc, char** argv, const GemmStep& step);  // gemm_main.cpp

}  // namespace run
