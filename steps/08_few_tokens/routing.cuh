// Step 08: tokens that are routed to experts, and their pairs.
//
// A pair is a token and one of its slots: pair t · top + s is slot s of token t. Where ids lie outside of the experts, a pair
// names none: nobody multiplies it, and it adds nothing.
#pragma once

#include "steps/08_few_tokens/operands.cuh"

namespace few_tokens {

struct Routing {
  const int* experts;    // [tokens, top], any numbers
  const float* weights;  // [tokens, top]
  int tokens, top;
  int count;  // of experts

  __host__ __device__ int pairs() const { return tokens * top; }
  __device__ bool names_expert(int pair) const { return experts[pair] >= 0 && experts[pair] < count; }
};

constexpr int most_unsorted_pairs = 512;  // that `experts_unsorted` takes

// Of the lanes of a warp: those before this one.
__device__ inline unsigned lanes_before() { return (1u << threadIdx.x % 32) - 1; }

constexpr unsigned all_lanes = 0xffffffff;

}  // namespace few_tokens
