// red.add: *to += x in device memory, by an atomic whose old value nobody gets
//
// Of a vector each element is an atomic of its own; the whole is not one: another thread may see some of its elements added and
// the others not yet. Its address is a multiple of its size, 8 or 16 bytes. The sum is rounded to nearest; subnormal numbers,
// those that are added and those that come out, are 0 here. Relaxed, and for all threads of the device: it orders nothing. The
// vectors are from sm_90 on: kernels that use them stand in NAME.sm_90.cu. PTX ISA, "red".
#pragma once

#include "common/device/dialect.h"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::red_add_f32;
using simt::ptx::red_add_v2_f32;
using simt::ptx::red_add_v4_f32;

#else

__device__ inline void red_add_f32(float* to, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
__device__ inline void red_add_v2_f32(float* to, float a, float b) {
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(a), "f"(b) : "memory");
}
__device__ inline void red_add_v4_f32(float* to, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

#endif

}  // namespace ptx

namespace device {

// ---- flags that any thread may raise ----

// Makes a flag that is 0 more than that. Many may want to: who finds it raised does not queue for it.
__device__ inline void raise(float* flag) {
  if (*reinterpret_cast<volatile float*>(flag) == 0.0f) ptx::red_add_f32(flag, 1.0f);
}

}  // namespace device
