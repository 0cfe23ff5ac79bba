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
  int window;  // N > 0: query i sees key j only if |i + seq_k − seq_q − j| < N; 0: no window. Sums take 64 bits

  // The key/value head that a query head reads.
  __host__ __device__ int kv_head(int head) const { return head / (heads / kv_heads); }

  // The key beside query i. Attention is aligned bottom-right: the last query lies beside the last key.
  __host__ __device__ int own_key(int i) const { return i + (seq_k - seq_q); }

  // Query i sees the keys 0 … visible_keys(i) − 1. Where causal attention has seq_q > seq_k, the first seq_q − seq_k queries
  // see none.
  __host__ __device__ int visible_keys(int i) const { return clamped(causal ? own_key(i) + 1 : seq_k); }

  // With windows, too: the keys first_key(i) … end_key(i) − 1, none where first_key(i) ≥ end_key(i). Both grow with i.
  __host__ __device__ int first_key(int i) const { return window > 0 ? clamped(std::int64_t{own_key(i)} - window + 1) : 0; }
  __host__ __device__ int end_key(int i) const {
    if (window > 0 && !causal) return clamped(std::int64_t{own_key(i)} + window);
    return causal ? clamped(own_key(i) + 1) : seq_k;
  }

  // The other way round: key j is seen by the queries first_query(j) … end_query(j) − 1. Both grow with j.
  __host__ __device__ int first_query(int j) const {
    if (!causal && window == 0) return 0;
    return clamped(std::int64_t{own_query(j)} - (causal ? 0 : window - 1), seq_q);
  }
  __host__ __device__ int end_query(int j) const {
    return window > 0 ? clamped(std::int64_t{own_query(j)} + window, seq_q) : seq_q;
  }

 private:
  // The query beside key j.
  __host__ __device__ int own_query(int j) const { return j + (seq_q - seq_k); }

  // A number of keys, or of queries: at least 0, at most all.
  template <class Int>
  __host__ __device__ int clamped(Int keys) const {
    return clamped(keys, seq_k);
  }
  template <class Int>
  __host__ __device__ static int clamped(Int n, int all) {
    return n < 0 ? 0 : n < all ? static_cast<int>(n) : all;
  }
};

}  // namespace device
