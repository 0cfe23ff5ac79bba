// The kernel that tells each packed token its sequence (shapes.h).
#pragma once

#include "common/device/dialect.h"

namespace device {

constexpr int find_threads = 256;

// A thread has a token, and finds its sequence among cu_seqlens [sequences + 1] by halves. A token before the first sequence or
// behind the last one belongs to none: it sees nothing, and nobody sees it. Blocks of find_threads.
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
  const int first = cu_seqlens[low], end = cu_seqlens[high];
  const int from = token < end ? first : end;  // `end`: of a token behind the last sequence
  first_token[token] = from;
  end_token[token] = token < first ? from : end;
}

}  // namespace device
