// 08_few_tokens, experts_unsorted: each block looks for the pairs of its expert itself.
// Predecessor: 11_experts.cuh
//
// At 8 tokens with 2 slots there are 16 ids. A launch that sorts them takes 2 µs or more, before the first weight is read. Here
// each block reads the ids, and its first warp lists the pairs that name the block's expert. That needs no second launch, and
// no memory beside the ids.
//
//   block, warp, lane   as in `experts`
//   Smem                pairs[512], their count, and the sums as before
//
// What to expect: 2 µs less than `experts`, because the launch of `route` is gone, and 16 ids are one load of one warp.
#pragma once

#include "steps/08_few_tokens/11_experts.cuh"

namespace few_tokens {

template <int TOK, class Tile>
struct UnsortedSmem {
  RowSmem<Tile, TOK> sums;
  int pairs[most_unsorted_pairs];
  int count;
};

// Grid: x over tiles of rows of B, y over experts. At most 512 pairs; else as experts_product.
template <class W, class A, int TOK, class Tile>
__global__ void __launch_bounds__(Tile::threads) unsorted_experts_product(Shape shape, Routing routing,
                                                                          Matrices<const A> tokens,   // [m, k]
                                                                          Matrices<const W> weights,  // [experts, n, k]
                                                                          float* sums) {              // [pairs, n]
  auto& smem = device::shared_storage<UnsortedSmem<TOK, Tile>>();
  const int expert = blockIdx.y, lane = threadIdx.x % 32;
  // [doc: look_for_pairs]
  if (threadIdx.x < 32) {
    int count = 0;
    for (int first = 0; first < routing.pairs(); first += 32) {
      const int pair = first + lane;
      const bool here = pair < routing.pairs() && routing.experts[pair] == expert;
      const unsigned found = __ballot_sync(all_lanes, here);
      if (here) smem.pairs[count + __popc(found & lanes_before())] = pair;
      count += __popc(found);
    }
    if (lane == 0) smem.count = count;
  }
  __syncthreads();  // the list is complete
  // [/doc: look_for_pairs]
  multiply_pairs<W, A, TOK, Tile>(smem.sums, shape, tokens, weights, expert, smem.pairs, smem.count, routing.top, sums);
}

}  // namespace few_tokens
