// Step 08: from the sums that mma leaves in the lanes to elements of C, without shared memory. For warps that split rows.
#pragma once

#include "steps/08_few_tokens/fragments.cuh"

namespace few_tokens {

// Four sums as mma leaves them, as one vector.
__device__ inline float4 as_vector(const float (&sums)[4]) { return {sums[0], sums[1], sums[2], sums[3]}; }

// Writes the elements of C of one mma: rows `row` and row + 8, the tokens `token` and token + 1.
template <class W>
__device__ void store_fragment(const Shape& shape, const Entry& entry, const Epilogue<W>& epilogue, int row, int token,
                               const float4& sums) {
  const float values[] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int j = row + i / 2 * 8, of_token = token + i % 2;
    if (j < shape.n && of_token < shape.m) epilogue.put(entry, of_token, j, values[i]);
  }
}

// The row and the token of element 0 that thread `thread` of a block has of mma i of its warp, from the block's first row.
template <class Tile, int TOK>
__device__ int fragment_row(int thread, int i) {
  return thread / 32 * Tile::warp_rows + i / (TOK / token_block) * group + thread % 32 / 4;
}
template <int TOK>
__device__ int fragment_token(int thread, int i) {
  return i % (TOK / token_block) * token_block + thread % 4 * 2;
}
template <class Tile, int TOK>
constexpr int fragments = Tile::groups* TOK / token_block;  // of a thread

// Writes all sums of a block. `first_row`: the block's.
template <class Tile, int TOK, class W>
__device__ void store_fragments(const Shape& shape, const Entry& entry, const Epilogue<W>& epilogue, int first_row,
                                const float (&sums)[Tile::groups][TOK / token_block][4]) {
#pragma unroll
  for (int i = 0; i < fragments<Tile, TOK>; ++i) {
    constexpr int blocks = TOK / token_block;
    store_fragment(shape, entry, epilogue, first_row + fragment_row<Tile, TOK>(threadIdx.x, i),
                   fragment_token<TOK>(threadIdx.x, i), as_vector(sums[i / blocks][i % blocks]));
  }
}

}  // namespace few_tokens
