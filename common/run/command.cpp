#include "common/run/command.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "common/run/text.h"

namespace run {

ExecuteOptions execute_options(const CommonOptions& options) {
  return {.check = options.check,
          .counters = options.counters,
          .trace = options.trace.has_value(),
          .repetitions = options.bench ? bench_repetitions : 0};
}

void require_memory(const std::string& variant, const std::vector<ScratchNeed>& needs) {
  double total = 0;
  ScratchNeed largest{"", 0};
  for (const ScratchNeed& need : needs) {
    total += static_cast<double>(need.bytes);
    if (need.bytes > largest.bytes) largest = need;
  }
  const auto there_is = static_cast<double>(device::properties().memory_bytes);
  if (total <= there_is) return;
  throw device::OutOfMemory("out of device memory: " + variant + " asks for " + megabytes(total) + " MB, of which '" +
                            largest.name + "' " + megabytes(static_cast<double>(largest.bytes)) + " MB; " +
                            device::properties().name + " has " + megabytes(there_is) + " MB");
}

std::optional<std::string> shared_memory_refusal(std::size_t needed) {
  const std::size_t given = device::properties().shared_bytes_per_block;
  if (needed <= given) return std::nullopt;
  return "needs " + std::to_string(needed) + " bytes of shared memory a block; this device gives " + std::to_string(given);
}

nlohmann::ordered_json input_json(const std::optional<std::uint64_t>& seed, const char* flag,
                                  const std::filesystem::path& folder) {
  if (seed) return {{"seed", *seed}};
  return {{flag, folder.string()}};
}

std::string input_text(const std::optional<std::uint64_t>& seed, const std::filesystem::path& folder) {
  return seed ? "seed " + std::to_string(*seed) : "from " + folder.string();
}

void print_variant(const std::string& name, bool is_default, const std::string& idea, const std::string& supports,
                   const Prediction& predicted) {
  std::cout << '\n'
            << (is_default ? "* " : "  ") << name << ": " << idea << '\n'
            << "    supports " << supports << '\n'
            << "    needs " << predicted.shared_bytes << " bytes of shared memory a block, "
            << megabytes(static_cast<double>(predicted.scratch_bytes)) << " MB of scratch memory; kernels:";
  for (const problem::KernelCost& kernel : predicted.kernels) std::cout << ' ' << kernel.kernel;
  std::cout << '\n';
}

}  // namespace run
