// What stands behind the C interface of attention_library.h.
#pragma once

#include <cstddef>
#include <functional>

#include "library/attention_library.h"

struct AttentionProgram {
  double operations;
  std::size_t scratch_bytes;
  // Addresses: null for those that it was prepared with.
  std::function<void(const AttentionAddresses* addresses, void* scratch, void* stream)> launch;
};

namespace library {

// Runs `make`; what it throws becomes attention_error() and null, since no exception may leave through a C interface.
AttentionProgram* guarded(const std::function<AttentionProgram*()>& make);

}  // namespace library
