#include "common/run/harness/device.h"

namespace run {
namespace {

std::string version(int compute_capability) {  // "9.0" of 90
  return std::to_string(compute_capability / 10) + "." + std::to_string(compute_capability % 10);
}

}  // namespace

std::string to_string(ComputeCapability needed) { return version(needed.number) + (needed.only ? " alone" : ""); }

std::optional<std::string> device_refusal(const runtime::Properties& device, ComputeCapability needed,
                                          std::size_t shared_bytes) {
  const int number = device.compute_capability;
  if (number > 0 && (needed.only ? number != needed.number : number < needed.number)) {
    return "needs compute capability " + to_string(needed) + "; " + device.name + " has " + version(number);
  }
  if (shared_bytes <= device.shared_bytes_per_block) return std::nullopt;
  return "needs " + std::to_string(shared_bytes) + " bytes of shared memory a block; this device gives " +
         std::to_string(device.shared_bytes_per_block);
}

}  // namespace run
