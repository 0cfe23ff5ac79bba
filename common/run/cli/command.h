// What the executables of all families do alike between the command line and the report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/run/cli/options.h"
#include "common/run/cli/report.h"
#include "common/run/cli/select.h"
#include "common/run/harness/execute.h"

namespace run {

ExecuteOptions execute_options(const CommonOptions& options);

// Throws runtime::OutOfMemory, before anything large is made on the host either, where the arrays exceed the device's memory.
void require_memory(const std::string& variant, const Arrays& arrays);

// Why a device with these properties cannot run a kernel of this compute capability, with so much shared memory a block; or
// nothing.
std::optional<std::string> device_refusal(const runtime::Properties& device, int compute_capability, std::size_t shared_bytes);

// The inputs as JSON: of a seed, or of a folder that a flag named ("path", "layer"); and for people: "seed 1", "from DIR".
nlohmann::ordered_json input_json(const std::optional<std::uint64_t>& seed, const char* flag,
                                  const std::filesystem::path& folder);
std::string input_text(const std::optional<std::uint64_t>& seed, const std::filesystem::path& folder);

// One variant in the answer to --list.
void print_variant(const std::string& name, bool is_default, const std::string& idea, const std::string& supports,
                   int compute_capability, const Prediction& predicted);

template <class Family>
Prediction predict(const Variant<Family>& variant, const typename Family::Problem& shape) {
  return {shape.flops(), variant.cost(shape), variant.shared_bytes_of(shape), scratch_bytes(variant.scratch_of(shape))};
}

// The variants of a step that a request runs.
template <class Family>
auto chosen_variants(const Step<Family>& step, const CommonOptions& options, const typename Family::Problem& shape) {
  const std::string& requested = options.variant.empty() ? step.default_variant : options.variant;
  return select(step.variants, requested, [&](const Variant<Family>& variant) {
    std::optional<std::string> reason = refusal(variant.supports, shape);
    if (!reason) reason = device_refusal(runtime::properties(), variant.compute_capability, variant.shared_bytes_of(shape));
    if (options.variant == "all" && !variant.demonstration.empty()) reason = variant.demonstration;
    return reason;
  });
}

}  // namespace run
