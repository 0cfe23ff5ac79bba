// What the executables of all families do alike between the command line and the report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/run/execute.h"
#include "common/run/options.h"
#include "common/run/report.h"
#include "common/run/scratch.h"
#include "common/run/select.h"

namespace run {

ExecuteOptions execute_options(const CommonOptions& options);

// Throws device::OutOfMemory, before anything large is made on the host either, where the needs exceed the device's memory.
void require_memory(const std::string& variant, const std::vector<ScratchNeed>& needs);

// Why this device cannot run blocks with so much shared memory, or nothing.
std::optional<std::string> shared_memory_refusal(std::size_t needed);

// The inputs as JSON: of a seed, or of a folder that a flag named ("path", "layer"); and for people: "seed 1", "from DIR".
nlohmann::ordered_json input_json(const std::optional<std::uint64_t>& seed, const char* flag,
                                  const std::filesystem::path& folder);
std::string input_text(const std::optional<std::uint64_t>& seed, const std::filesystem::path& folder);

// One variant in the answer to --list.
void print_variant(const std::string& name, bool is_default, const std::string& idea, const std::string& supports,
                   const Prediction& predicted);

template <class Variant, class Shape>
Prediction predict(const Variant& variant, const Shape& shape) {
  Prediction predicted{shape.flops(), variant.cost(shape), variant.shared_bytes(shape), 0};
  for (const ScratchNeed& need : variant.scratch(shape)) predicted.scratch_bytes += need.bytes;
  return predicted;
}

// The variants of a step that a request runs; each has the memory it needs: its scratch memory and `buffers`.
template <class Step, class Shape>
auto chosen_variants(const Step& step, const CommonOptions& options, const Shape& shape,
                     const std::vector<ScratchNeed>& buffers) {
  auto selection =
      select(step.variants, options.variant.empty() ? step.default_variant : options.variant, [&](const auto& variant) {
        std::optional<std::string> reason = refusal(variant.supports, shape);
        if (!reason) reason = shared_memory_refusal(variant.shared_bytes(shape));
        if constexpr (requires { variant.demonstration; }) {
          if (options.variant == "all" && !variant.demonstration.empty()) reason = variant.demonstration;
        }
        return reason;
      });
  for (const auto* variant : selection.chosen) {
    std::vector<ScratchNeed> needs = variant->scratch(shape);
    needs.insert(needs.end(), buffers.begin(), buffers.end());
    require_memory(variant->name, needs);
  }
  return selection;
}

}  // namespace run
