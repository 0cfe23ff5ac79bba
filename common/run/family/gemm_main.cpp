#include "common/run/cli/family_main.h"
#include "common/run/family/any_step.h"
#include "common/run/family/gemm_request.h"

namespace run {
namespace {

struct GemmCommand : PlainCommand<GemmCommand> {
  using Family = GemmFamily;
  using Request = GemmRequest;
  using Flags = GemmFlags;

  static void add_flags(CLI::App& app, Flags& flags) { add_gemm_flags(app, flags); }

  static std::string text(const Request& request) {
    return problem::to_string(request.shape) + ", " + input_text(request.seed, request.folder);
  }

  static nlohmann::ordered_json problem_json(const problem::Gemm& g) {
    return {{"family", "gemm"}, {"batch", g.batch}, {"batch_a", g.batch_a}, {"m", g.m},     {"n", g.n},
            {"k", g.k},         {"lda", g.lda},     {"ldb", g.ldb},         {"ldc", g.ldc}, {"dtype", problem::name(g.dtype)}};
  }
};

}  // namespace

int step_main(int argc, char** argv, const GemmStep& step) { return family_main<GemmCommand>(argc, argv, step); }

}  // namespace run
