// The family of linear layers at inference: C = activation(A · Bᵀ + bias), few tokens in A, weights in B.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/problem/linear.h"
#include "common/run/family/linear_truth.h"
#include "common/run/harness/execute.h"

namespace run {

// What a variant can compute. A request beyond it is refused by name, never served wrongly.
struct LinearSupport {
  std::vector<problem::Dtype> dtypes = {problem::Dtype::fp16, problem::Dtype::bf16};  // of the weights
  bool fp32_tokens = true;                                                            // beside tokens of the weights' type
  int max_m = std::numeric_limits<int>::max();
  int k_multiple = 1;    // k must be a multiple of this
  int row_bytes = 1;     // rows of A and B begin at multiples of so many bytes, in memory and from each other
  bool experts = false;  // products that are routed to experts, and no others
  int max_pairs = std::numeric_limits<int>::max();  // of a token and an expert: m · top
};

// Batch entries go to y and z of a grid, whose limits CUDA sets.
inline constexpr std::int64_t most_grid_y = 65535, most_grid_z = 65535;

std::string to_string(const LinearSupport& supports);  // "fp16, bf16; tokens of that type or fp32; m up to 16; any n; …"

// Why the request cannot be served, naming what is supported; nothing if it can. The shape is resolved.
std::optional<std::string> refusal(const LinearSupport& supports, const problem::Linear& shape);

// Where the rows of a [samples, channels, rows, columns] array lie, in elements. The columns are contiguous.
struct LinearStrides {
  std::int64_t sample, channel, row;
};

// One launch of a variant: everything in device memory. Any strides may come.
struct LinearLaunch {
  problem::Linear shape;  // resolved
  const void* a;          // [samples, channels, m, k]
  const void* b;          // [weight_samples, weight_channels, n, k]
  const void* bias;       // [weight_samples, weight_channels, n], without gaps; null: none
  const int* experts;     // [m, top], any numbers; null: the product is not routed
  const float* routing;   // [m, top]
  void* c;                // [samples, channels, m, n]
  LinearStrides a_strides, b_strides, c_strides;
  const DeviceArrays& arrays;  // all of the program's; a step takes its scratch memory from it
};

// The same for the rows of a launch.
std::optional<std::string> refusal(const LinearSupport& supports, const LinearLaunch& launch);

struct LinearFamily {
  using Problem = problem::Linear;
  using Inputs = problem::LinearInputs;
  using Support = LinearSupport;
  using Launch = LinearLaunch;
  using Truth = LinearTruth;

  // With gaps, three more rows after each matrix, and a matrix after each sample; odd: and an element after each row, if their
  // distance is even. tokens_first: [samples, rows, channels, columns].
  static Arrays arrays(const Problem& shape, Layout layout = {});
  static std::vector<Given> given(const Problem& shape, const Inputs& inputs);
  static Launch bind(const Problem& shape, const DeviceArrays& arrays);
  static std::vector<check::TensorVerdict> judge(const Truth& truth, const std::vector<NamedTensor>& outputs);
};

using LinearVariant = Variant<LinearFamily>;
using LinearStep = Step<LinearFamily>;

int step_main(int argc, char** argv, const LinearStep& step);  // linear_main.cpp

}  // namespace run
