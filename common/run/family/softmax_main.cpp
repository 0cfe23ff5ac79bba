#include "common/run/cli/family_main.h"
#include "common/run/family/any_step.h"
#include "common/run/family/softmax_request.h"

namespace run {
namespace {

struct SoftmaxCommand : PlainCommand<SoftmaxCommand> {
  using Family = SoftmaxFamily;
  using Request = SoftmaxRequest;
  using Flags = SoftmaxFlags;

  static void add_flags(CLI::App& app, Flags& flags) { add_softmax_flags(app, flags); }

  static std::string text(const Request& request) {
    return problem::to_string(request.shape) + ", " + input_text(request.seed, request.folder);
  }

  static nlohmann::ordered_json problem_json(const problem::Softmax& s) {
    return {{"family", "softmax"}, {"rows", s.rows}, {"cols", s.cols},
            {"ldx", s.ldx},        {"ldy", s.ldy},   {"dtype", problem::name(s.dtype)}};
  }
};

}  // namespace

int step_main(int argc, char** argv, const SoftmaxStep& step) { return family_main<SoftmaxCommand>(argc, argv, step); }

}  // namespace run
