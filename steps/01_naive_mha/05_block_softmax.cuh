// 01_naive_mha, block_softmax: a block per row, and threads that work together.
// Predecessor: 04_coalesced.cuh
//
// In `element_coalesced` one thread walks a whole row of the softmax, three times. Here a block takes a row. Its threads share
// the loop over keys, neighbours on neighbouring keys, and combine their partial maxima and sums through shared memory. Expect
// a softmax near its floor, 0.5 ms at 4096 tokens, because the lanes read neighbours and a row has 128 threads.
//
//   Smem   partial[threads]   one value per thread; the reduction halves the live part until partial[0] holds the result
//
// Every barrier below says what it separates; remove one and the simulator (or compute-sanitizer) shows the race.
#pragma once

#include "common/device/dialect.h"
#include "common/device/shapes.h"

namespace naive_mha {

using device::AttentionShape;
using device::Heads;

constexpr int softmax_threads = 128;

struct SoftmaxSmem {
  float partial[softmax_threads];
};

struct Maximum {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Combines one value per thread; every thread gets the result. All threads of the block must call it.
template <class Combine>
__device__ float block_reduce(SoftmaxSmem& smem, float value, Combine combine) {
  const int thread = threadIdx.x;
  smem.partial[thread] = value;
  __syncthreads();  // all partial values are written before any is combined
  for (int live = softmax_threads / 2; live > 0; live /= 2) {
    if (thread < live) smem.partial[thread] = combine(smem.partial[thread], smem.partial[thread + live]);
    __syncthreads();  // this level's results are written before the next level reads them
  }
  const float result = smem.partial[0];
  __syncthreads();  // everyone has read the result before the next reduction overwrites it
  return result;
}

// Grid: x over queries, y over heads, z over the batch. Blocks of softmax_threads.
__global__ void softmax_block_per_row(AttentionShape shape,
                                      Heads<const float> s,  // [batch, heads, seq_q, seq_k]
                                      Heads<float> p,        // [batch, heads, seq_q, seq_k]
                                      float* lse) {          // [batch, heads, seq_q]
  auto& smem = device::shared_storage<SoftmaxSmem>();
  const int i = blockIdx.x;
  const int head = blockIdx.y;
  const int batch = blockIdx.z;
  const float* s_row = s.row(batch, head, i);  // [seq_k]
  float* p_row = p.row(batch, head, i);        // [seq_k]

  float row_max = -INFINITY;
  for (int j = threadIdx.x; j < shape.seq_k; j += softmax_threads) row_max = fmaxf(row_max, s_row[j]);
  row_max = block_reduce(smem, row_max, Maximum{});
  if (row_max == -INFINITY) row_max = 0.0f;  // no visible key: −∞ − (−∞) would be NaN, −∞ − 0 is still −∞

  float row_sum = 0.0f;
  for (int j = threadIdx.x; j < shape.seq_k; j += softmax_threads) row_sum += expf(s_row[j] - row_max);
  row_sum = block_reduce(smem, row_sum, Sum{});

  const float factor = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;  // a row that sees no key has P = 0
  for (int j = threadIdx.x; j < shape.seq_k; j += softmax_threads) p_row[j] = expf(s_row[j] - row_max) * factor;

  if (threadIdx.x == 0) {
    lse[(std::size_t(batch) * shape.heads + head) * shape.seq_q + i] = row_max + logf(row_sum);
  }
}

}  // namespace naive_mha
