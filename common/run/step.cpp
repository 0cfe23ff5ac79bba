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

// Whether every row, of `element` bytes an element, begins at a multiple of `bytes`.
template <bool Const>
bool has_rows_at(const device::AnyHeads<Const>& x, std::int64_t bytes, std::int64_t element) {
  const auto is_multiple = [&](std::int64_t address) { return address % bytes == 0; };
  return is_multiple(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x.data))) &&
         is_multiple(x.batch_stride * element) && is_multiple(x.head_stride * element) && is_multiple(x.row_stride * element);
}

std::string refused(const std::string& what, const AttentionSupport& supports) {
  return "does not support " + what + "; it supports " + to_string(supports);
}

}  // namespace

std::string to_string(const AttentionSupport& supports) {
  return joined(supports.dtypes, problem::name) + "; " + dims_text(supports) + "; " +
         (supports.causal ? "causal" : "not causal") + (supports.window ? ", window" : "") + "; any length" +
         (supports.grouped_heads ? "; grouped heads" : "; kv-heads = heads") +
         (supports.row_alignment > 1 ? "; rows at multiples of " + std::to_string(supports.row_alignment) + " bytes" : "");
}

std::optional<std::string> refusal(const AttentionSupport& supports, const problem::Attention& shape) {
  const std::string what = unsupported(supports, shape);
  if (what.empty()) return std::nullopt;
  return refused(what, supports);
}

std::optional<std::string> refusal(const AttentionSupport& supports, const AttentionLaunch& launch) {
  const std::int64_t bytes = supports.row_alignment;
  const auto element = static_cast<std::int64_t>(problem::bytes(launch.shape.dtype));
  const auto fits = [&](const auto& x) { return has_rows_at(x, bytes, element); };
  if (fits(launch.q) && fits(launch.k) && fits(launch.v) && fits(launch.o)) return std::nullopt;
  return refused("rows that begin elsewhere than at multiples of " + std::to_string(bytes) + " bytes", supports);
}

}  // namespace run
