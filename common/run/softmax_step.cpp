#include "common/run/softmax_step.h"

#include "common/run/text.h"

namespace run {

std::string to_string(const SoftmaxSupport& supports) {
  const bool any = supports.max_row_bytes == SoftmaxSupport{}.max_row_bytes;
  return joined(supports.dtypes, problem::name) + "; any rows; " +
         (any ? "any cols" : "cols up to " + std::to_string(supports.max_row_bytes) + " bytes") + "; any strides";
}

std::optional<std::string> refusal(const SoftmaxSupport& supports, const problem::Softmax& shape) {
  std::string what;
  if (shape.cols > supports.max_row_bytes / static_cast<std::int64_t>(problem::bytes(shape.dtype))) {
    what = "cols " + std::to_string(shape.cols);
  }
  if (!contains(supports.dtypes, shape.dtype)) what = problem::name(shape.dtype);
  if (what.empty()) return std::nullopt;
  return "does not support " + what + "; it supports " + to_string(supports);
}

}  // namespace run
