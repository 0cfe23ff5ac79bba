// The family of row softmaxes: y[rows, cols] = softmax of each row of x[rows, cols].
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/problem/softmax.h"
#include "common/run/family/softmax_truth.h"
#include "common/run/harness/execute.h"

namespace run {

// What a variant can compute. A request beyond it is refused by name, never served wrongly.
struct SoftmaxSupport {
  std::vector<problem::Dtype> dtypes = {problem::Dtype::fp32, problem::Dtype::fp16};
  std::int64_t max_row_bytes = std::numeric_limits<std::int64_t>::max();
};

std::string to_string(const SoftmaxSupport& supports);  // "fp32, fp16; any rows; any cols; any strides"

// Why the request cannot be served, naming what is supported; nothing if it can. The shape is resolved.
std::optional<std::string> refusal(const SoftmaxSupport& supports, const problem::Softmax& shape);

// One launch of a variant: everything in device memory. The arrays start at multiples of 256 bytes, rows after the first at any
// multiple of an element.
struct SoftmaxLaunch {
  problem::Softmax shape;      // resolved
  const void* x;               // [rows, ldx]
  void* y;                     // [rows, ldy]
  const DeviceArrays& arrays;  // all of the program's; a step takes its scratch memory from it
};

struct SoftmaxFamily {
  using Problem = problem::Softmax;
  using Inputs = problem::Tensor;  // x
  using Support = SoftmaxSupport;
  using Launch = SoftmaxLaunch;
  using Truth = SoftmaxTruth;

  static Arrays arrays(const Problem& s, Layout layout = {});
  static std::vector<Given> given(const Problem& shape, const Inputs& x);
  static Launch bind(const Problem& s, const DeviceArrays& arrays);
  static std::vector<check::TensorVerdict> judge(const Truth& truth, const std::vector<NamedTensor>& outputs);
};

using SoftmaxVariant = Variant<SoftmaxFamily>;
using SoftmaxStep = Step<SoftmaxFamily>;

int step_main(int argc, char** argv, const SoftmaxStep& step);  // softmax_main.cpp

}  // namespace run
