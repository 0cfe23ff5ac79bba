#include "common/run/gemm_main.h"

#include "common/run/family_main.h"
#include "common/run/gemm_execute.h"
#include "common/run/gemm_request.h"

namespace run {
namespace {

using problem::Gemm;

struct GemmFamily {
  using Request = GemmRequest;
  using Flags = GemmFlags;
  using Truth = GemmTruth;

  static void add_flags(CLI::App& app, Flags& flags) { add_gemm_flags(app, flags); }

  static std::vector<ScratchNeed> buffer_needs(const Gemm& g) {
    const auto size = [&](int batch, int rows, int stride) {
      return static_cast<std::size_t>(batch) * rows * stride * problem::bytes(g.dtype);
    };
    return {{"a", size(g.batch_a, g.m, g.lda)}, {"b", size(g.batch, g.n, g.ldb)}, {"c", size(g.batch, g.m, g.ldc)}};
  }

  static nlohmann::ordered_json problem_json(const Gemm& g) {
    return {{"family", "gemm"}, {"batch", g.batch}, {"batch_a", g.batch_a}, {"m", g.m},     {"n", g.n},
            {"k", g.k},         {"lda", g.lda},     {"ldb", g.ldb},         {"ldc", g.ldc}, {"dtype", problem::name(g.dtype)}};
  }
};

}  // namespace

int gemm_main(int argc, char** argv, const GemmStep& step) { return family_main<GemmFamily>(argc, argv, step); }

}  // namespace run
