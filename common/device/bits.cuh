// Bits of words of 32, one for each of 32 neighbouring numbers.
#pragma once

#include "common/device/dialect.h"

namespace device {

// Which of 32 numbers from 0 on lie in a range, as bits: first … end − 1.
__device__ inline std::uint32_t bits_between(int first, int end) {
  const auto below = [](int n) { return static_cast<std::uint32_t>((std::uint64_t{1} << min(max(n, 0), 32)) - 1); };
  return below(end) & ~below(first);
}

}  // namespace device
