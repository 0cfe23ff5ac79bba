#include "common/run/family/gemm.h"

#include "common/run/harness/text.h"

namespace run {
namespace {

constexpr int any = std::numeric_limits<int>::max();

// "any k", "k a multiple of 8 up to 1024"
std::string limit_text(const std::string& what, int most, int multiple = 1, const char* is = " a multiple of ") {
  if (multiple == 1 && most == any) return "any " + what;
  return what + (multiple == 1 ? "" : is + std::to_string(multiple)) + (most == any ? "" : " up to " + std::to_string(most));
}

// The first property of the request that is not supported; empty if there is none.
std::string unsupported(const GemmSupport& supports, const problem::Gemm& shape) {
  if (!contains(supports.dtypes, shape.dtype)) return std::string(problem::name(shape.dtype));
  struct Field {
    const char* name;
    int value, multiple, most;
  };
  const Field fields[] = {{"m", shape.m, 1, supports.max_m},
                          {"n", shape.n, 1, supports.max_n},
                          {"k", shape.k, supports.k_multiple, supports.max_k},
                          {"lda", shape.lda, supports.ld_multiple, supports.max_ld},
                          {"ldb", shape.ldb, supports.ld_multiple, supports.max_ld},
                          {"ldc", shape.ldc, supports.ldc_multiple, any},
                          {"batch", shape.batch, 1, supports.batch ? supports.max_batch : 1}};
  for (const Field& field : fields) {
    if (field.value % field.multiple != 0 || field.value > field.most) {
      return std::string(field.name) + " " + std::to_string(field.value);
    }
  }
  return "";
}

}  // namespace

std::string to_string(const GemmSupport& supports) {
  const bool any_strides = supports.ld_multiple == 1 && supports.max_ld == any && supports.ldc_multiple == 1;
  const std::string strides = any_strides ? "any strides"
                                          : limit_text("lda and ldb", supports.max_ld, supports.ld_multiple, " multiples of ") +
                                                "; " + limit_text("ldc", any, supports.ldc_multiple);
  return joined(supports.dtypes, problem::name) + "; " + limit_text("m", supports.max_m) + "; " +
         limit_text("n", supports.max_n) + "; " + limit_text("k", supports.max_k, supports.k_multiple) + "; " + strides + "; " +
         (supports.batch ? "batches up to " + std::to_string(supports.max_batch) : "batch 1");
}

std::optional<std::string> refusal(const GemmSupport& supports, const problem::Gemm& shape) {
  const std::string what = unsupported(supports, shape);
  if (what.empty()) return std::nullopt;
  return "does not support " + what + "; it supports " + to_string(supports);
}

Arrays GemmFamily::arrays(const Problem& g, Layout layout) {
  const auto strides = [&](std::int64_t rows, std::int64_t stride) {
    return std::vector<std::int64_t>{(rows + (layout.gaps ? 3 : 0)) * stride, stride};
  };
  return {input("a", g.dtype, {g.batch_a, g.m, g.k}, strides(g.m, g.lda)),
          input("b", g.dtype, {g.batch, g.n, g.k}, strides(g.n, g.ldb)),
          output("c", g.dtype, {g.batch, g.m, g.n}, strides(g.m, g.ldc))};
}

std::vector<Given> GemmFamily::given(const Problem&, const Inputs& in) { return {{"a", &in.a}, {"b", &in.b}}; }

GemmLaunch GemmFamily::bind(const Problem& g, const DeviceArrays& arrays) {
  const auto batch_stride = [&](const char* name) { return arrays.strides(name)[0]; };
  return {g,
          arrays.data("a"),
          arrays.data("b"),
          arrays.data("c"),
          g.batch_a == 1 ? 0 : batch_stride("a"),
          batch_stride("b"),
          batch_stride("c"),
          arrays};
}

std::vector<check::TensorVerdict> GemmFamily::judge(const Truth& truth, const std::vector<NamedTensor>& outputs) {
  return {truth.judge(tensor_of(outputs, "c"))};
}

}  // namespace run
