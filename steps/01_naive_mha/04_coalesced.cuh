// 01_naive_mha, element_coalesced: neighbouring lanes, neighbouring addresses.
// Predecessor: 03_element_per_thread.cuh
//
// The accesses before took 32 sectors each because neighbouring lanes took neighbouring rows. Swap % and /: the 32 stores
// to S become 128 consecutive bytes, four sectors; the loads of Q and P become one address for the whole warp, one sector;
// the loads of V and the stores of O are consecutive as well. One access gets worse: 32 lanes read 32 different keys, rows of
// K that lie dim · 4 bytes apart. No assignment of threads helps: Q and K both want lanes along t. So a kernel of its own
// transposes K once, to [dim, seq_k]: 2 · seq_k · dim elements moved to save 28 of the 32 sectors of each of
// seq_q · seq_k / 32 · dim loads. Expect S and P·V up to 16 times faster: two sectors per multiply-add instead of 33.
#pragma once

#include "common/device/shapes.h"

namespace naive_mha {

using device::AttentionShape;
using device::Heads;

// Grid: x over the elements of one head's K, y over key/value heads, z over the batch.
__global__ void transpose_k(AttentionShape shape,
                            Heads<const float> k,     // [batch, kv_heads, seq_k, dim]
                            Heads<float> k_by_dim) {  // [batch, kv_heads, dim, seq_k]
  const std::int64_t element = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int t = element / shape.seq_k;
  const int j = element % shape.seq_k;  // the stores are coalesced; the loads cannot be too, without shared memory
  const int head = blockIdx.y;
  const int batch = blockIdx.z;
  if (element >= std::int64_t(shape.dim) * shape.seq_k) return;

  k_by_dim.row(batch, head, t)[j] = k.row(batch, head, j)[t];
}

// Grid: x over the elements of one head's S, y over heads, z over the batch.
__global__ void scores_coalesced(AttentionShape shape,
                                 Heads<const float> q,         // [batch, heads, seq_q, dim]
                                 Heads<const float> k_by_dim,  // [batch, kv_heads, dim, seq_k]
                                 Heads<float> s) {             // [batch, heads, seq_q, seq_k]
  const std::int64_t element = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int i = element / shape.seq_k;
  const int j = element % shape.seq_k;  // the lane's own column
  const int head = blockIdx.y;
  const int batch = blockIdx.z;
  if (element >= std::int64_t(shape.seq_q) * shape.seq_k) return;

  float score = -INFINITY;
  if (j < shape.visible_keys(i)) {
    const float* q_row = q.row(batch, head, i);  // [dim]
    float dot = 0.0f;
    for (int t = 0; t < shape.dim; ++t) dot += q_row[t] * k_by_dim.row(batch, shape.kv_head(head), t)[j];
    score = shape.scale * dot;
  }
  s.row(batch, head, i)[j] = score;
}

// Grid: x over the elements of one head's O, y over heads, z over the batch.
__global__ void pv_coalesced(AttentionShape shape,
                             Heads<const float> p,  // [batch, heads, seq_q, seq_k]
                             Heads<const float> v,  // [batch, kv_heads, seq_k, dim]
                             Heads<float> o) {      // [batch, heads, seq_q, dim]
  const std::int64_t element = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int i = element / shape.dim;
  const int t = element % shape.dim;
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
