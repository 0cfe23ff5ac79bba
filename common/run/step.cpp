#include "common/run/step.h"

#include <algorithm>
#include <stdexcept>

namespace run {
namespace {

template <class Range, class Text>
std::string joined(const Range& range, const Text& text) {
  std::string result;
  for (const auto& item : range) result += (result.empty() ? "" : ", ") + text(item);
  return result;
}

std::string dims_text(const AttentionSupport& supports) {
  if (supports.dims.empty()) return "any dim up to " + std::to_string(supports.max_dim);
  return "dim " + joined(supports.dims, [](int dim) { return std::to_string(dim); });
}

bool takes_dim(const AttentionSupport& supports, int dim) {
  if (supports.dims.empty()) return dim <= supports.max_dim;
  return std::find(supports.dims.begin(), supports.dims.end(), dim) != supports.dims.end();
}

// The first property of the request that is not supported; empty if there is none.
std::string unsupported(const AttentionSupport& supports, const problem::Attention& shape) {
  if (std::find(supports.dtypes.begin(), supports.dtypes.end(), shape.dtype) == supports.dtypes.end()) {
    return std::string(problem::name(shape.dtype));
  }
  if (!takes_dim(supports, shape.dim)) return "dim " + std::to_string(shape.dim);
  if (shape.causal && !supports.causal) return "causal";
  if (shape.window > 0 && !supports.window) return "a window";
  if (shape.kv_heads < shape.heads && !supports.grouped_heads) return "fewer kv-heads than heads";
  if (shape.batch > supports.max_batch) return "a batch beyond " + std::to_string(supports.max_batch);
  if (shape.heads > supports.max_heads) return "more than " + std::to_string(supports.max_heads) + " heads";
  return "";
}

}  // namespace

std::string to_string(const AttentionSupport& supports) {
  return joined(supports.dtypes, [](problem::Dtype dtype) { return std::string(problem::name(dtype)); }) + "; " +
         dims_text(supports) + "; " + (supports.causal ? "causal" : "not causal") + (supports.window ? ", window" : "") +
         "; any length" + (supports.grouped_heads ? "; grouped heads" : "; kv-heads = heads");
}

std::optional<std::string> refusal(const AttentionSupport& supports, const problem::Attention& shape) {
  const std::string what = unsupported(supports, shape);
  if (what.empty()) return std::nullopt;
  return "does not support " + what + "; it supports " + to_string(supports);
}

Scratch::Scratch(const std::vector<ScratchNeed>& needs) {
  for (const ScratchNeed& need : needs) {
    names_.push_back(need.name);
    buffers_.emplace_back(need.name, need.bytes);
  }
}

void Scratch::poison() {
  for (device::Buffer& buffer : buffers_) buffer.poison();
}

bool Scratch::guards_intact() const {
  return std::all_of(buffers_.begin(), buffers_.end(), [](const device::Buffer& buffer) { return buffer.guards_intact(); });
}

const device::Buffer& Scratch::find(const std::string& name) const {
  const auto at = std::find(names_.begin(), names_.end(), name);
  if (at == names_.end()) throw std::logic_error("scratch memory '" + name + "' was not declared by the variant");
  return buffers_[static_cast<std::size_t>(at - names_.begin())];
}

}  // namespace run
