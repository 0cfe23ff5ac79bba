// The scale, from `folded_scale` on: Q takes its sign, the scores its magnitude.
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

}  // namespace flash_v2
