// Host side of kernels that count the bytes between two rows of K and V in 32 bits: 05_flash_v2/09_addresses.cuh and those that
// came from it.
#pragma once

#include "common/run/family/attention.h"

namespace flash_v2 {

// In elements of 16 bits. Two rows of a thread's copies are at most 32 rows apart, and the bytes between them must fit in 32
// bits. 65,535 heads of 256 elements stay below the limit.
constexpr int most_row_stride = (1 << 25) - 8;

// The same, for rows no further apart.
inline run::AttentionSupport near_rows(run::AttentionSupport supports) {
  supports.max_row_stride = most_row_stride;
  return supports;
}

}  // namespace flash_v2
