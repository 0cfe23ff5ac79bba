// 04_flash_v1: infinities and NaNs in V reach only the rows that see them.
//
// The P of a key that a row does not see is 0, but 0 · NaN is NaN: through P V on tensor cores a NaN in V would reach rows that
// must not see it. So where V has one, and not every row sees every key, each row gets a product of its own, with the V that it
// sees.
#pragma once

#include "steps/04_flash_v1/tensor_tile.cuh"

namespace flash_v1 {

// Is one of the two 16-bit elements infinite or NaN? Then its exponent is all ones.
template <class T>
__device__ bool has_non_finite(std::uint32_t pair) {
  const std::uint32_t exponent = std::is_same_v<T, __half> ? 0x7c00 : 0x7f80;
  return (pair & exponent) == exponent || (pair >> 16 & exponent) == exponent;
}

// `pair` holds keys `key` (lower half) and `key + 1`. What a row does not see becomes 0. The row sees keys 0 … visible − 1.
__device__ inline std::uint32_t visible_pair(std::uint32_t pair, int key, int visible) {
  return key + 1 < visible ? pair : key < visible ? pair & 0xffff : 0;
}

// Row r of a warp's 16 rows of acc becomes that of `own`; g: the lane's row in each half.
template <int n_frags>
__device__ void take_row(float (&acc)[n_frags][4], const float (&own)[n_frags][4], int r, int g) {
#pragma unroll
  for (int n = 0; n < n_frags; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = g + i / 2 * 8 == r ? own[n][i] : acc[n][i];
  }
}

}  // namespace flash_v1
