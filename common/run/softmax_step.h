// What a step of row softmaxes offers: y[rows, cols] = softmax of each row of x[rows, cols]. step.cu fills in one of these; as
// with attention, all else is made from it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/problem/cost.h"
#include "common/problem/softmax.h"
#include "common/run/counters.h"
#include "common/run/scratch.h"

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
  problem::Softmax shape;  // resolved
  const void* x;           // [rows, ldx]
  void* y;                 // [rows, ldy]
  const Scratch& scratch;
};

struct SoftmaxVariant {
  std::string name;
  std::string idea;  // in one line
  SoftmaxSupport supports;
  std::function<std::size_t(const problem::Softmax&)> shared_bytes;  // of the block that needs the most
  std::function<std::vector<ScratchNeed>(const problem::Softmax&)> scratch;
  std::function<std::vector<problem::KernelCost>(const problem::Softmax&)> cost;  // one entry per kernel, in launch order
  std::function<void(const SoftmaxLaunch&)> launch;
  bool deterministic = true;  // two runs give the same bits
};

struct SoftmaxStep {
  std::string name;      // "03_online_softmax"
  std::string question;  // that the step answers, in one line
  problem::Softmax default_shape;
  std::string default_variant;  // the best one
  std::vector<SoftmaxVariant> variants;
  // Where nvcc's code accesses memory otherwise than the source says.
  std::function<std::vector<Estimate>(const problem::Softmax&)> estimates = [](const auto&) { return std::vector<Estimate>{}; };
};

const SoftmaxStep& this_softmax_step();  // defined by step.cu

}  // namespace run
