// 08_few_tokens, warp_per_row: a warp per row of the weights, lanes on neighbouring elements.
// Predecessor: 01_thread_per_row.cuh
//
// thread_per_row asks for 32 sectors with each load. Here the 32 lanes of a warp read 32 neighbours of one row: 64 bytes, two
// whole sectors. Each lane sums every 32nd product of the row; at the end the lanes add their sums by shuffles. This is a GEMV
// for each token, all at once.
//
//   block    8 warps, 8 rows of B
//   warp     a row of B
//   lane     every 32nd element of it: m sums
//   Smem     none
//
// What to expect: a sixteenth of thread_per_row's requests for sectors of B, because no sector is asked for twice. The memory
// is still far from its rate, because a warp has 64 bytes of B on their way where it could have several times 512.
#pragma once

#include "steps/08_few_tokens/warp_sum.cuh"

namespace few_tokens {

constexpr int warp_rows = 8;  // of a block: a warp each

// Grid: x over the rows of B, y and z over the batch. TOK: sums of a lane, m or more; those behind m are of zeros.
template <class W, class A, int TOK>
__global__ void warp_per_row(Shape shape,
                             Matrices<const A> tokens,   // [samples, channels, m, k]
                             Matrices<const W> weights,  // [weight samples, weight channels, n, k]
                             Epilogue<W> epilogue) {
  const int lane = threadIdx.x % 32;
  const int j = blockIdx.x * warp_rows + threadIdx.x / 32;
  if (j >= shape.n || !has_entry(shape)) return;  // whole warps
  const Entry entry = entry_of(shape, entry_number());
  const W* row = weights.row(entry.weight_sample, entry.weight_channel, j);
  const A* token = tokens.row(entry.sample, entry.channel, 0);
  float sum[TOK] = {};

  // [doc: warp_row]
  for (int i = lane; i < shape.k; i += 32) {
    const float weight = to_float(load(row + i));
    for (int t = 0; t < TOK; ++t) sum[t] += as_weight<W>(load_if(t < shape.m, token + t * tokens.row_stride + i)) * weight;
  }
  put_sums(epilogue, entry, shape.m, j, sum);
  // [/doc: warp_row]
}

}  // namespace few_tokens
