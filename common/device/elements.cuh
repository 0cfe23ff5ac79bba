// Element types: float, __half, __nv_bfloat16. Kernels keep sums in fp32 and convert at both ends.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/device/dialect.h"

namespace device {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to the nearest, ties to even.
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16(x);
  } else {
    return x;
  }
}

// Two neighbouring elements of 16 bits as one 32-bit word, the first in the low half. nvcc makes one conversion of both.
template <class T>
__device__ inline std::uint32_t packed(float first, float second) {
  const T pair[2] = {from_float<T>(first), from_float<T>(second)};
  std::uint32_t word;
  memcpy(&word, pair, sizeof(word));
  return word;
}

}  // namespace device
