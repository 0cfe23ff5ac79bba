// The sizes of an attention problem as kernels need them.
#pragma once

#include "common/device/dialect.h"
#include "common/device/views.h"
#include "common/device/visibility.h"

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

  // What sees what, as visibility.h says. Query i lies beside key own_key(i): the last query beside the last key.
  __host__ __device__ int own_key(int i) const { return visibility::own_key(*this, i); }

  // Query i sees the keys 0 … visible_keys(i) − 1. Where causal attention has seq_q > seq_k, the first seq_q − seq_k queries
  // see none.
  __host__ __device__ int visible_keys(int i) const { return visibility::visible_keys(*this, i); }

  // With windows, too: the keys first_key(i) … end_key(i) − 1, none where first_key(i) ≥ end_key(i). Both grow with i.
  __host__ __device__ int first_key(int i) const { return visibility::first_key(*this, i); }
  __host__ __device__ int end_key(int i) const { return visibility::end_key(*this, i); }

  // The other way round: key j is seen by the queries first_query(j) … end_query(j) − 1. Both grow with j.
  __host__ __device__ int first_query(int j) const { return visibility::first_query(*this, j); }
  __host__ __device__ int end_query(int j) const { return visibility::end_query(*this, j); }
};

}  // namespace device
