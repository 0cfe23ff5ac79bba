// 08_few_tokens, experts: one launch over the row tiles of all experts, and tokens through the permutation.
// Predecessor: 05_row_groups.cuh (option: products routed to experts)
//
// A call of the library for each expert costs a launch each, and each launch is too small to fill the GPU. Frameworks therefore
// copy the tokens of each expert side by side, pad each expert's rows to whole tiles, and launch once. But a product with few
// tokens is bound by the bytes of the weights, and reads tokens again for each tile of rows: it may as well read them where
// they are. So a lane takes its token's address from `order`, and nothing is copied and nothing is padded.
//
//   block    x: a tile of rows of B; y: its expert. An expert without pairs is left at once
//   warp     as in row_groups: lines of k, for TOK pairs of the expert at a time
//   lane     (g, t): rows g and g + 8 of each group, and the token of pair g of each block of 8
//   Smem     as in row_groups
//
// A pair's sums go to a row of their own, in fp32. `combine` finishes them with bias and activation, and adds those of a token
// in the order of its slots, each times its weight: the result does not depend on who comes first, as it would with atomics.
//
// What to expect: the time of reading the weights of the experts that are named. 8 tokens with 2 of 8 experts name 7 of them:
// 235 MB of fp16 at 4096 × 4096, 75 µs at 3.13 TB/s. A second group of TOK pairs reads the tile's weights again, from L2.
#pragma once

#include "steps/08_few_tokens/05_row_groups.cuh"
#include "steps/08_few_tokens/routing.cuh"

namespace few_tokens {

// What lane (g, t) reads of an expert's tokens: those of pairs g, g + 8, …
template <class A, int TOK>
struct LanePairs {
  static constexpr int blocks = TOK / token_block;
  const A* first[blocks];  // at k = 8t
  int pairs_left, k_left;  // from g, from 8t

  __device__ LanePairs(const Matrices<const A>& tokens, const int* pairs, int count, int top, int k_end) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      const int pair = b * token_block + g;
      first[b] = tokens.row(0, 0, pair < count ? pairs[pair] / top : 0) + t * chunk;
    }
    pairs_left = count - g;
    k_left = k_end - t * chunk;
  }

  __device__ void request(Chunk<A> (&to)[blocks], int k) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b) to[b] = load_chunk_if(b * token_block < pairs_left && k < k_left, first[b] + k);
  }
};

// The more pairs at a time, the more rows share their fragments.
template <int TOK>
using ExpertTile = RowTile<TOK / 4, 8, 2>;

// A tile of rows of one expert by all of its pairs.
template <class W, class A, int TOK, class Tile>
__device__ void multiply_pairs(RowSmem<Tile, TOK>& smem, const Shape& shape, const Matrices<const A>& tokens,
                               const Matrices<const W>& weights, int expert,
                               const int* pairs,  // [count]
                               int count, int top,
                               float* sums) {  // [all pairs, n]
  const Entry entry{0, 0, 0, expert};
  const int first_row = blockIdx.x * Tile::rows;
  // [doc: groups_of_pairs]
  for (int from = 0; from < count; from += TOK) {
    const int here = min(count - from, TOK);
    const LanePairs<A, TOK> lane_pairs(tokens, pairs + from, here, top, shape.k);
    WarpProduct<W, A, TOK, Tile, LanePairs<A, TOK>> product(shape, entry, lane_pairs, weights, first_row);
    product.request_weights();
    product.request_tokens();
    product.multiply();
    if (from > 0) __syncthreads();  // the sums of the group before are read
    smem.put(product.sums);
    smem.for_totals(here, [&](int pair, int row, float total) {
      if (first_row + row < shape.n) sums[std::int64_t{pairs[from + pair]} * shape.n + first_row + row] = total;
    });
  }
  // [/doc: groups_of_pairs]
}

// Grid: x over tiles of rows of B, y over experts. TOK: 8 or 16 pairs at a time. k is a multiple of 8, and all rows begin at
// multiples of 16 bytes.
template <class W, class A, int TOK, class Tile>
__global__ void __launch_bounds__(Tile::threads) experts_product(Shape shape, Routing routing,
                                                                 Matrices<const A> tokens,   // [m, k]
                                                                 Matrices<const W> weights,  // [experts, n, k]
                                                                 const int* bounds,          // [experts + 1]
                                                                 const int* order,           // [pairs]
                                                                 float* sums) {              // [pairs, n]
  auto& smem = device::shared_storage<RowSmem<Tile, TOK>>();
  const int expert = blockIdx.y, begin = bounds[expert], end = bounds[expert + 1];
  multiply_pairs<W, A, TOK, Tile>(smem, shape, tokens, weights, expert, order + begin, end - begin, routing.top, sums);
}

constexpr int combine_threads = 256;

// Grid: x over tokens, y over columns.
template <class W>
__global__ void __launch_bounds__(combine_threads) combine(Routing routing, int n,
                                                           const float* sums,  // [pairs, n]
                                                           Epilogue<W> epilogue) {
  const int token = blockIdx.x;
  for (int j = blockIdx.y * combine_threads + threadIdx.x; j < n; j += gridDim.y * combine_threads) {
    float total = 0;
    for (int pair = token * routing.top; pair < (token + 1) * routing.top; ++pair) {
      if (!routing.names_expert(pair)) continue;
      const Entry entry{0, 0, 0, routing.experts[pair]};
      total += routing.weights[pair] * epilogue.activated(entry, j, sums[std::int64_t{pair} * n + j]);
    }
    epilogue.store_rounded({0, 0, 0, 0}, token, j, total);
  }
}

}  // namespace few_tokens
