// What the programs of a family have in common, where a run takes a shape and inputs and nothing else. The family names its
// types and what is its own:
//
//     struct GemmFamily {
//       using Request = …;   // {shape, seed, folder, inputs}
//       using Flags = …;  using Truth = …;
//       static void add_flags(CLI::App& app, Flags& flags);
//       static std::vector<ScratchNeed> buffer_needs(const Shape& shape);    // inputs and outputs on the device
//       static nlohmann::ordered_json problem_json(const Shape& shape);      // docs/result.schema.json
//     };
#pragma once

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/run/command.h"

namespace run {

// With every default.
template <class Request>
std::string problem_text(const Request& request) {
  return problem::to_string(request.shape) + ", " + input_text(request.seed, request.folder);
}

template <class Step, class Request>
int list_variants(const Step& step, const Request& request) {
  std::cout << step.name << ": " << step.question << '\n'
            << "for " << problem_text(request) << " (* is the default variant):\n";
  for (const auto& variant : step.variants) {
    print_variant(variant.name, variant.name == step.default_variant, variant.idea, to_string(variant.supports),
                  predict(variant, request.shape));
  }
  return exit_good;
}

template <class Family, class Step>
int run_request(const Step& step, typename Family::Request& request, const CommonOptions& options) {
  const auto selection = chosen_variants(step, options, request.shape, Family::buffer_needs(request.shape));
  if (simulated) device::configure(options.sim);
  if (request.seed) request.inputs = problem::make_inputs(request.shape, *request.seed);

  std::optional<typename Family::Truth> truth;
  if (options.check) truth.emplace(request.shape, *request.inputs);
  std::vector<Result> results;
  results.reserve(selection.chosen.size());
  for (const auto* variant : selection.chosen) {
    results.push_back({variant->name, predict(*variant, request.shape),
                       execute(*variant, request.shape, *request.inputs, execute_options(options), truth ? &*truth : nullptr)});
  }
  const auto problem = Family::problem_json(request.shape), input = input_json(request.seed, "path", request.folder);
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

// Does what the arguments say; returns the exit status (options.h: ExitStatus).
template <class Family, class Step>
int family_main(int argc, char** argv, const Step& step) {
  CLI::App app(step.question, step.name);
  CommonOptions options;
  typename Family::Flags flags;
  add_common_flags(app, options);
  Family::add_flags(app, flags);
  return run_command_line(app, argc, argv, [&] {
    options.command.assign(argv, argv + argc);
    require_consistent(app, options);
    typename Family::Request request = make_request(step, flags, options);
    return options.list ? list_variants(step, request) : run_request<Family>(step, request, options);
  });
}

}  // namespace run
