#include "common/run/scratch.h"

#include <algorithm>
#include <stdexcept>

namespace run {

Scratch::Scratch(const std::vector<ScratchNeed>& needs) {
  for (const ScratchNeed& need : needs) {
    names_.push_back(need.name);
    buffers_.emplace_back(need.name, need.bytes);
  }
}

void Scratch::poison() {
  for (device::Buffer& buffer : buffers_) buffer.poison();
}

bool Scratch::guards_intact() const {
  return std::all_of(buffers_.begin(), buffers_.end(), [](const device::Buffer& buffer) { return buffer.guards_intact(); });
}

const device::Buffer& Scratch::find(const std::string& name) const {
  const auto at = std::find(names_.begin(), names_.end(), name);
  if (at == names_.end()) throw std::logic_error("scratch memory '" + name + "' was not declared by the variant");
  return buffers_[static_cast<std::size_t>(at - names_.begin())];
}

}  // namespace run
