// 01_naive_mha, row_per_thread: attention as three loops, one thread per query.
// Predecessor: 01_projections.cuh
//
// The formula O = softmax(scale · Q Kᵀ) V is taken literally: three kernels, with S and P between them in global memory, two
// matrices of seq_q × seq_k elements per head. One thread does all the work of one query row in each kernel.
//
//   scores    reads Q, K    writes S      thread i: row i of S, dot product by dot product
//   softmax   reads S       writes P, LSE thread i: row i, in three passes: maximum, sum, division
//   pv        reads P, V    writes O      thread i: row i of O, element by element
//
// What to expect: 207 queries in 12 heads are 2484 threads, where an H200 wants more than 100,000 to hide the latency of its
// memory. The 32 lanes of a warp walk down 32 different rows, so every load of Q, S or P touches 32 sectors to use 4 bytes
// of each. No shared memory, no barriers: no thread ever needs what another computed within a kernel.
#pragma once

#include "common/device/shapes.h"

namespace naive_mha {

using device::AttentionShape;
using device::Heads;

// Grid: x over queries, y over heads, z over the batch.
__global__ void scores_row_per_thread(AttentionShape shape,
                                      Heads<const float> q,  // [batch, heads, seq_q, dim]
                                      Heads<const float> k,  // [batch, kv_heads, seq_k, dim]
                                      Heads<float> s) {      // [batch, heads, seq_q, seq_k]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int head = blockIdx.y;
  const int batch = blockIdx.z;
  if (i >= shape.seq_q) return;

  const float* q_row = q.row(batch, head, i);  // [dim]
  float* s_row = s.row(batch, head, i);        // [seq_k]
  const int visible = shape.visible_keys(i);
  for (int j = 0; j < shape.seq_k; ++j) {
    float score = -INFINITY;  // of a key that this query does not see
    if (j < visible) {
      const float* k_row = k.row(batch, shape.kv_head(head), j);  // [dim]
      float dot = 0.0f;
      for (int t = 0; t < shape.dim; ++t) dot += q_row[t] * k_row[t];
      score = shape.scale * dot;
    }
    s_row[j] = score;
  }
}

// Grid: x over queries, y over heads, z over the batch.
__global__ void softmax_row_per_thread(AttentionShape shape,
                                       Heads<const float> s,  // [batch, heads, seq_q, seq_k]
                                       Heads<float> p,        // [batch, heads, seq_q, seq_k]
                                       float* lse) {          // [batch, heads, seq_q]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int head = blockIdx.y;
  const int batch = blockIdx.z;
  if (i >= shape.seq_q) return;

  const float* s_row = s.row(batch, head, i);  // [seq_k]
  float* p_row = p.row(batch, head, i);        // [seq_k]

  float row_max = -INFINITY;
  for (int j = 0; j < shape.seq_k; ++j) row_max = fmaxf(row_max, s_row[j]);
  if (row_max == -INFINITY) row_max = 0.0f;  // no visible key: −∞ − (−∞) would be NaN, −∞ − 0 is still −∞

  float row_sum = 0.0f;
  for (int j = 0; j < shape.seq_k; ++j) row_sum += expf(s_row[j] - row_max);

  const float factor = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;  // a row that sees no key has P = 0
  for (int j = 0; j < shape.seq_k; ++j) p_row[j] = expf(s_row[j] - row_max) * factor;

  lse[(std::size_t(batch) * shape.heads + head) * shape.seq_q + i] = row_max + logf(row_sum);  // log 0 = −∞: the empty row
}

// Grid: x over queries, y over heads, z over the batch.
__global__ void pv_row_per_thread(AttentionShape shape,
                                  Heads<const float> p,  // [batch, heads, seq_q, seq_k]
                                  Heads<const float> v,  // [batch, kv_heads, seq_k, dim]
                                  Heads<float> o) {      // [batch, heads, seq_q, dim]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int head = blockIdx.y;
  const int batch = blockIdx.z;
  if (i >= shape.seq_q) return;

  const float* p_row = p.row(batch, head, i);  // [seq_k]
  float* o_row = o.row(batch, head, i);        // [dim]
  const int visible = shape.visible_keys(i);   // beyond it P is 0, but 0 · NaN is NaN: V must not be read there
  for (int t = 0; t < shape.dim; ++t) {
    float sum = 0.0f;
    for (int j = 0; j < visible; ++j) sum += p_row[j] * v.row(batch, shape.kv_head(head), j)[t];
    o_row[t] = sum;
  }
}

}  // namespace naive_mha
