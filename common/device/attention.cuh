// The sizes of an attention problem as kernels need them.
#pragma once

#include "common/device/dialect.h"
#include "common/device/views.h"

namespace device {

struct AttentionShape {
  int batch;
  int heads;     // query heads
  int kv_heads;  // each is shared by heads / kv_heads query heads
  int seq_q;
  int seq_k;
  int dim;
  bool causal;
  float scale;
  int window;  // N > 0: query i sees key j only if |i + seq_k − seq_q − j| < N; 0: no window

  // The key/value head that a query head reads.
  __host__ __device__ int kv_head(int head) const { return head / (heads / kv_heads); }

  // Query i sees the keys 0 … visible_keys(i) − 1. Causal attention is aligned bottom-right: the last query sees every key,
  // and where seq_q > seq_k the first seq_q − seq_k queries see none.
  __host__ __device__ int visible_keys(int i) const {
    const int last = causal ? i + 1 + seq_k - seq_q : seq_k;
    return last < 0 ? 0 : last < seq_k ? last : seq_k;
  }

  // With windows, too: the keys first_key(i) … end_key(i) − 1, none where first_key(i) ≥ end_key(i). Both grow with i.
  __host__ __device__ int first_key(int i) const {
    const int first = window > 0 ? i + seq_k - seq_q - window + 1 : 0;
    return first < 0 ? 0 : first;
  }
  __host__ __device__ int end_key(int i) const {
    int end = seq_k;
    if (causal) end = i + 1 + seq_k - seq_q;
    if (window > 0 && !causal) end = i + seq_k - seq_q + window;
    return end < 0 ? 0 : end < seq_k ? end : seq_k;
  }
};

}  // namespace device
