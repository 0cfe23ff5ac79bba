// 08_few_tokens, wide_loads: loads of 16 bytes, several of them on their way before the first is used.
// Predecessor: 02_warp_per_row.cuh
//
// A load from device memory takes 332 ns or more. An SM's share of 4.39 TB/s is 33 KB in a microsecond, so 11 KB of each SM
// must be in flight at any time, or the memory waits. A warp of warp_per_row asks for 64 bytes, and for the next 64 a few
// instructions later. Here a lane asks for 16 bytes of B at once, SLOTS times, and uses none of them before all are under way.
// Two blocks of 8 warps an SM, each warp with SLOTS · 512 bytes, make SLOTS · 8 KB.
//
//   grid     two blocks an SM; each warp takes every so many rows of B
//   warp     a row of B at a time, SLOTS · 256 elements of it
//   lane     SLOTS chunks of 8 elements, 256 elements apart: m sums
//   Smem     none
//
// What to expect: about half of the memory's rate with 8 KB, because a warp's turn is a latency and then arithmetic, in which
// it has nothing in flight; nearly all of it from 32 KB on. With 16 tokens the arithmetic decides: 16 multiply-adds a weight
// are 134 a cycle of an SM at the memory's rate, and an SM makes 128; each token's element must be converted, too.
#pragma once

#include "steps/08_few_tokens/chunk.cuh"
#include "steps/08_few_tokens/warp_sum.cuh"

namespace few_tokens {

constexpr int wide_warps = 8;                // of a block
constexpr int wide_blocks = 2;               // of an SM
constexpr int stride_of_slots = 32 * chunk;  // elements from a lane's chunk to its next

// Grid: x over the rows of B, in turns; y and z over the batch. k is a multiple of 8, rows of A and B begin at multiples of 16
// bytes. TOK: sums of a lane, m or more; those behind m are of zeros.
template <class W, class A, int TOK, int SLOTS>
__global__ void __launch_bounds__(32 * wide_warps, wide_blocks)
    wide_loads(Shape shape,
               Matrices<const A> tokens,   // [samples, channels, m, k]
               Matrices<const W> weights,  // [weight samples, weight channels, n, k]
               Epilogue<W> epilogue) {
  if (!has_entry(shape)) return;
  const int lane = threadIdx.x % 32;
  const Entry entry = entry_of(shape, entry_number());
  const A* token = tokens.row(entry.sample, entry.channel, 0);

  const int warps = gridDim.x * wide_warps;
  for (int j = blockIdx.x * wide_warps + threadIdx.x / 32; j < shape.n; j += warps) {
    const W* row = weights.row(entry.weight_sample, entry.weight_channel, j);
    float sum[TOK] = {};
#pragma unroll 1  // no loads of the next turn before this one is done: SLOTS decides what is on its way
    for (int first = lane * chunk; first < shape.k; first += SLOTS * stride_of_slots) {
      // [doc: slots]
      // all chunks of B are asked for
      Chunk<W> slot[SLOTS];
#pragma unroll
      for (int s = 0; s < SLOTS; ++s) {
        const int i = first + s * stride_of_slots;
        slot[s] = load_chunk_if(i < shape.k, row + i);
      }
      // [/doc: slots]
      // each meets all tokens
#pragma unroll
      for (int s = 0; s < SLOTS; ++s) {
        const int i = first + s * stride_of_slots;
        float weight[chunk];
        as_weights<W>(slot[s], weight);
#pragma unroll
        for (int t = 0; t < TOK; ++t) {
          float x[chunk];
          as_weights<W>(load_chunk_if(t < shape.m && i < shape.k, token + t * tokens.row_stride + i), x);
#pragma unroll
          for (int e = 0; e < chunk; ++e) sum[t] += x[e] * weight[e];
        }
      }
    }
    put_sums(epilogue, entry, shape.m, j, sum);
  }
}

}  // namespace few_tokens
