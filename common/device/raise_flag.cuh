// Flags that any thread may raise.
#pragma once

#include "common/device/ptx/red.cuh"

namespace device {

// Makes a flag that is 0 more than that. Many may want to: who finds it raised does not queue for it.
__device__ inline void raise(float* flag) {
  if (*reinterpret_cast<volatile float*>(flag) == 0.0f) ptx::red_add_f32(flag, 1.0f);
}

}  // namespace device
