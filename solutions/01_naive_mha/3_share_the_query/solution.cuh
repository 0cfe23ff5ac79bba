// Exercise 3 of step 01, solved: the block loads its query row once, waits, and every thread reads it from shared memory.
#pragma once

#include "common/device/dialect.h"
#include "common/device/shapes.h"

namespace exercise {

using device::AttentionShape;
using device::Heads;

constexpr int scores_threads = 128;

struct Smem {
  float q_row[256];  // the largest head dim
};

// Grid: x over queries, y over heads, z over the batch. Thread j computes the scores of keys j, j + scores_threads, …
__global__ void scores(AttentionShape shape,
                       Heads<const float> q,  // [batch, heads, seq_q, dim]
                       Heads<const float> k,  // [batch, kv_heads, seq_k, dim]
                       Heads<float> s) {      // [batch, heads, seq_q, seq_k]
  auto& smem = device::shared_storage<Smem>();
  const int i = blockIdx.x;
  const int head = blockIdx.y;
  const int batch = blockIdx.z;
  const float* q_row = q.row(batch, head, i);  // [dim]
  for (int t = threadIdx.x; t < shape.dim; t += scores_threads) smem.q_row[t] = q_row[t];
  __syncthreads();  // the whole query row is in shared memory

  for (int j = threadIdx.x; j < shape.seq_k; j += scores_threads) {
    float score = -INFINITY;
    if (j < shape.visible_keys(i)) {
      const float* k_row = k.row(batch, shape.kv_head(head), j);  // [dim]
      float dot = 0.0f;
      for (int t = 0; t < shape.dim; ++t) dot += smem.q_row[t] * k_row[t];
      score = shape.scale * dot;
    }
    s.row(batch, head, i)[j] = score;
  }
}

}  // namespace exercise
