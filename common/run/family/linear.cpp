#include "common/run/family/linear.h"

#include "common/run/harness/text.h"

namespace run {
namespace {

std::string number(const char* name, std::int64_t value) { return std::string(name) + " " + std::to_string(value); }

// The first property of the request that is not supported; empty if there is none.
std::string unsupported(const LinearSupport& supports, const problem::Linear& shape) {
  const auto rows_fit = [&](int stride, problem::Dtype dtype) {
    return std::int64_t{stride} * static_cast<std::int64_t>(problem::bytes(dtype)) % supports.row_bytes == 0;
  };
  if (shape.is_routed() && !supports.experts) return number("experts", shape.experts);
  if (!shape.is_routed() && supports.experts) return "a product without experts";
  if (!contains(supports.dtypes, shape.dtype)) return std::string(problem::name(shape.dtype));
  if (shape.dtype_a != shape.dtype && !supports.fp32_tokens) return "tokens of fp32";
  if (shape.m > supports.max_m) return number("m", shape.m);
  if (shape.k % supports.k_multiple != 0) return number("k", shape.k);
  if (!rows_fit(shape.lda, *shape.dtype_a)) return number("lda", shape.lda);
  if (!rows_fit(shape.ldb, shape.dtype)) return number("ldb", shape.ldb);
  if (shape.pairs() > supports.max_pairs) return number("m · top", shape.pairs());
  if (shape.experts > most_grid_y) return number("experts", shape.experts);
  if (shape.entries() > most_grid_y * most_grid_z) return number("samples · channels", shape.entries());
  return "";
}

std::optional<std::string> refused(const LinearSupport& supports, const std::string& what) {
  if (what.empty()) return std::nullopt;
  return "does not support " + what + "; it supports " + to_string(supports);
}

// Do the rows begin at multiples of so many bytes? A stride along which there is one entry does not matter.
bool rows_begin_at(const void* data, const LinearStrides& strides, std::int64_t samples, std::int64_t channels,
                   std::int64_t rows, problem::Dtype dtype, std::int64_t multiple) {
  const auto element = static_cast<std::int64_t>(problem::bytes(dtype));
  const auto fits = [&](std::int64_t stride, std::int64_t count) { return count == 1 || stride * element % multiple == 0; };
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(multiple) == 0 && fits(strides.sample, samples) &&
         fits(strides.channel, channels) && fits(strides.row, rows);
}

// Strides of [samples, channels, rows, columns], `ld` elements from one row of a matrix to the next at least.
std::vector<std::int64_t> strides_of(std::int64_t channels, std::int64_t rows, std::int64_t ld, Layout layout) {
  if (layout.odd) ld |= 1;
  if (layout.gaps) rows += 3;
  if (!layout.tokens_first) return {(channels + (layout.gaps ? 1 : 0)) * rows * ld, rows * ld, ld};
  if (layout.gaps) ++channels;
  return {rows * channels * ld, ld, channels * ld};
}

LinearStrides strides_in(const DeviceArrays& arrays, const char* name) {
  const std::vector<std::int64_t>& strides = arrays.strides(name);
  return {strides[0], strides[1], strides[2]};
}

}  // namespace

std::string to_string(const LinearSupport& supports) {
  const bool any_m = supports.max_m == std::numeric_limits<int>::max();
  return joined(supports.dtypes, problem::name) + "; tokens of that type" + (supports.fp32_tokens ? " or fp32; " : "; ") +
         (any_m ? "any m" : "m up to " + std::to_string(supports.max_m)) + "; any n; " +
         (supports.k_multiple == 1 ? "any k" : "k a multiple of " + std::to_string(supports.k_multiple)) + "; rows " +
         (supports.row_bytes == 1 ? "anywhere"
                                  : "of A and B at multiples of " + std::to_string(supports.row_bytes) + " bytes") +
         (supports.experts ? "; only with experts, up to " + std::to_string(most_grid_y) : "") +
         (supports.max_pairs < std::numeric_limits<int>::max() ? ", m · top up to " + std::to_string(supports.max_pairs) : "");
}

std::optional<std::string> refusal(const LinearSupport& supports, const problem::Linear& shape) {
  return refused(supports, unsupported(supports, shape));
}

std::optional<std::string> refusal(const LinearSupport& supports, const LinearLaunch& l) {
  const problem::Linear& g = l.shape;
  const auto elsewhere = [&](const char* what) {
    return refused(supports, std::string("rows of ") + what + " that begin elsewhere than at multiples of " +
                                 std::to_string(supports.row_bytes) + " bytes");
  };
  const int multiple = supports.row_bytes;
  if (!rows_begin_at(l.a, l.a_strides, g.samples, g.channels, g.m, *g.dtype_a, multiple)) return elsewhere("A");
  if (!rows_begin_at(l.b, l.b_strides, g.weight_samples, g.weight_channels, g.n, g.dtype, multiple)) return elsewhere("B");
  return std::nullopt;
}

Arrays LinearFamily::arrays(const Problem& g, Layout layout) {
  Arrays all = {
      input("a", *g.dtype_a, {g.samples, g.channels, g.m, g.k}, strides_of(g.channels, g.m, g.lda, layout)),
      input("b", g.dtype, {g.weight_samples, g.weight_channels, g.n, g.k}, strides_of(g.weight_channels, g.n, g.ldb, layout)),
      optional_input("bias", g.dtype, {g.weight_samples, g.weight_channels, g.n}),
      output("c", *g.dtype_c, {g.samples, g.channels, g.m, g.n}, strides_of(g.channels, g.m, g.ldc, layout))};
  if (!g.is_routed()) return all;
  return all + Arrays{input("experts", Element::int32(), {g.m, g.top}), input("routing", problem::Dtype::fp32, {g.m, g.top})};
}

std::vector<Given> LinearFamily::given(const Problem& g, const Inputs& in) {
  std::vector<Given> all = {{"a", &in.a}, {"b", &in.b}};
  if (in.bias) all.push_back({"bias", &*in.bias});
  if (g.is_routed()) {
    all.push_back({.name = "experts", .integers = in.experts.values});
    all.push_back({"routing", &in.routing});
  }
  return all;
}

LinearLaunch LinearFamily::bind(const Problem& g, const DeviceArrays& arrays) {
  return {g,
          arrays.data("a"),
          arrays.data("b"),
          arrays.data("bias"),
          g.is_routed() ? arrays.get<int>("experts") : nullptr,
          g.is_routed() ? arrays.get<float>("routing") : nullptr,
          arrays.data("c"),
          strides_in(arrays, "a"),
          strides_in(arrays, "b"),
          strides_in(arrays, "c"),
          arrays};
}

std::vector<check::TensorVerdict> LinearFamily::judge(const Truth& truth, const std::vector<NamedTensor>& outputs) {
  return {truth.judge(tensor_of(outputs, "c"))};
}

}  // namespace run
