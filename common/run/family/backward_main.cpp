#include "common/run/cli/family_main.h"
#include "common/run/family/any_step.h"
#include "common/run/family/backward_request.h"
#include "common/run/harness/text.h"

namespace run {
namespace {

struct BackwardCommand : PlainCommand<BackwardCommand> {
  using Family = BackwardFamily;
  using Request = BackwardRequest;
  using Flags = AttentionFlags;

  static void add_flags(CLI::App& app, Flags& flags) { add_shape_flags(app, flags); }

  static void add_flags_of_step(CLI::App& app, const BackwardStep& step) {
    if (step.forward && step.forward->backward == &step) add_backward_flag(app);
  }

  static std::string text(const Request& request) {
    return problem::to_string(request.shape) + ", scale " + significant(*request.shape.scale, 6) + ", " +
           input_text(request.seed, request.folder);
  }

  static nlohmann::ordered_json problem_json(const problem::Backward& a) {
    nlohmann::ordered_json json = attention_json(a);
    json["family"] = "backward";
    return json;
  }

  // O and LSE, where no file gave them.
  static void complete(const BackwardStep& step, Request& request) {
    if (request.inputs->o.values.empty()) run_forward(step, request.shape, *request.inputs);
  }
};

}  // namespace

int step_main(int argc, char** argv, const BackwardStep& step) { return family_main<BackwardCommand>(argc, argv, step); }

}  // namespace run
