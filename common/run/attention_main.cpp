#include "common/run/attention_main.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/run/attention_request.h"
#include "common/run/command.h"
#include "common/run/text.h"

namespace run {
namespace {

using problem::Attention;

std::vector<ScratchNeed> buffer_needs(const Attention& a) {
  const std::size_t element = problem::bytes(a.dtype);
  const std::size_t q_rows = static_cast<std::size_t>(a.batch) * a.heads * a.seq_q;
  const std::size_t k_rows = static_cast<std::size_t>(a.batch) * a.kv_heads * a.seq_k;
  std::vector<ScratchNeed> needs;
  for (const char* name : {"q", "o"}) needs.push_back({name, q_rows * a.dim * element});
  for (const char* name : {"k", "v"}) needs.push_back({name, k_rows * a.dim * element});
  needs.push_back({"lse", q_rows * sizeof(float)});
  return needs;
}

Prediction predict(const AttentionVariant& variant, const Attention& shape, bool layer) {
  Prediction p = predict(variant, shape);
  if (layer) {
    const double rows = static_cast<double>(shape.batch) * shape.seq_q;
    const double width = static_cast<double>(shape.heads) * shape.dim;
    p.kernels.insert(p.kernels.begin(), problem::linear_cost("linear (Q, K, V)", rows, width, 3 * width));
    p.kernels.push_back(problem::linear_cost("linear (y)", rows, width, width));
    p.flops += p.kernels.front().flops + p.kernels.back().flops;
    p.scratch_bytes += static_cast<std::size_t>(3 * rows * width) * sizeof(float);
  }
  return p;
}

nlohmann::ordered_json problem_json(const Attention& a) {
  return {{"family", "attention"},
          {"batch", a.batch},
          {"heads", a.heads},
          {"kv_heads", a.kv_heads},
          {"seq_q", a.seq_q},
          {"seq_k", a.seq_k},
          {"dim", a.dim},
          {"causal", a.causal},
          {"window", a.window},
          {"scale", *a.scale},
          {"dtype", problem::name(a.dtype)}};
}

// With every default.
std::string problem_text(const AttentionRequest& request) {
  return problem::to_string(request.shape) + ", scale " + significant(*request.shape.scale, 6) + ", " +
         input_text(request.seed, request.folder);
}

int list(const AttentionStep& step, const AttentionRequest& request) {
  std::cout << step.name << ": " << step.question << '\n'
            << "for " << problem_text(request) << " (* is the default variant):\n";
  for (const AttentionVariant& variant : step.variants) {
    print_variant(variant.name, variant.name == step.default_variant, variant.idea, to_string(variant.supports),
                  predict(variant, request.shape, request.layer.has_value()));
    if (!variant.demonstration.empty()) std::cout << "    not among all: " << variant.demonstration << '\n';
  }
  if (step.linear) std::cout << "\n--layer DIR runs the whole layer around any of them.\n";
  return exit_good;
}

std::vector<Result> run_all(const AttentionStep& step, const std::vector<const AttentionVariant*>& variants,
                            const AttentionRequest& request, const CommonOptions& common) {
  const ExecuteOptions options = execute_options(common);
  std::optional<AttentionTruth> truth;
  std::optional<LayerTruth> layer_truth;
  if (common.check && request.layer) layer_truth.emplace(request.shape, *request.layer);
  if (common.check && !request.layer) truth.emplace(request.shape, *request.inputs);

  std::vector<Result> results;
  for (const AttentionVariant* variant : variants) {
    Outcome outcome = request.layer ? execute_layer(step, *variant, request.shape, *request.layer, options,
                                                    layer_truth ? &*layer_truth : nullptr)
                                    : execute(*variant, request.shape, *request.inputs, options, truth ? &*truth : nullptr);
    results.push_back({variant->name, predict(*variant, request.shape, request.layer.has_value()), std::move(outcome)});
  }
  return results;
}

int run_request(const AttentionStep& step, AttentionRequest& request, const CommonOptions& options) {
  const auto selection = chosen_variants(step, options, request.shape, buffer_needs(request.shape));
  if (simulated) device::configure(options.sim);
  if (request.seed) request.inputs = problem::make_inputs(request.shape, *request.seed);

  const auto problem = problem_json(request.shape);
  const auto input = input_json(request.seed, request.layer ? "layer" : "path", request.folder);
  std::vector<Result> results = run_all(step, selection.chosen, request, options);
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

int attention_main(int argc, char** argv, const AttentionStep& step) {
  CLI::App app(step.question, step.name);
  CommonOptions options;
  AttentionFlags flags;
  add_common_flags(app, options);
  add_attention_flags(app, flags);
  return run_command_line(app, argc, argv, [&] {
    options.command.assign(argv, argv + argc);
    require_consistent(app, options);
    AttentionRequest request = make_request(step, flags, options);
    return options.list ? list(step, request) : run_request(step, request, options);
  });
}

}  // namespace run
