// 01_naive_mha, element_uncoalesced: one thread per element.
// Predecessor: 02_row_per_thread.cuh
//
// `row_per_thread` kept 2484 threads busy and the machine idle. Here each element of S, and each of O, gets a thread of its
// own: 12 · 207 · 207 = 514,188 threads for S. Only the outer loop of each kernel disappears; the inner loop stays.
//
// Neighbouring lanes take neighbouring rows, a bad choice on purpose. In `scores` they read 32 rows of Q and store to 32 rows
// of S; in `pv` they read 32 rows of P and store to 32 rows of O. Each of these accesses needs 32 sectors of 32 bytes where 4
// would do. The next rung changes that, and nothing else. The softmax stays that of `row_per_thread`.
//
// What to expect: at 207 tokens 3 to 5 times less time, because 200 times as many threads give the idle SMs work. At 4096
// tokens nothing, because the sectors of each load are the limit, and they stay.
#pragma once

#include "common/device/shapes.h"

namespace naive_mha {

using device::AttentionShape;
using device::Heads;

// Grid: x over the elements of one head's S, y over heads, z over the batch.
__global__ void scores_uncoalesced(AttentionShape shape,
                                   Heads<const float> q,  // [batch, heads, seq_q, dim]
                                   Heads<const float> k,  // [batch, kv_heads, seq_k, dim]
                                   Heads<float> s) {      // [batch, heads, seq_q, seq_k]
  const std::int64_t element = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int i = element % shape.seq_q;  // the lane's own row
  const int j = element / shape.seq_q;  // mostly the same for all lanes of a warp
  const int head = blockIdx.y;
  const int batch = blockIdx.z;
  if (element >= std::int64_t(shape.seq_q) * shape.seq_k) return;

  float score = -INFINITY;
  if (j < shape.visible_keys(i)) {
    const float* q_row = q.row(batch, head, i);                 // [dim]
    const float* k_row = k.row(batch, shape.kv_head(head), j);  // [dim]
    float dot = 0.0f;
    for (int t = 0; t < shape.dim; ++t) dot += q_row[t] * k_row[t];
    score = shape.scale * dot;
  }
  s.row(batch, head, i)[j] = score;
}

// Grid: x over the elements of one head's O, y over heads, z over the batch.
__global__ void pv_uncoalesced(AttentionShape shape,
                               Heads<const float> p,  // [batch, heads, seq_q, seq_k]
                               Heads<const float> v,  // [batch, kv_heads, seq_k, dim]
                               Heads<float> o) {      // [batch, heads, seq_q, dim]
  const std::int64_t element = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int i = element % shape.seq_q;
  const int t = element / shape.seq_q;
  const int head = blockIdx.y;
  const int batch = blockIdx.z;
  if (element >= std::int64_t(shape.seq_q) * shape.dim) return;

  const float* p_row = p.row(batch, head, i);  // [seq_k]
  const int visible = shape.visible_keys(i);
  float sum = 0.0f;
  for (int j = 0; j < visible; ++j) sum += p_row[j] * v.row(batch, shape.kv_head(head), j)[t];
  o.row(batch, head, i)[t] = sum;
}

}  // namespace naive_mha
