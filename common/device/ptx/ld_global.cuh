// ld.global.nc: loads of data that nobody writes while the kernel runs, and that are read once
//
// 16 bytes, from a multiple of 16. They go past L1 (.L1::no_allocate), so that data which is read often stays there. L2 asks
// memory for the whole line of 128 bytes (.L2::128B), since its other sectors come next. Where the condition does not hold,
// nothing is read, and the result is zero. PTX ISA, "ld.global.nc".
//
// The asm is volatile because it must stay under its condition. Of other asm the compiler believes that it always may run, and
// nvcc 13.0 moved it out of a loop and out of the condition: it read past the last row.
#pragma once

#include "common/device/dialect.h"

namespace ptx {

#if defined(FLASHSTEPS_SIM)

inline constexpr auto& ld_global_nc_16_if = simt::load_if<uint4>;

#else

__device__ inline uint4 ld_global_nc_16_if(bool condition, const uint4* address) {
  uint4 words = {};
  if (condition) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(address));
  }
  return words;
}

#endif

}  // namespace ptx
