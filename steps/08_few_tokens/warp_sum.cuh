// A sum over the lanes of a warp.
#pragma once

#include "steps/08_few_tokens/epilogue.cuh"

namespace few_tokens {

// The sum over the lanes, in every lane.
__device__ inline float sum_of_warp(float x) {
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffff, x, distance);
  return x;
}

// The sums of a lane, one a token, become elements (token, j) of C: lane t writes that of token t.
template <class W, int TOK>
__device__ inline void put_sums(const Epilogue<W>& epilogue, const Entry& entry, int tokens, int j, const float (&sum)[TOK]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int t = 0; t < TOK; ++t) {
    const float all = sum_of_warp(sum[t]);
    if (lane == t && t < tokens) epilogue.put(entry, t, j, all);
  }
}

}  // namespace few_tokens
