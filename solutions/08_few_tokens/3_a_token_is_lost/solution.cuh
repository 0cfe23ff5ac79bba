// Exercise 3 of step 08: our solution.
//
// A block fills its list, multiplies, and goes on with the ids where it stopped. It stops while the ids of a warp still fit: at
// 33 pairs or more.
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
  int next;  // the first id that was not looked at
};

// Grid: x over tiles of rows of B, y over experts. k is a multiple of 8, and all rows begin at multiples of 16 bytes.
__global__ void __launch_bounds__(Tile::threads) product(Shape shape, Routing routing,
                                                         Matrices<const T> tokens,   // [m, k]
                                                         Matrices<const T> weights,  // [experts, n, k]
                                                         float* sums) {              // [pairs, n]
  auto& smem = device::shared_storage<Smem>();
  const int expert = blockIdx.y, lane = threadIdx.x % 32;
  for (int next = 0; next < routing.pairs();) {
    if (threadIdx.x < 32) {
      int count = 0;
      for (; next < routing.pairs() && count <= list_pairs - 32; next += 32) {
        const int pair = next + lane;
        const bool here = pair < routing.pairs() && routing.experts[pair] == expert;
        const unsigned found = __ballot_sync(all_lanes, here);
        if (here) smem.pairs[count + __popc(found & lanes_before())] = pair;
        count += __popc(found);
      }
      if (lane == 0) {
        smem.count = count;
        smem.next = next;
      }
    }
    __syncthreads();  // the list is complete
    multiply_pairs<T, T, pairs_at_once, Tile>(smem.sums, shape, tokens, weights, expert, smem.pairs, smem.count, routing.top,
                                              sums);
    const int after = smem.next;
    __syncthreads();  // everyone has read the list and the sums before they are overwritten
    next = after;
  }
}

}  // namespace exercise
