// The softmax of a row whose scores come in parts: what to keep of a part, and how two parts become one.
//
// A softmax needs the row's maximum m (or exp overflows) and its sum l = Σ exp(x − m). Neither needs the whole row at once:
// from a part of the scores keep (m, l), and with values V also O = Σ exp(x − m) V, not yet divided by l. Two parts are merged
// by bringing both to the larger maximum:
//
//     (m₁, l₁, O₁) ⊕ (m₂, l₂, O₂) = (m, f₁ l₁ + f₂ l₂, f₁ O₁ + f₂ O₂),   m = max(m₁, m₂),  fᵢ = exp(mᵢ − m)
//
// ⊕ is associative and commutative, up to rounding, and the empty part (−∞, 0, 0) changes nothing. So parts may be elements,
// tiles, lanes, warps, blocks or devices, merged in any order. (Milakov and Gimelshein 2018, "Online normalizer calculation for
// softmax", section 3.1, for m and l.)
//
// The hardware's exponential is 2^x. Scores are therefore multiplied by log2(e) once, together with the scale of attention, and
// from then on everything here is in base 2: x and m are scores · scale · log2(e), and exp(score) is 2^x. Only step 03 has
// scores near the end of fp32, which that product would carry beyond it: there m may be such a score as it is, and `unit` is
// log2(e).
#pragma once

#include "common/device/dialect.h"
#include "common/device/ptx/arithmetic.cuh"

namespace device {

inline constexpr float log2_e = 1.44269504088896341f;  // log2(e): exp(x) = 2^(x · log2_e)
inline constexpr float ln_2 = 0.693147180559945309f;   // ln(x) = log2(x) · ln_2

// 2^x by the hardware's instruction, to 2 ulp. 2^−∞ = 0; results below 2^−126 are 0.
__device__ inline float exp2_fast(float x) { return ptx::ex2_approx_ftz(x); }

// What a row's softmax knows of a part of its scores. As it stands, of an empty part. Aligned, so that one access moves it.
struct alignas(8) SoftmaxState {
  float m = -INFINITY;  // the largest score, base 2; −∞: no score, or all are masked
  float l = 0.0f;       // Σ 2^(x − m)
};

// The maximum to subtract: 0 for a part without scores, whose 2^(−∞ − 0) is 0; −∞ − −∞ would be NaN.
__device__ inline float safe_maximum(float m) { return m == -INFINITY ? 0.0f : m; }

// What brings l and O of a part with maximum `from` to the maximum `to` ≥ from. `unit`: by how much 1 in m counts in base 2.
__device__ inline float rescale_factor(float from, float to, float unit = 1.0f) {
  return exp2_fast((from - safe_maximum(to)) * unit);
}

// Two parts as one. O of the result is first · O₁ + second · O₂. `unit` as above.
struct MergedSoftmax {
  SoftmaxState state;
  float first, second;
};
__device__ inline MergedSoftmax merge(SoftmaxState a, SoftmaxState b, float unit = 1.0f) {
  const float m = fmaxf(a.m, b.m);
  const float first = rescale_factor(a.m, m, unit), second = rescale_factor(b.m, m, unit);
  return {{m, first * a.l + second * b.l}, first, second};
}

// What O is divided by: multiply. A row without scores gives O = 0.
__device__ inline float inverse_sum(float l) { return l == 0.0f ? 0.0f : 1.0f / l; }

// log Σ exp(score), the natural logarithm; −∞ for a row without scores.
__device__ inline float log_sum_exp(SoftmaxState s) { return s.l == 0.0f ? -INFINITY : ln_2 * s.m + logf(s.l); }

}  // namespace device
