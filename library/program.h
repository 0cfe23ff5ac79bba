// What stands behind the C interface of attention_library.h.
#pragma once

#include <cstddef>
#include <functional>

#include "library/attention_library.h"
#include "library/borrowed.h"

struct AttentionProgram {
  double operations;
  library::Sizes bytes;
  bool has_plan;
  // Addresses: null for those that it was prepared with.
  std::function<void(const AttentionAddresses* addresses, const library::Memory& memory, void* stream)> launch;
};

namespace library {

// Runs `make`; what it throws becomes attention_error() and null, since no exception may leave through a C interface.
AttentionProgram* guarded(const std::function<AttentionProgram*()>& make);

}  // namespace library
