// Exercise 2 of step 01: a softmax with a block per row, and three faults. Two show at the default shape; one only for queries
// that see no key (--causal with more queries than keys).
#pragma once

#include "common/device/dialect.h"
#include "common/device/shapes.h"

namespace exercise {

using device::AttentionShape;
using device::Heads;

constexpr int softmax_threads = 128;

struct Smem {
  float partial[softmax_threads];
};

// Grid: x over queries, y over heads, z over the batch. Blocks of softmax_threads.
__global__ void softmax(AttentionShape shape,
                        Heads<const float> s,  // [batch, heads, seq_q, seq_k]
                        Heads<float> p,        // [batch, heads, seq_q, seq_k]
                        float* lse) {          // [batch, heads, seq_q]
  auto& smem = device::shared_storage<Smem>();
  const int thread = threadIdx.x;
  const int i = blockIdx.x;
  const int head = blockIdx.y;
  const int batch = blockIdx.z;
  const float* s_row = s.row(batch, head, i);  // [seq_k]
  float* p_row = p.row(batch, head, i);        // [seq_k]

  float row_max = -INFINITY;
  for (int j = thread; j < shape.seq_k; j += softmax_threads) {
    row_max = fmaxf(row_max, s_row[j]);
    smem.partial[thread] = row_max;
  }
  __syncthreads();  // all partial maxima are written
  for (int live = softmax_threads / 2; live > 0; live /= 2) {
    if (thread < live) smem.partial[thread] = fmaxf(smem.partial[thread], smem.partial[thread + live]);
    __syncthreads();  // this level is written before the next reads it
  }
  row_max = smem.partial[0];

  float row_sum = 0.0f;
  for (int j = thread; j < shape.seq_k; j += softmax_threads) row_sum += expf(s_row[j] - row_max);
  smem.partial[thread] = row_sum;
  __syncthreads();  // all partial sums are written
  for (int live = softmax_threads / 2; live > 0; live /= 2) {
    if (thread < live) smem.partial[thread] += smem.partial[thread + live];
    __syncthreads();  // this level is written before the next reads it
  }
  row_sum = smem.partial[0];

  const float factor = 1.0f / row_sum;
  for (int j = thread; j < shape.seq_k; j += softmax_threads) p_row[j] = expf(s_row[j] - row_max) * factor;
  if (thread == 0) lse[(std::size_t(batch) * shape.heads + head) * shape.seq_q + i] = row_max + logf(row_sum);
}

}  // namespace exercise
