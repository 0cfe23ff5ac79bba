// Step 08: weights and tokens as operands of mma.sync, straight from global memory: no ldmatrix, no shuffle.
//
// mma.m16n8k16 multiplies 16 rows of A by 8 columns of B. The weights are A, because they have thousands of rows; the tokens
// are the columns of B, so that at most 7 columns are wasted. A sum over k may take its terms in any order, if both operands
// have the same one. Lane (g, t) loads what lies together in memory, 16 bytes = 8 elements of a row, and passes them to two
// mma:
//
//   k in memory    8t  8t+1 | 8t+2  8t+3 | 8t+4  8t+5 | 8t+6  8t+7
//   word           x        | y          | z          | w
//   operand of     mma 0    | mma 0      | mma 1      | mma 1
//   as its k       2t 2t+1  | 2t+8 2t+9  | 2t 2t+1    | 2t+8 2t+9
//
// So the two mma cover 32 k, a slot. The mma's k 2t is 8t in memory, for the weights as for the tokens.
#pragma once

#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/ld_global.cuh"
#include "steps/08_few_tokens/chunk.cuh"
#include "steps/08_few_tokens/epilogue.cuh"

namespace few_tokens {

constexpr int slot = 4 * chunk;  // of k: what a warp multiplies with two mma
constexpr int line = 2 * slot;   // of k: 128 bytes of a row of weights
constexpr int group = 16;        // rows of an mma
constexpr int token_block = 8;   // columns of an mma

// A chunk of a token as an operand, in the weights' type. A kernel converts what has come, not what it requests: nobody waits
// for a chunk before it is used.
template <class W, class A>
__device__ uint4 operand(const Chunk<A>& token) {
  if constexpr (std::is_same_v<W, A>) {
    return token.words[0];
  } else {
    A x[chunk];
    memcpy(x, token.words, sizeof(x));
    const auto pair = [&](int i) { return device::packed<W>(to_float(x[i]), to_float(x[i + 1])); };
    return {pair(0), pair(2), pair(4), pair(6)};
  }
}

// C += 16 rows · 32 k by 32 k · 8 tokens. `low` is of row g, `high` of row g + 8.
template <class W>
__device__ void multiply_slot(float (&c)[4], uint4 low, uint4 high, uint4 tokens) {
  ptx::mma_m16n8k16<W>(c, {low.x, high.x, low.y, high.y}, {tokens.x, tokens.y});
  ptx::mma_m16n8k16<W>(c, {low.z, high.z, low.w, high.w}, {tokens.z, tokens.w});
}

struct KRange {
  int begin, end;  // multiples of 8
};

// What lane (g, t) reads of the tokens: 8 elements of token g of each block of 8. Zeros stand for tokens that are not there,
// and for k past the end.
template <class A, int TOK>
struct LaneTokens {
  static constexpr int blocks = TOK / token_block;
  const A* first;  // of token g, at k = 8t
  std::int64_t stride;
  int tokens_left, k_left;  // from g, from 8t

  __device__ LaneTokens(const Shape& shape, const Entry& entry, const Matrices<const A>& tokens, int k_end) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    first = tokens.row(entry.sample, entry.channel, g) + t * chunk;
    stride = tokens.row_stride;
    tokens_left = shape.m - g;
    k_left = k_end - t * chunk;
  }

  __device__ void request(Chunk<A> (&to)[blocks], int k) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      to[b] = load_chunk_if(b * token_block < tokens_left && k < k_left, first + b * token_block * stride + k);
    }
  }
};

// What lane (g, t) reads of the weights: 8 elements of rows g and g + 8 of each group of 16.
template <class W, int groups>
struct LaneWeights {
  const W* first;  // of row g of the first group, at k = 8t
  std::int64_t stride;
  int rows_left, k_left;  // from row g, from 8t

  __device__ LaneWeights(const Shape& shape, const Entry& entry, const Matrices<const W>& weights, int row, int k_end) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    first = weights.row(entry.weight_sample, entry.weight_channel, row + g) + t * chunk;
    stride = weights.row_stride;
    rows_left = shape.n - row - g;
    k_left = k_end - t * chunk;
  }

  __device__ void request(uint4 (&to)[groups][2], int k) const {
#pragma unroll
    for (int r = 0; r < 2 * groups; ++r) {
      const int row = r * group / 2;
      const uint4* from = reinterpret_cast<const uint4*>(first + row * stride + k);
      to[r / 2][r % 2] = ptx::ld_global_nc_16_if(row < rows_left && k < k_left, from);
    }
  }
};

}  // namespace few_tokens
