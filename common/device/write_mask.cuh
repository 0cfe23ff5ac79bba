// The kernel that writes which pairs dropout keeps (dropout.h): for those who want to see the mask, or to use it elsewhere.
#pragma once

#include "common/device/dialect.h"
#include "common/device/dropout.h"

namespace device {

constexpr int mask_threads = 256;

// A thread has a pair; there are at most 2^29. Blocks of mask_threads.
template <int threads>
__global__ void __launch_bounds__(threads)
    write_mask(Dropout dropout, int batch, int heads, int seq_q, int seq_k, __half* mask) {  // [batch, heads, seq_q, seq_k]
  const int pair = blockIdx.x * threads + threadIdx.x, row = pair / seq_k;
  if (row >= batch * heads * seq_q) return;
  const bool kept = dropout.keeps(row / seq_q / heads, row / seq_q % heads, row % seq_q, pair % seq_k);
  store(&mask[pair], __float2half(kept ? 1.0f : 0.0f));
}

}  // namespace device
