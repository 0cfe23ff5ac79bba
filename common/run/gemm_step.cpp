#include "common/run/gemm_step.h"

#include "common/run/text.h"

namespace run {
namespace {

// "any k", "k a multiple of 8"
std::string multiple_text(const std::string& what, int multiple, const char* is = " a multiple of ") {
  return multiple == 1 ? "any " + what : what + is + std::to_string(multiple);
}

std::string limit_text(const std::string& what, int most) {
  return most == std::numeric_limits<int>::max() ? "any " + what : what + " up to " + std::to_string(most);
}

// The first property of the request that is not supported; empty if there is none.
std::string unsupported(const GemmSupport& supports, const problem::Gemm& shape) {
  if (!contains(supports.dtypes, shape.dtype)) return std::string(problem::name(shape.dtype));
  struct Field {
    const char* name;
    int value, multiple, most;
  };
  constexpr int any = std::numeric_limits<int>::max();
  const Field fields[] = {{"m", shape.m, 1, supports.max_m},
                          {"n", shape.n, 1, supports.max_n},
                          {"k", shape.k, supports.k_multiple, any},
                          {"lda", shape.lda, supports.ld_multiple, any},
                          {"ldb", shape.ldb, supports.ld_multiple, any},
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
  const std::string strides = supports.ld_multiple == 1 && supports.ldc_multiple == 1
                                  ? "any strides"
                                  : multiple_text("lda and ldb", supports.ld_multiple, " multiples of ") + "; " +
                                        multiple_text("ldc", supports.ldc_multiple);
  return joined(supports.dtypes, problem::name) + "; " + limit_text("m", supports.max_m) + "; " +
         limit_text("n", supports.max_n) + "; " + multiple_text("k", supports.k_multiple) + "; " + strides + "; " +
         (supports.batch ? "batches up to " + std::to_string(supports.max_batch) : "batch 1");
}

std::optional<std::string> refusal(const GemmSupport& supports, const problem::Gemm& shape) {
  const std::string what = unsupported(supports, shape);
  if (what.empty()) return std::nullopt;
  return "does not support " + what + "; it supports " + to_string(supports);
}

}  // namespace run
