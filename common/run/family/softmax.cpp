#include "common/run/family/softmax.h"

#include "common/run/harness/text.h"

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

Arrays SoftmaxFamily::arrays(const Problem& s, Layout) {
  return {input("x", s.dtype, {s.rows, s.cols}, {s.ldx}), output("y", s.dtype, {s.rows, s.cols}, {s.ldy})};
}

std::vector<Given> SoftmaxFamily::given(const Problem&, const Inputs& x) { return {{"x", &x}}; }

SoftmaxLaunch SoftmaxFamily::bind(const Problem& s, const DeviceArrays& arrays) {
  return {s, arrays.data("x"), arrays.data("y"), arrays};
}

std::vector<check::TensorVerdict> SoftmaxFamily::judge(const Truth& truth, const std::vector<NamedTensor>& outputs) {
  return {truth.judge(tensor_of(outputs, "y"))};
}

}  // namespace run
