// 06_backward, standard: the formulas taken literally, each matrix through global memory.
//
// The forward pass of step 01 kept P. Here P is made again from Q, K and LSE, and so are dP and dS: three matrices of seq_q ×
// seq_k elements a head, in fp32. Every product is a kernel of its own, with one thread for each element of its result.
//
//   probabilities   reads Q, K, LSE   writes P    thread (i, j): exp(scale · Qᵢ · Kⱼ − LSEᵢ)
//   row_products    reads dO, V       writes dP   thread (i, j): dOᵢ · Vⱼ
//   row_softmax_gradient  reads P, dP, D   writes dS   thread (i, j): P (dP − D)
//   over_queries    reads P, dO       writes dV   thread (j, t): Σ of the queries i that see key j
//   over_keys       reads dS, K       writes dQ   thread (i, t): Σ of the keys that query i sees
//   over_queries    reads dS, Q       writes dK
//
// What to expect: P, dP and dS are each written once; P and dS are read twice, dP once: 8 · seq_q · seq_k · 4 bytes a head,
// 68.7 GB and 16 ms at 128 heads of 4096 tokens. That is only the floor. The time is 1.2 s: in two of five products 32 lanes
// read 32 rows of K or V, 33 lines for a multiply-add.
#pragma once

#include "common/device/backward/rows.cuh"

namespace backward {

constexpr int standard_keys = 32;  // of a block of the first three kernels: a warp's lanes lie along a row of P
constexpr int standard_rows = 8;

// [batch, heads, seq_q, seq_k].
__device__ inline std::int64_t pair_at(const AttentionShape& shape, int head, int i, int j) {
  return ((std::int64_t{static_cast<int>(blockIdx.z)} * shape.heads + head) * shape.seq_q + i) * shape.seq_k + j;
}

template <class T>
__device__ float dot(const T* a, const T* b, int dim) {
  float sum = 0.0f;
  for (int t = 0; t < dim; ++t) sum += to_float(load(&a[t])) * to_float(load(&b[t]));
  return sum;
}

// P. Grid: x over pairs of keys and queries, y over heads, z over the batch; as the next two.
template <class T>
__global__ void probabilities(AttentionShape shape, Heads<const T> q, Heads<const T> k, RowStatistics rows, float* p) {
  const int tiles = ceil_div(shape.seq_k, standard_keys), head = blockIdx.y, batch = blockIdx.z;
  const int j = blockIdx.x % tiles * standard_keys + threadIdx.x, i = blockIdx.x / tiles * standard_rows + threadIdx.y;
  if (i >= shape.seq_q || j >= shape.seq_k) return;
  float probability = 0.0f;  // of a key that the query does not see
  if (keys_of(shape, i).has(j)) {
    const float s = dot(q.row(batch, head, i), k.row(batch, shape.kv_head(head), j), shape.dim);
    probability = device::exp2_fast(s * (shape.scale * device::log2_e) - rows.lse2[rows.at(shape, batch, head, i)]);
  }
  p[pair_at(shape, head, i, j)] = probability;
}

// dP.
template <class T>
__global__ void row_products(AttentionShape shape, Heads<const T> d_o, Heads<const T> v, float* dp) {
  const int tiles = ceil_div(shape.seq_k, standard_keys), head = blockIdx.y, batch = blockIdx.z;
  const int j = blockIdx.x % tiles * standard_keys + threadIdx.x, i = blockIdx.x / tiles * standard_rows + threadIdx.y;
  if (i >= shape.seq_q || j >= shape.seq_k) return;
  dp[pair_at(shape, head, i, j)] = dot(d_o.row(batch, head, i), v.row(batch, shape.kv_head(head), j), shape.dim);
}

// dS = P ∘ (dP − D).
__global__ void row_softmax_gradient(AttentionShape shape, const float* p, const float* dp, RowStatistics rows, float* ds) {
  const int tiles = ceil_div(shape.seq_k, standard_keys), head = blockIdx.y, batch = blockIdx.z;
  const int j = blockIdx.x % tiles * standard_keys + threadIdx.x, i = blockIdx.x / tiles * standard_rows + threadIdx.y;
  if (i >= shape.seq_q || j >= shape.seq_k) return;
  const std::int64_t at = pair_at(shape, head, i, j);
  ds[at] = p[at] * (dp[at] + rows.minus_delta[rows.at(shape, batch, head, i)]);
}

constexpr int standard_threads = 128;

// to[j][t] = factor · Σ x[i][j] · rows[i][t] of the queries i that see key j, in all heads that share the key. dV from P and
// dO, dK from dS and Q. Grid: x over elements of a key/value head, y over these heads, z over the batch.
template <class T>
__global__ void over_queries(AttentionShape shape, const float* x, Heads<const T> rows, float factor, Heads<T> to) {
  const std::int64_t e = std::int64_t{blockIdx.x} * standard_threads + threadIdx.x;
  const int j = static_cast<int>(e / shape.dim), t = static_cast<int>(e % shape.dim);
  const int kv_head = blockIdx.y, batch = blockIdx.z, group = shape.heads / shape.kv_heads;
  if (j >= shape.seq_k) return;
  float sum = 0.0f;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int i = shape.first_query(j); i < shape.end_query(j); ++i) {
      sum += x[pair_at(shape, head, i, j)] * to_float(load(&rows.row(batch, head, i)[t]));
    }
  }
  store(&to.row(batch, kv_head, j)[t], from_float<T>(factor * sum));
}

// dQ[i][t] = scale · Σ dS[i][j] · K[j][t] of the keys j that query i sees. Grid: x over elements of a head, y over heads.
template <class T>
__global__ void over_keys(AttentionShape shape, const float* ds, Heads<const T> k, Heads<T> dq) {
  const std::int64_t e = std::int64_t{blockIdx.x} * standard_threads + threadIdx.x;
  const int head = blockIdx.y, batch = blockIdx.z, i = static_cast<int>(e / shape.dim), t = static_cast<int>(e % shape.dim);
  if (i >= shape.seq_q) return;
  const RowKeys keys = keys_of(shape, i);
  float sum = 0.0f;
  for (int j = keys.first; j < keys.end; ++j) {
    sum += ds[pair_at(shape, head, i, j)] * to_float(load(&k.row(batch, shape.kv_head(head), j)[t]));
  }
  store(&dq.row(batch, head, i)[t], from_float<T>(shape.scale * sum));
}

}  // namespace backward
