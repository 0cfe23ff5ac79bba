// 08_few_tokens, tensor_cores: weights straight from global memory into mma fragments.
// Predecessor: 03_wide_loads.cuh
//
// Until here each weight is converted, and multiplied once for each token: at 16 tokens that is 17 instructions for 2 bytes,
// and arithmetic takes longer than memory. An mma multiplies 16 rows by 8 tokens with one instruction. fragments.cuh shows how
// 16-byte loads become its operands without a shuffle.
//
//   block    16 rows of B, all tokens
//   warp     every eighth line of 64 k of these rows: two slots of 32 k, requested before the first is multiplied
//   lane     (g, t): 16 bytes of rows g and g + 8, and of token g, in each slot
//
//   Smem     of[8][tokens][16 + 4]   each warp's sums; the padding keeps the lanes of a store in different banks
//
// The sums of the warps are added in the order of the warps: the result does not depend on who comes first.
//
// What to expect: the same time for 1 and for 8 tokens, because an mma has 8 columns, whether they are used or not.
#pragma once

#include "steps/08_few_tokens/fragments.cuh"

namespace few_tokens {

// The sums of every warp over its k, of `rows` rows.
template <int warps, int rows, int TOK>
struct WarpSums {
  float of[warps][TOK][rows + 4];

  // This warp's sums, as mma leaves them.
  __device__ void put(const float (&sums)[rows / group][TOK / token_block][4]) {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < rows / group; ++r) {
#pragma unroll
      for (int b = 0; b < TOK / token_block; ++b) {
#pragma unroll
        for (int i = 0; i < 4; ++i) of[warp][b * token_block + 2 * t + i % 2][r * group + g + i / 2 * 8] = sums[r][b][i];
      }
    }
  }

  // Adds the warps' sums of every element, and calls put(token, row, sum) with it.
  template <class Put>
  __device__ void for_totals(int tokens, const Put& put_total) const {
    __syncthreads();  // all warps have put their sums
#pragma unroll 1
    for (int i = threadIdx.x; i < tokens * rows; i += 32 * warps) {
      const int token = i / rows, row = i % rows;
      float total = 0;
#pragma unroll
      for (int warp = 0; warp < warps; ++warp) total += of[warp][token][row];
      put_total(token, row, total);
    }
  }
  // Writes C. `first`: the block's first row.
  template <class W>
  __device__ void store_total(const Shape& shape, const Entry& entry, const Epilogue<W>& epilogue, int first) const {
    for_totals(shape.m, [&](int token, int row, float total) {
      if (first + row < shape.n) epilogue.put(entry, token, first + row, total);
    });
  }
};

constexpr int tc_warps = 8;
constexpr int tc_threads = 32 * tc_warps;
template <int TOK>
using TensorCoreSmem = WarpSums<tc_warps, group, TOK>;

// Grid: x over groups of 16 rows of B, y and z over the batch. TOK: 8 or 16, m or more. k is a multiple of 8, and all rows
// begin at multiples of 16 bytes.
template <class W, class A, int TOK>
__global__ void __launch_bounds__(tc_threads)
    tensor_core_product(Shape shape,
                        Matrices<const A> tokens,   // [samples, channels, m, k]
                        Matrices<const W> weights,  // [weight samples, weight channels, n, k]
                        Epilogue<W> epilogue) {
  if (!has_entry(shape)) return;
  auto& smem = device::shared_storage<TensorCoreSmem<TOK>>();
  const Entry entry = entry_of(shape, entry_number());
  const int warp = threadIdx.x / 32, first_row = blockIdx.x * group;
  const LaneWeights<W, 1> lane_weights(shape, entry, weights, first_row, shape.k);
  const LaneTokens<A, TOK> lane_tokens(shape, entry, tokens, shape.k);
  constexpr int blocks = TOK / token_block;
  float sums[1][blocks][4] = {};
  // [doc: tensor_core_loop]
  for (int k = warp * line; k < shape.k; k += tc_warps * line) {
    uint4 rows[2][1][2];
    Chunk<A> chunks[2][blocks];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      lane_weights.request(rows[s], k + s * slot);
      lane_tokens.request(chunks[s], k + s * slot);
    }
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int b = 0; b < blocks; ++b) multiply_slot<W>(sums[0][b], rows[s][0][0], rows[s][0][1], operand<W>(chunks[s][b]));
    }
  }
  // [/doc: tensor_core_loop]
  smem.put(sums);
  smem.store_total(shape, entry, epilogue, first_row);
}

}  // namespace few_tokens
