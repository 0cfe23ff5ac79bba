// Which of a step's variants a device runs, and which of them is the best.
#pragma once

#include <optional>
#include <string>

#include "common/run/harness/step.h"
#include "common/runtime/runtime.h"

namespace run {

std::string to_string(ComputeCapability needed);  // "9.0", "9.0 alone"

// Why a device with these properties cannot run a kernel that needs this, with so much shared memory a block; or nothing.
std::optional<std::string> device_refusal(const runtime::Properties& device, ComputeCapability needed,
                                          std::size_t shared_bytes);

template <class Family>
std::optional<std::string> device_refusal(const runtime::Properties& device, const Variant<Family>& variant,
                                          const typename Family::Problem& shape) {
  return device_refusal(device, variant.compute_capability, variant.shared_bytes_of(shape));
}

// The first that serves(variant), of the step's default variant and the next best ones; null: none does.
template <class OneStep, class Serves>
auto best_variant(const OneStep& step, const Serves& serves) -> decltype(&variant_named(step, "")) {
  const auto& best = variant_named(step, step.default_variant);
  if (serves(best)) return &best;
  for (const std::string& name : step.next_best) {
    const auto& variant = variant_named(step, name);
    if (serves(variant)) return &variant;
  }
  return nullptr;
}

}  // namespace run
