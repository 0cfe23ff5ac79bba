#include "common/run/step.h"

#include "common/run/text.h"

namespace run {
namespace {

std::string dims_text(const AttentionSupport& supports) {
  if (supports.dims.empty()) return "any dim up to " + std::to_string(supports.max_dim);
  return "dim " + joined(supports.dims, [](int dim) { return std::to_string(dim); });
}

bool takes_dim(const AttentionSupport& supports, int dim) {
  return supports.dims.empty() ? dim <= supports.max_dim : contains(supports.dims, dim);
}

// The first property of the request that is not supported; empty if there is none.
std::string unsupported(const AttentionSupport& supports, const problem::Attention& shape) {
  if (!contains(supports.dtypes, shape.dtype)) return std::string(problem::name(shape.dtype));
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
  return joined(supports.dtypes, problem::name) + "; " + dims_text(supports) + "; " +
         (supports.causal ? "causal" : "not causal") + (supports.window ? ", window" : "") + "; any length" +
         (supports.grouped_heads ? "; grouped heads" : "; kv-heads = heads");
}

std::optional<std::string> refusal(const AttentionSupport& supports, const problem::Attention& shape) {
  const std::string what = unsupported(supports, shape);
  if (what.empty()) return std::nullopt;
  return "does not support " + what + "; it supports " + to_string(supports);
}

}  // namespace run
