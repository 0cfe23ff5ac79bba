// 04_flash_v1, wrong_update: the update that many explanations print, to be rejected.
// Predecessor: 01_scalar.cuh (option: another line 12)
//
// P̃ of a block was computed with the block's own maximum m̃. Line 12 therefore brings it to the row's new maximum by a factor
// e^(m̃ − m_new), just as it brings the O of the keys before by e^(m − m_new). Leave the first factor out, and everything still
// looks right: shapes, finite values, a plausible size. l is right, so LSE is right. O is wrong as soon as a block's maximum is
// below the row's maximum so far: the block's values get too much weight. O happens to be right if each block has a larger
// maximum than the blocks before it, or if there is only one block.
//
// The kernel is that of `scalar`. Nothing but the update differs.
//
// What to expect: errors of the size of O itself for nearly every row that has several blocks of keys, because P̃V is too large
// by e^(m_new − m̃).
#pragma once

#include "steps/04_flash_v1/01_scalar.cuh"

namespace flash_v1 {

struct WrongUpdate {
  __device__ float operator()(const device::MergedSoftmax& merged, float l_before, float o, float pv) const {
    return (merged.first * l_before * o + pv) * device::inverse_sum(merged.state.l);
  }
};

}  // namespace flash_v1
