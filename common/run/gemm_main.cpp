#include "common/run/gemm_main.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/run/command.h"
#include "common/run/gemm_execute.h"
#include "common/run/gemm_request.h"

namespace run {
namespace {

using problem::Gemm;

std::vector<ScratchNeed> buffer_needs(const Gemm& g) {
  const auto size = [&](int batch, int rows, int stride) {
    return static_cast<std::size_t>(batch) * rows * stride * problem::bytes(g.dtype);
  };
  return {{"a", size(g.batch_a, g.m, g.lda)}, {"b", size(g.batch, g.n, g.ldb)}, {"c", size(g.batch, g.m, g.ldc)}};
}

nlohmann::ordered_json problem_json(const Gemm& g) {
  return {{"family", "gemm"}, {"batch", g.batch}, {"batch_a", g.batch_a}, {"m", g.m},     {"n", g.n},
          {"k", g.k},         {"lda", g.lda},     {"ldb", g.ldb},         {"ldc", g.ldc}, {"dtype", problem::name(g.dtype)}};
}

// With every default.
std::string problem_text(const GemmRequest& request) {
  return problem::to_string(request.shape) + ", " + input_text(request.seed, request.folder);
}

int list(const GemmStep& step, const GemmRequest& request) {
  std::cout << step.name << ": " << step.question << '\n'
            << "for " << problem_text(request) << " (* is the default variant):\n";
  for (const GemmVariant& variant : step.variants) {
    print_variant(variant.name, variant.name == step.default_variant, variant.idea, to_string(variant.supports),
                  predict(variant, request.shape));
  }
  return exit_good;
}

int run_request(const GemmStep& step, GemmRequest& request, const CommonOptions& options) {
  const auto selection = chosen_variants(step, options, request.shape, buffer_needs(request.shape));
  if (simulated) device::configure(options.sim);
  if (request.seed) request.inputs = problem::make_inputs(request.shape, *request.seed);

  std::optional<GemmTruth> truth;
  if (options.check) truth.emplace(request.shape, *request.inputs);
  std::vector<Result> results;
  results.reserve(selection.chosen.size());
  for (const GemmVariant* variant : selection.chosen) {
    results.push_back({variant->name, predict(*variant, request.shape),
                       execute(*variant, request.shape, *request.inputs, execute_options(options), truth ? &*truth : nullptr)});
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

int gemm_main(int argc, char** argv, const GemmStep& step) {
  CLI::App app(step.question, step.name);
  CommonOptions options;
  GemmFlags flags;
  add_common_flags(app, options);
  add_gemm_flags(app, flags);
  return run_command_line(app, argc, argv, [&] {
    options.command.assign(argv, argv + argc);
    require_consistent(app, options);
    GemmRequest request = make_request(step, flags, options);
    return options.list ? list(step, request) : run_request(step, request, options);
  });
}

}  // namespace run
