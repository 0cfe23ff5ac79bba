// ALiBi's slopes (Press et al. 2022), for kernels and for the host.
#pragma once

#include "common/device/dialect.h"

namespace device {

// ALiBi's slopes. Of n heads, a power of two, head h has 2^(−M · (h + 1) / n). Of another number the first p heads, with p the
// largest power of two below, have the slopes of p heads, and the others every second slope of 2 p heads.
struct AlibiSlopes {
  float largest;  // M, the exponent of the last head; 0: no ALiBi
  int first;      // p

  __host__ __device__ float of(int head) const {
    const int n = head < first ? head + 1 : 2 * (head - first) + 1;
    return exp2f(-largest * static_cast<float>(n) / static_cast<float>(head < first ? first : 2 * first));
  }
};

inline AlibiSlopes alibi_slopes(float largest, int heads) {
  int first = 1;
  while (first <= heads / 2) first *= 2;
  return {largest, first};
}

}  // namespace device
