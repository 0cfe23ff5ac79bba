#include "common/run/softmax_main.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/run/command.h"
#include "common/run/softmax_execute.h"
#include "common/run/softmax_request.h"

namespace run {
namespace {

using problem::Softmax;

std::vector<ScratchNeed> buffer_needs(const Softmax& s) {
  const auto size = [&](int stride) { return static_cast<std::size_t>(s.rows) * stride * problem::bytes(s.dtype); };
  return {{"x", size(s.ldx)}, {"y", size(s.ldy)}};
}

nlohmann::ordered_json problem_json(const Softmax& s) {
  return {{"family", "softmax"}, {"rows", s.rows}, {"cols", s.cols},
          {"ldx", s.ldx},        {"ldy", s.ldy},   {"dtype", problem::name(s.dtype)}};
}

// With every default.
std::string problem_text(const SoftmaxRequest& request) {
  return problem::to_string(request.shape) + ", " + input_text(request.seed, request.folder);
}

int list(const SoftmaxStep& step, const SoftmaxRequest& request) {
  std::cout << step.name << ": " << step.question << '\n'
            << "for " << problem_text(request) << " (* is the default variant):\n";
  for (const SoftmaxVariant& variant : step.variants) {
    print_variant(variant.name, variant.name == step.default_variant, variant.idea, to_string(variant.supports),
                  predict(variant, request.shape));
  }
  return exit_good;
}

int run_request(const SoftmaxStep& step, SoftmaxRequest& request, const CommonOptions& options) {
  const auto selection = chosen_variants(step, options, request.shape, buffer_needs(request.shape));
  if (simulated) device::configure(options.sim);
  if (request.seed) request.x = problem::make_inputs(request.shape, *request.seed);

  std::optional<SoftmaxTruth> truth;
  if (options.check) truth.emplace(request.shape, *request.x);
  std::vector<Result> results;
  results.reserve(selection.chosen.size());
  for (const SoftmaxVariant* variant : selection.chosen) {
    results.push_back({variant->name, predict(*variant, request.shape),
                       execute(*variant, request.shape, *request.x, execute_options(options), truth ? &*truth : nullptr)});
  }
  const auto problem = problem_json(request.shape), input = input_json(request.seed, "path", request.folder);
  return finish({.step = step.name,
                 .problem_text = problem_text(request),
                 .problem = problem,
                 .input = input,
                 .dtype = request.shape.dtype,
                 .estimates = step.estimates(request.shape),
                 .results = std::move(results),
                 .skipped = selection.skipped},
                options);
}

}  // namespace

int softmax_main(int argc, char** argv, const SoftmaxStep& step) {
  CLI::App app(step.question, step.name);
  CommonOptions options;
  SoftmaxFlags flags;
  add_common_flags(app, options);
  add_softmax_flags(app, flags);
  return run_command_line(app, argc, argv, [&] {
    options.command.assign(argv, argv + argc);
    require_consistent(app, options);
    SoftmaxRequest request = make_request(step, flags, options);
    return options.list ? list(step, request) : run_request(step, request, options);
  });
}

}  // namespace run
