// The kernel that tells each packed token its sequence (packed.h).
#pragma once

#include "common/device/dialect.h"

namespace device {

constexpr int find_threads = 256;

// A thread has a token, and finds its sequence among cu_seqlens [sequences + 1] by halves. Blocks of find_threads.
template <int threads>
__global__ void __launch_bounds__(threads)
    find_sequences(const int* cu_seqlens, int sequences, int tokens, int* first_token, int* end_token) {
  const int token = blockIdx.x * threads + threadIdx.x;
  if (token >= tokens) return;
  int low = 0, high = sequences;  // cu_seqlens[low] ≤ token < cu_seqlens[high]
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (cu_seqlens[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  first_token[token] = cu_seqlens[low];
  end_token[token] = cu_seqlens[high];
}

}  // namespace device
