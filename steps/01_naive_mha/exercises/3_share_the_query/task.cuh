// Exercise 3 of step 01: scores with the query row in shared memory.
//
// All threads of a block need the same row of Q. Yours to write: load it once, together, into smem.q_row; wait where you must;
// then compute S as `row_per_thread` does, reading the query from shared memory. The grader runs your kernel at ragged and
// causal shapes under several schedules.
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
  // Yours to write.
  if (threadIdx.x == 0) smem.q_row[0] = q.row(batch, head, i)[0];
  s.row(batch, head, i)[0] = smem.q_row[0] * k.row(batch, shape.kv_head(head), 0)[0];
}

}  // namespace exercise
