// The scale, from file 5 on: Q takes its sign, the scores its magnitude.
//
// There scores become powers of 2 in one FMA, 2^(s·c − m), with m the maximum of s·c. It is c times the maximum of s only where
// c is positive. So Q takes the sign of the scale, −1, 0 or 1, and c is its magnitude.
#pragma once

#include "steps/05_flash_v2/non_finite.cuh"

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

// What brings the scores of such a Q to base 2. Not 0, even where the scale is: masks make −∞ of a score, and 0 · ∞ is NaN.
__device__ inline float magnitude(float scale) { return fmaxf(fabsf(scale) * device::log2_e, FLT_TRUE_MIN); }

// 2^(s·c − m) is one FMA there, which does not round s·c; but m is s·c of the largest score, rounded. So all of a row's P are
// wrong by the same factor, which the division at the end takes out. Up to |m| = 2^24 it is at most √2. At 2^30 it may be 2^32,
// and fp16 does not hold that. Beyond the limit, which is rare, the products are rounded before m is subtracted, as m was.
constexpr float fma_limit = 0x1p24f;

// The products of one row of a lane.
template <int pieces>
__device__ inline void round_products(float (&s)[pieces][4], int r, float c) {
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
    s[p][2 * r] *= c;
    s[p][2 * r + 1] *= c;
  }
}

}  // namespace flash_v2
