// Named device memory between the kernels of a variant (S and P of standard attention, say).
#pragma once

#include <string>
#include <vector>

#include "common/device/runtime.h"

namespace run {

struct ScratchNeed {
  std::string name;
  std::size_t bytes;
};

class Scratch {
 public:
  explicit Scratch(const std::vector<ScratchNeed>& needs);
  template <class T>
  T* get(const std::string& name) const {  // throws std::logic_error for a name that was not declared
    return find(name).as<T>();
  }
  void poison();
  bool guards_intact() const;

 private:
  const device::Buffer& find(const std::string& name) const;
  std::vector<std::string> names_;
  std::vector<device::Buffer> buffers_;
};

}  // namespace run
