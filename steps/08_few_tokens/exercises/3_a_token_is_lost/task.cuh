// Exercise 3 of step 08: a token is lost.
//
// The kernel of `experts_unsorted`, whose list of pairs has 64 places, and not 512. The grader wants the right C at every
// routing: experts with hundreds of pairs, with 64, with none. The list keeps its 64 places, and the weights are not read more
// often than needed.
#pragma once

#include "steps/08_few_tokens/11_experts.cuh"

namespace exercise {

using namespace few_tokens;

using T = __half;
constexpr int pairs_at_once = 16;  // that read the weights together
using Tile = ExpertTile<pairs_at_once>;

constexpr int list_pairs = 64;

struct Smem {
  RowSmem<Tile, pairs_at_once> sums;
  int pairs[list_pairs];
  int count;
};

// Grid: x over tiles of rows of B, y over experts. k is a multiple of 8, and all rows begin at multiples of 16 bytes.
__global__ void __launch_bounds__(Tile::threads) product(Shape shape, Routing routing,
                                                         Matrices<const T> tokens,   // [m, k]
                                                         Matrices<const T> weights,  // [experts, n, k]
                                                         float* sums) {              // [pairs, n]
  auto& smem = device::shared_storage<Smem>();
  const int expert = blockIdx.y, lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    int count = 0;
    for (int first = 0; first < routing.pairs(); first += 32) {
      const int pair = first + lane;
      const bool here = pair < routing.pairs() && routing.experts[pair] == expert;
      const unsigned found = __ballot_sync(all_lanes, here);
      const int place = count + __popc(found & lanes_before());
      if (here && place < list_pairs) smem.pairs[place] = pair;
      count += __popc(found);
    }
    if (lane == 0) smem.count = min(count, list_pairs);
  }
  __syncthreads();  // the list is complete
  multiply_pairs<T, T, pairs_at_once, Tile>(smem.sums, shape, tokens, weights, expert, smem.pairs, smem.count, routing.top,
                                            sums);
}

}  // namespace exercise
