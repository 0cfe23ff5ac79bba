// What the executables of all families do alike between the command line and the report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/run/cli/options.h"
#include "common/run/cli/report.h"
#include "common/run/cli/select.h"
#include "common/run/harness/device.h"
#include "common/run/harness/execute.h"

namespace run {

ExecuteOptions execute_options(const CommonOptions& options);

// Throws runtime::OutOfMemory, before anything large is made on the host either, where the arrays exceed the device's memory.
void require_memory(const std::string& variant, const Arrays& arrays);

// The inputs as JSON: of a seed, or of a folder that a flag named ("path", "layer"); and for people: "seed 1", "from DIR".
nlohmann::ordered_json input_json(const std::optional<std::uint64_t>& seed, const char* flag,
                                  const std::filesystem::path& folder);
std::string input_text(const std::optional<std::uint64_t>& seed, const std::filesystem::path& folder);

// One variant in the answer to --list.
void print_variant(const std::string& name, bool is_default, const std::string& idea, const std::string& supports,
                   ComputeCapability compute_capability, const Prediction& predicted);

template <class Family>
Prediction predict(const Variant<Family>& variant, const typename Family::Problem& shape) {
  return {shape.flops(), variant.cost(shape), variant.shared_bytes_of(shape), scratch_bytes(variant.scratch_of(shape))};
}

// The variants of a step that a request runs on a device. Where it names none: the best one or, where the device does not run
// that, the next best that it runs.
template <class Family>
auto chosen_variants(const Step<Family>& step, const CommonOptions& options, const typename Family::Problem& shape,
                     const runtime::Properties& device = runtime::properties()) {
  const auto reason_against = [&](const Variant<Family>& variant) {
    const std::optional<std::string> reason = refusal(variant.supports, shape);
    return reason ? reason : device_refusal(device, variant, shape);
  };
  std::string requested = options.variant;
  if (requested.empty()) {
    requested = step.default_for ? step.default_for(shape) : step.default_variant;
    if (!refusal(variant_named(step, requested).supports, shape)) {
      const auto* running = best_variant(step, [&](const Variant<Family>& variant) { return !reason_against(variant); });
      if (running != nullptr) requested = running->name;
    }
  }
  return select(step.variants, requested, [&](const Variant<Family>& variant) {
    if (requested == "all" && !variant.demonstration.empty()) return std::optional(variant.demonstration);
    return reason_against(variant);
  });
}

}  // namespace run
