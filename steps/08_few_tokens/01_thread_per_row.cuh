// 08_few_tokens, thread_per_row: one thread per row of the weights.
//
// With a few tokens a linear layer reads each weight once and multiplies it a few times: it is as fast as its reads. A thread
// walks along a row of B, and along all rows of A beside it. So every weight is read once, whatever m is; the tokens, which all
// threads read, come from the caches.
//
//   block    128 threads, 128 rows of B
//   thread   a row of B: m sums
//   Smem     none
//
// What to expect: a small share of the memory's rate, because the 32 lanes of a warp read 32 different rows: each load of 2
// bytes a lane asks for 32 sectors of 32 bytes, and the other 30 bytes of each must still be in L1 when their turn comes.
#pragma once

#include "steps/08_few_tokens/epilogue.cuh"

namespace few_tokens {

constexpr int thread_rows = 128;  // of a block

// Grid: x over the rows of B, y and z over the batch. TOK: sums of a thread, m or more; those behind m are of zeros.
template <class W, class A, int TOK>
__global__ void thread_per_row(Shape shape,
                               Matrices<const A> tokens,   // [samples, channels, m, k]
                               Matrices<const W> weights,  // [weight samples, weight channels, n, k]
                               Epilogue<W> epilogue) {
  const int j = blockIdx.x * thread_rows + threadIdx.x;
  if (j >= shape.n || !has_entry(shape)) return;
  const Entry entry = entry_of(shape, entry_number());
  const W* row = weights.row(entry.weight_sample, entry.weight_channel, j);
  const A* token = tokens.row(entry.sample, entry.channel, 0);
  float sum[TOK] = {};

  // [doc: thread_row]
  for (int i = 0; i < shape.k; ++i) {
    const float weight = to_float(load(row + i));
    for (int t = 0; t < TOK; ++t) sum[t] += as_weight<W>(load_if(t < shape.m, token + t * tokens.row_stride + i)) * weight;
  }
  for (int t = 0; t < TOK; ++t) {
    if (t < shape.m) epilogue.put(entry, t, j, sum[t]);
  }
  // [/doc: thread_row]
}

}  // namespace few_tokens
