// main() of the steps of a family. Beside the family, a Command says what is its own on the command line:
//
//     struct GemmCommand {
//       using Family = GemmFamily;
//       using Request = …;   // {shape, seed, folder, inputs}
//       using Flags = …;
//       static void add_flags(CLI::App& app, Flags& flags);
//       static std::string text(const Request& request);                        // with every default, in one line
//       static nlohmann::ordered_json problem_json(const Problem& shape);       // docs/result.schema.json
//     };
//     Request make_request(const Step<Family>& step, const Flags& flags, const CommonOptions& options);
#pragma once

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/run/cli/command.h"

namespace run {

// What runs, of a request for the family's problem and nothing else.
template <class Command>
struct PlainCommand {
  template <class Step, class Variant, class Request>
  static Program program(const Step&, const Variant& variant, const Request& request) {
    return program_of(variant, request.shape, [&request] { return Command::Family::given(request.shape, *request.inputs); });
  }
  template <class Request>
  static Judge judge(const Request& request) {
    using Family = typename Command::Family;
    const auto truth = std::make_shared<const typename Family::Truth>(request.shape, *request.inputs);
    return [truth](const std::vector<NamedTensor>& outputs) { return Family::judge(*truth, outputs); };
  }
  // The inputs that a program computes from the others.
  template <class Step, class Request>
  static void complete(const Step&, Request&) {}
  template <class Variant, class Request>
  static Prediction predict(const Variant& variant, const Request& request) {
    return run::predict(variant, request.shape);
  }
  template <class Request>
  static nlohmann::ordered_json input_json(const Request& request) {
    return run::input_json(request.seed, "path", request.folder);
  }
  // Flags that some steps of the family have and others have not.
  template <class Step>
  static void add_flags_of_step(CLI::App&, const Step&) {}
  template <class Step>
  static std::string list_note(const Step&) {
    return "";
  }
};

template <class Command, class Step>
int list_variants(const Step& step, const typename Command::Request& request) {
  std::cout << step.name << ": " << step.question << '\n'
            << "for " << Command::text(request) << " (* is the default variant):\n";
  for (const auto& variant : step.variants) {
    print_variant(variant.name, variant.name == step.default_variant, variant.idea, to_string(variant.supports),
                  variant.compute_capability, Command::predict(variant, request));
    if (!variant.demonstration.empty()) std::cout << "    not among all: " << variant.demonstration << '\n';
  }
  std::cout << Command::list_note(step);
  return exit_good;
}

template <class Command, class Step>
int run_request(const Step& step, typename Command::Request& request, const CommonOptions& options) {
  const auto selection = chosen_variants(step, options, request.shape);
  std::vector<Program> programs;
  for (const auto* variant : selection.chosen) {
    programs.push_back(Command::program(step, *variant, request));
    require_memory(variant->name, programs.back().arrays);
  }
  if (simulated) runtime::configure(options.sim);
  if (request.seed) request.inputs = make_inputs(request.shape, *request.seed);
  Command::complete(step, request);

  const Judge judge = options.check ? Command::judge(request) : Judge();
  std::vector<Result> results;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const auto& variant = *selection.chosen[i];
    results.push_back({variant.name, Command::predict(variant, request), programs[i].arrays,
                       run_program(programs[i], judge, execute_options(options))});
  }
  const auto problem = Command::problem_json(request.shape), input = Command::input_json(request);
  return finish({.step = step.name,
                 .problem_text = Command::text(request),
                 .problem = problem,
                 .input = input,
                 .dtype = request.shape.dtype,
                 .estimates = step.estimates_of(request.shape),
                 .results = std::move(results),
                 .skipped = selection.skipped},
                options);
}

// Does what the arguments say; returns the exit status (options.h: ExitStatus).
template <class Command, class Step>
int family_main(int argc, char** argv, const Step& step) {
  CLI::App app(step.question, step.name);
  CommonOptions options;
  typename Command::Flags flags;
  add_common_flags(app, options);
  Command::add_flags(app, flags);
  Command::add_flags_of_step(app, step);
  return run_command_line(app, argc, argv, [&] {
    options.command.assign(argv, argv + argc);
    require_consistent(app, options);
    typename Command::Request request = make_request(step, flags, options);
    return options.list ? list_variants<Command>(step, request) : run_request<Command>(step, request, options);
  });
}

}  // namespace run
