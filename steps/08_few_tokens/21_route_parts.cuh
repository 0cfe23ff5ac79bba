// 08_few_tokens, route_parts: the same permutation for many tokens. Count, scan, place.
// Predecessor: 20_route.cuh
//
// In `route` every block reads all ids, from L2: with 64 experts and 32,768 pairs that is 8 MB, twice, and a warp has 32 turns
// in each pass. Here a block takes 1,024 pairs, keeps their ids in shared memory, and looks for all experts among them. So ids
// are read once in each pass, and all blocks share the work. The price is two launches more, because a block's first place for
// an expert depends on the counts of all blocks.
//
//   count_part    block: a part of the pairs; warp: every 32nd expert. counts[expert][part]
//   scan_counts   one block: each count becomes the sum of all counts before it; bounds
//   place_part    as count_part, with places instead of counts
//
//   Smem     id[1024] of a part; sums[32] of the scan's warps
//
// What to expect: slower than `route` at 4,096 ids, because of three launches instead of one; faster when a warp of `route` has
// hundreds of turns.
#pragma once

#include "steps/08_few_tokens/20_route.cuh"

namespace few_tokens {

constexpr int part_pairs = route_threads;  // a thread for each

struct PartSmem {
  int id[part_pairs];  // −1 behind the last pair

  // Reads the ids of this block's part.
  __device__ void read(const Routing& routing) {
    const int pair = blockIdx.x * part_pairs + threadIdx.x;
    id[threadIdx.x] = pair < routing.pairs() ? routing.experts[pair] : -1;
    __syncthreads();  // all ids of the part have come
  }
  __device__ unsigned lanes_that_name(int expert, int first) const {
    return __ballot_sync(all_lanes, id[first + threadIdx.x % 32] == expert);
  }
};

// Grid: x over parts, as many as gridDim.x.
__global__ void __launch_bounds__(route_threads) count_part(Routing routing,
                                                            int* counts) {  // [experts, parts]
  auto& smem = device::shared_storage<PartSmem>();
  smem.read(routing);
  for (int expert = threadIdx.x / 32; expert < routing.count; expert += route_warps) {
    int own = 0;
#pragma unroll 4
    for (int first = 0; first < part_pairs; first += 32) own += __popc(smem.lanes_that_name(expert, first));
    if (threadIdx.x % 32 == 0) counts[expert * gridDim.x + blockIdx.x] = own;
  }
}

struct ScanSmem {
  int sums[route_warps];
};

// One block. A thread takes `run` neighbouring counts, and begins with the sum of all before them.
__global__ void __launch_bounds__(route_threads) scan_counts(int experts, int parts,
                                                             int* counts,    // [experts, parts]: in and out
                                                             int* bounds) {  // [experts + 1]
  auto& smem = device::shared_storage<ScanSmem>();
  const int all = experts * parts, run = ceil_div(all, route_threads), lane = threadIdx.x % 32;
  const int begin = min(static_cast<int>(threadIdx.x) * run, all), end = min(begin + run, all);
  int sum = 0;
  for (int i = begin; i < end; ++i) sum += counts[i];
  int up_to = sum;  // of this lane and those before it
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int below = __shfl_up_sync(all_lanes, up_to, distance);
    if (lane >= distance) up_to += below;
  }
  if (lane == 31) smem.sums[threadIdx.x / 32] = up_to;
  __syncthreads();  // all warps have their sums
  int place = up_to - sum;
  for (int w = 0; w < static_cast<int>(threadIdx.x) / 32; ++w) place += smem.sums[w];
  for (int i = begin; i < end; ++i) {
    const int count = counts[i];
    counts[i] = place;
    if (i % parts == 0) bounds[i / parts] = place;
    place += count;
  }
  if (threadIdx.x == route_threads - 1) bounds[experts] = place;
}

// Grid: x over parts.
__global__ void __launch_bounds__(route_threads) place_part(Routing routing,
                                                            const int* places,  // [experts, parts]
                                                            int* order) {       // [pairs]
  auto& smem = device::shared_storage<PartSmem>();
  smem.read(routing);
  const int lane = threadIdx.x % 32;
  for (int expert = threadIdx.x / 32; expert < routing.count; expert += route_warps) {
    int place = places[expert * gridDim.x + blockIdx.x];
    for (int first = 0; first < part_pairs; first += 32) {
      const unsigned found = smem.lanes_that_name(expert, first);
      const int pair = blockIdx.x * part_pairs + first + lane;
      if (found >> lane & 1) order[place + __popc(found & lanes_before())] = pair;
      place += __popc(found);
    }
  }
}

}  // namespace few_tokens
