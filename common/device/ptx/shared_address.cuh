// The address of shared memory as PTX's instructions take it: 32 bits. Nothing in the simulator.
#pragma once

#include "common/device/dialect.h"

#if !defined(FLASHSTEPS_SIM)

namespace ptx {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace ptx

#endif
