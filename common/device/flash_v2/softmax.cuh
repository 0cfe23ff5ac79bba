// The scale and the softmax, from `folded_scale` on: Q takes the sign of the scale, the scores its magnitude.
//
// From there on a probability is one FMA and one ex2: 2^(s · scale_log2 − m), with m the maximum of s · scale_log2. That is
// scale_log2 times the maximum of s only if scale_log2 is positive. So Q takes the sign of the scale, −1, 0 or 1, and
// scale_log2 is its magnitude.
#pragma once

#include "common/device/flash_v2/non_finite.cuh"

namespace flash_v2 {

// Two elements of Q times the scale's sign. 0 · ∞ and 0 · NaN are NaN: all bits set.
template <class T>
__device__ inline std::uint32_t times_sign(std::uint32_t pair, float scale) {
  if (scale == 0.0f) return (non_finite<T>(pair) >> 15) * 0xffffu;
  return scale < 0.0f ? pair ^ 0x80008000u : pair;
}

// The same for all of Q in shared memory: each thread takes the chunks that it copied itself, so there is no barrier before.
template <class T, int threads, int rows, int dim>
__device__ void apply_sign(T (&q)[rows][dim], float scale) {
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * dim / chunk; i += threads) {
    const int row = i / (dim / chunk);
    uint4* words = reinterpret_cast<uint4*>(&q[row][swizzled<dim>(row, i % (dim / chunk) * chunk)]);
    const uint4 w = load(words);
    const auto signed_pair = [&](std::uint32_t pair) { return times_sign<T>(pair, scale); };
    store(words, make_uint4(signed_pair(w.x), signed_pair(w.y), signed_pair(w.z), signed_pair(w.w)));
  }
}

// Brings the scores of such a Q to base 2. It is never 0, even if the scale is: a masked score is −∞, and 0 · ∞ is NaN.
__device__ inline float magnitude(float scale) { return fmaxf(fabsf(scale) * device::log2_e, FLT_TRUE_MIN); }

// The FMA does not round the product s · scale_log2, but m is such a product, rounded. So all probabilities of a row are wrong
// by the same factor, which the division in the epilogue takes out. Up to |m| = 2^24 the factor is at most √2. At 2^30 it may
// be 2^32, which fp16 cannot hold. Beyond the limit, which is rare, the products are rounded before m is subtracted, as m was.
constexpr float fma_limit = 0x1p24f;

// Multiplies the scores of one row of a lane.
template <int frags>
__device__ inline void round_products(float (&s)[frags][4], int r, float scale_log2) {
#pragma unroll
  for (int p = 0; p < frags; ++p) {
    s[p][2 * r] *= scale_log2;
    s[p][2 * r + 1] *= scale_log2;
  }
}

// Of 05_flash_v2/11_lazy_rescale.cuh: m may be below a row's maximum.
constexpr float tolerance = 8.0f;   // base 2: how far a row's maximum may be above m
constexpr float lowest = -FLT_MAX;  // where m begins: beyond fma_limit, so to_base_2 begins at 1

// Of 05_flash_v2/11_lazy_rescale.cuh: moves m of the rows whose maximum is too far above it, and brings l and O's accumulator
// to the new m. All lanes of the warp make the call. to_base_2 is scale_log2 if the products may stay unrounded, or 1 if they
// are rounded here.
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

// Of 05_flash_v2/11_lazy_rescale.cuh: P = exp2(S − m) for two neighbouring scores of a row: they become one register of A's
// fragment, of 16 keys g. There are 4 · slices such pairs, counted by `pair`.
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
