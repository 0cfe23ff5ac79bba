// prmt: a word of any four bytes of two words. PTX ISA, "prmt".
//
// Each digit of the selector, the lowest first, chooses a byte of the result: 0 to 3 from `low`, 4 to 7 from `high`; 8 more:
// not the byte, but its highest bit, eight times.
#pragma once

#include "common/device/dialect.h"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::prmt;

#else

__device__ inline std::uint32_t prmt(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  std::uint32_t word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "r"(selector));
  return word;
}

#endif

}  // namespace ptx
