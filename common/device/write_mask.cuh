// The kernel that writes which pairs dropout keeps (dropout.h): for those who want to see the mask, or to use it elsewhere.
#pragma once

#include "common/device/dropout.h"
#include "common/device/memory.cuh"

namespace device {

constexpr int mask_threads = 256;

// A thread has a pair. Blocks of mask_threads.
template <int threads>
__global__ void __launch_bounds__(threads)
    write_mask(Dropout dropout, int batch, int heads, int seq_q, int seq_k, __half* mask) {  // [batch, heads, seq_q, seq_k]
  const std::int64_t pair = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const std::int64_t row = pair / seq_k;
  if (row >= static_cast<std::int64_t>(batch) * heads * seq_q) return;
  const int head = static_cast<int>(row / seq_q % heads), entry = static_cast<int>(row / seq_q / heads);
  const bool kept = dropout.keeps(entry, head, static_cast<int>(row % seq_q), static_cast<int>(pair % seq_k));
  store(&mask[pair], __float2half(kept ? 1.0f : 0.0f));
}

}  // namespace device
