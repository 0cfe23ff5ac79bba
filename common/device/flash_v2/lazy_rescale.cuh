// Of 05_flash_v2/11_lazy_rescale.cuh: the softmax of a tile whose maxima may grow a little above m.
#pragma once

#include "common/device/flash_v2/scale.cuh"

namespace flash_v2 {

constexpr float tolerance = 8.0f;   // base 2: how far a row's maximum may be above m
constexpr float lowest = -FLT_MAX;  // where m begins

// Moves m of the rows whose maximum is too far above it, and brings l and O's accumulator to the new m. All lanes of the warp
// make the call. to_base_2 is scale_log2 if the products may stay unrounded, or 1 if they are rounded here.

// [doc: lazy_rescale]
template <int slices, int frags, int columns>
__device__ void lazy_rescale(float (&s)[slices][frags][4], float scale_log2, float& to_base_2,
                             SoftmaxState (&states)[slices][2], float (&acc)[slices][columns][4]) {
  float lane_max[slices][2];
  bool too_far = to_base_2 != scale_log2;  // then the products of every tile must be rounded
#pragma unroll
  for (int i = 0; i < slices; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      lane_max[i][r] = fmaxf(s[i][0][2 * r], s[i][0][2 * r + 1]);
#pragma unroll
      for (int n = 1; n < frags; ++n) lane_max[i][r] = fmaxf(lane_max[i][r], fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
      too_far |= lane_max[i][r] * scale_log2 > states[i][r].m + tolerance;
    }
  }
  if (!__any_sync(all_lanes, too_far)) return;
  // [/doc: lazy_rescale]
  to_base_2 = scale_log2;
#pragma unroll
  for (int i = 0; i < slices; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old = states[i][r].m, row_max = quad_maximum(lane_max[i][r]) * scale_log2;
      const float m = row_max > old + tolerance ? row_max : old;  // the row's own decision
      const float factor = device::exp2_fast(old - m);
      states[i][r] = {m, states[i][r].l * factor};
      if (fabsf(m) > fma_limit && m < INFINITY) to_base_2 = 1.0f;
#pragma unroll
      for (int n = 0; n < columns; ++n) {
        acc[i][n][2 * r] *= factor;
        acc[i][n][2 * r + 1] *= factor;
      }
    }
  }
  if (to_base_2 == scale_log2) return;
#pragma unroll
  for (int i = 0; i < slices; ++i) {
    round_products(s[i], 0, scale_log2);
    round_products(s[i], 1, scale_log2);
  }
}

// P = exp2(S − m) for two neighbouring scores of a row: they become one register of A's fragment, of 16 keys g. There are
// 4 · slices such pairs, counted by `pair`.
template <class T, int slices, int frags>
__device__ void exponentials(std::uint32_t (&p_frag)[slices][4], SoftmaxState (&states)[slices][2],
                             const float (&s)[slices][frags][4], float to_base_2, int g, int pair) {
  const int slice = pair / 4, side = pair / 2 % 2, r = pair % 2;
  const float(&x)[4] = s[slice][2 * g + side];
  const float first = device::exp2_fast(fmaf(x[2 * r], to_base_2, -states[slice][r].m));
  const float second = device::exp2_fast(fmaf(x[2 * r + 1], to_base_2, -states[slice][r].m));
  states[slice][r].l += first;
  states[slice][r].l += second;
  p_frag[slice][2 * side + r] = packed<T>(first, second);
}

}  // namespace flash_v2
