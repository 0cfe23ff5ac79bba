#include "common/run/attention_main.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/run/attention_request.h"
#include "common/run/execute.h"
#include "common/run/report.h"
#include "common/run/select.h"
#include "common/run/text.h"

namespace run {
namespace {

using problem::Attention;

std::vector<ScratchNeed> memory_needs(const AttentionVariant& variant, const Attention& a) {
  const std::size_t element = problem::bytes(a.dtype);
  const std::size_t q_rows = static_cast<std::size_t>(a.batch) * a.heads * a.seq_q;
  const std::size_t k_rows = static_cast<std::size_t>(a.batch) * a.kv_heads * a.seq_k;
  std::vector<ScratchNeed> needs = variant.scratch(a);
  for (const char* name : {"q", "o"}) needs.push_back({name, q_rows * a.dim * element});
  for (const char* name : {"k", "v"}) needs.push_back({name, k_rows * a.dim * element});
  needs.push_back({"lse", q_rows * sizeof(float)});
  return needs;
}

// Before anything large is made on the host either.
void require_memory(const AttentionVariant& variant, const Attention& shape) {
  double total = 0;
  ScratchNeed largest{"", 0};
  for (const ScratchNeed& need : memory_needs(variant, shape)) {
    total += static_cast<double>(need.bytes);
    if (need.bytes > largest.bytes) largest = need;
  }
  const auto there_is = static_cast<double>(device::properties().memory_bytes);
  if (total <= there_is) return;
  throw device::OutOfMemory("out of device memory: " + variant.name + " asks for " + megabytes(total) + " MB, of which '" +
                            largest.name + "' " + megabytes(static_cast<double>(largest.bytes)) + " MB; " +
                            device::properties().name + " has " + megabytes(there_is) + " MB");
}

std::optional<std::string> refusal_here(const AttentionVariant& variant, const Attention& shape) {
  if (const auto reason = refusal(variant.supports, shape)) return reason;
  const std::size_t needed = variant.shared_bytes(shape);
  const std::size_t given = device::properties().shared_bytes_per_block;
  if (needed <= given) return std::nullopt;
  return "needs " + std::to_string(needed) + " bytes of shared memory a block; this device gives " + std::to_string(given);
}

Prediction predict(const AttentionVariant& variant, const Attention& shape, bool layer) {
  Prediction p{shape.flops(), variant.cost(shape), variant.shared_bytes(shape), 0};
  for (const ScratchNeed& need : variant.scratch(shape)) p.scratch_bytes += need.bytes;
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
          {"scale", a.scale},
          {"dtype", problem::name(a.dtype)}};
}

nlohmann::ordered_json input_json(const AttentionRequest& request) {
  if (request.seed) return {{"seed", *request.seed}};
  return {{request.layer ? "layer" : "path", request.folder.string()}};
}

// With every default.
std::string problem_text(const AttentionRequest& request) {
  const std::string source = request.seed ? "seed " + std::to_string(*request.seed) : "from " + request.folder.string();
  return problem::to_string(request.shape) + ", scale " + significant(request.shape.scale, 6) + ", " + source;
}

int list(const AttentionStep& step, const AttentionRequest& request) {
  std::cout << step.name << ": " << step.question << '\n'
            << "for " << problem_text(request) << " (* is the default variant):\n";
  for (const AttentionVariant& variant : step.variants) {
    const Prediction p = predict(variant, request.shape, request.layer.has_value());
    std::cout << '\n'
              << (variant.name == step.default_variant ? "* " : "  ") << variant.name << ": " << variant.idea << '\n'
              << "    supports " << to_string(variant.supports) << '\n'
              << "    needs " << p.shared_bytes << " bytes of shared memory a block, "
              << megabytes(static_cast<double>(p.scratch_bytes)) << " MB of scratch memory; kernels:";
    for (const problem::KernelCost& kernel : p.kernels) std::cout << ' ' << kernel.kernel;
    std::cout << '\n';
  }
  if (step.linear) std::cout << "\n--layer DIR runs the whole layer around any of them.\n";
  return exit_good;
}

std::vector<Result> run_all(const AttentionStep& step, const std::vector<const AttentionVariant*>& variants,
                            const AttentionRequest& request, const CommonOptions& common) {
  ExecuteOptions options;
  options.check = common.check;
  options.counters = common.counters;
  options.repetitions = common.bench ? bench_repetitions : 0;
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
  const std::string& wanted = options.variant.empty() ? step.default_variant : options.variant;
  const auto selection =
      select(step.variants, wanted, [&](const AttentionVariant& v) { return refusal_here(v, request.shape); });
  for (const AttentionVariant* variant : selection.chosen) require_memory(*variant, request.shape);
  if (simulated) device::configure(options.sim);
  if (request.seed) request.inputs = problem::make_inputs(request.shape, *request.seed);

  const auto problem = problem_json(request.shape), input = input_json(request);
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
