// ex2: 2^x, to 2 ulp, in one instruction of the special function unit; subnormal results become 0. PTX ISA, "ex2".
#pragma once

#include "common/device/dialect.h"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::ex2_approx_ftz;

#else

__device__ inline float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif

}  // namespace ptx
