#include "common/run/cli/family_main.h"
#include "common/run/family/any_step.h"
#include "common/run/family/linear_request.h"

namespace run {
namespace {

struct LinearCommand : PlainCommand<LinearCommand> {
  using Family = LinearFamily;
  using Request = LinearRequest;
  using Flags = LinearFlags;

  static void add_flags(CLI::App& app, Flags& flags) { add_linear_flags(app, flags); }

  static std::string text(const Request& request) {
    return problem::to_string(request.shape) + ", " + input_text(request.seed, request.folder);
  }

  static nlohmann::ordered_json problem_json(const problem::Linear& g) {
    nlohmann::ordered_json json = {{"family", "linear"}};
    for (const problem::LinearField& field : problem::linear_fields) json[std::string(field.name)] = g.*field.value;
    json["dtype"] = problem::name(g.dtype);
    json["dtype_a"] = problem::name(*g.dtype_a);
    json["dtype_c"] = problem::name(*g.dtype_c);
    json["activation"] = problem::activation_name(g.activation);
    json["bias"] = g.bias;
    return json;
  }
};

}  // namespace

int step_main(int argc, char** argv, const LinearStep& step) { return family_main<LinearCommand>(argc, argv, step); }

}  // namespace run
