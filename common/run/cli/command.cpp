#include "common/run/cli/command.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "common/run/harness/text.h"

namespace run {

ExecuteOptions execute_options(const CommonOptions& options) {
  return {.check = options.check,
          .counters = options.counters,
          .trace = options.trace.has_value(),
          .repetitions = options.bench ? bench_repetitions : 0};
}

void require_memory(const std::string& variant, const Arrays& arrays) {
  double total = 0, largest = 0;
  std::string largest_name;
  for (const Array& array : arrays) {
    const auto size = static_cast<double>(bytes(array));
    total += size;
    if (size > largest) {
      largest = size;
      largest_name = array.name;
    }
  }
  const auto there_is = static_cast<double>(runtime::properties().memory_bytes);
  if (total <= there_is) return;
  throw runtime::OutOfMemory("out of device memory: " + variant + " asks for " + megabytes(total) + " MB, of which '" +
                             largest_name + "' " + megabytes(largest) + " MB; " + runtime::properties().name + " has " +
                             megabytes(there_is) + " MB");
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
                   ComputeCapability compute_capability, const Prediction& predicted) {
  std::cout << '\n'
            << (is_default ? "* " : "  ") << name << ": " << idea << '\n'
            << "    supports " << supports << '\n'
            << "    needs compute capability " << to_string(compute_capability) << ", " << predicted.shared_bytes
            << " bytes of shared memory a block, " << megabytes(static_cast<double>(predicted.scratch_bytes))
            << " MB of scratch memory; kernels:";
  for (const problem::KernelCost& kernel : predicted.kernels) std::cout << ' ' << kernel.kernel;
  std::cout << '\n';
}

}  // namespace run
