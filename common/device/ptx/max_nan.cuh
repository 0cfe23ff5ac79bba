// max.NaN of two packed numbers of 16 bits each: the larger, or NaN where one is NaN. PTX ISA, "max".
#pragma once

#include <type_traits>

#include "common/device/dialect.h"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::max_nan_x2;

#else

template <class T>
__device__ inline std::uint32_t max_nan_x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t larger;
  if constexpr (std::is_same_v<T, __half>) {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  } else {
    static_assert(std::is_same_v<T, __nv_bfloat16>, "__half or __nv_bfloat16");
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  }
  return larger;
}

#endif

}  // namespace ptx
