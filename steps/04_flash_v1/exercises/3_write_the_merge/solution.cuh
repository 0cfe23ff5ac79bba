// Exercise 3 of step 04, written.
#pragma once

namespace exercise {

// The row's new m and l, and its new O = keep · O + add · PV, divided by l as Algorithm 1 has it. Scores are in base 2.
struct Joined {
  float m, l;
  float keep, add;
};

// m, l: of the keys before; −∞ and 0 if there are none. m_tile, l_tile: of this block's keys, and PV = Σ 2^(score − m_tile) V
// of them. A block joins only where the row sees a key of it, so m_new is finite, and 2^(−∞ − m_new) is 0.
__device__ inline Joined join(float m, float l, float m_tile, float l_tile) {
  const float m_new = fmaxf(m, m_tile);
  const float before = device::exp2_fast(m - m_new) * l;  // the sum of the keys before, with the new maximum
  const float factor = device::exp2_fast(m_tile - m_new);
  const float l_new = before + factor * l_tile;
  return {m_new, l_new, before / l_new, factor / l_new};
}

}  // namespace exercise
