// 08_few_tokens, route: which tokens does an expert have? One launch, no atomics.
// Predecessor: 05_row_groups.cuh (option: products routed to experts)
//
// A product of an expert wants its pairs side by side: `order` is a permutation of all pairs, sorted by expert, and those of
// expert e stand at bounds[e] … bounds[e + 1] − 1. The usual way is a histogram by atomics, a scan, and a second kernel that
// asks an atomic counter for each place: three launches, and the order of an expert's tokens depends on who comes first.
//
// Here a block needs nobody else. Its expert's first place is the number of pairs that name a lower expert, so it counts those,
// too, while it looks for its own. All blocks read all ids: 16 KB at 512 tokens of 8 slots, which L2 keeps.
//
//   block    an expert
//   warp     a contiguous part of the pairs, twice: it counts, then it places
//   lane     every 32nd pair of the part; a ballot says which lanes have found the expert
//   Smem     counts[32] of each warp
//
// A pair's place is the expert's first, plus those that earlier warps, earlier turns and earlier lanes have found: pairs of an
// expert keep their order (the sort is stable).
//
// What to expect: 3 µs up to 4,096 ids, because a launch takes 2, and the two dependent reads of ids about 1. A block's part of
// the work grows with the ids alone, but all blocks read them: 262,144 ids and 256 experts take 100 µs. There count, scan and
// place by parts of the ids, in three launches, are the faster way (14_count_scan_place.cuh); at 32,768 ids this one still is,
// by a little.
#pragma once

#include "steps/08_few_tokens/routing.cuh"

namespace few_tokens {

constexpr int route_warps = 32;
constexpr int route_threads = 32 * route_warps;

struct RouteSmem {
  int2 counts[route_warps];  // pairs of a warp that name a lower expert, and this one
};

// Grid: x over experts. Ids that are no expert's get no place: `order` may end before its last entry.
__global__ void __launch_bounds__(route_threads) route(Routing routing,
                                                       int* bounds,   // [experts + 1]
                                                       int* order) {  // [pairs]
  auto& smem = device::shared_storage<RouteSmem>();
  const int expert = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = ceil_div(routing.pairs(), route_threads) * 32;  // of a warp
  const int begin = min(warp * part, routing.pairs()), end = min(begin + part, routing.pairs());
  // how many pairs of the part name a lower expert, how many this one?
  int lower = 0, own = 0;
#pragma unroll 4
  for (int first = begin; first < end; first += 32) {
    const int id = first + lane < end ? routing.experts[first + lane] : -1;
    lower += __popc(__ballot_sync(all_lanes, id >= 0 && id < expert));
    own += __popc(__ballot_sync(all_lanes, id == expert));
  }
  if (lane == 0) store(&smem.counts[warp], make_int2(lower, own));
  __syncthreads();  // all warps have counted
  // [doc: place_pairs]
  // the part's first place
  int first_of_expert = 0, before = 0, all = 0;
  for (int w = 0; w < route_warps; ++w) {
    const int2 counts = load(&smem.counts[w]);
    first_of_expert += counts.x;
    if (w < warp) before += counts.y;
    all += counts.y;
  }
  // each pair takes the next place
  int place = first_of_expert + before;
#pragma unroll 4
  for (int first = begin; first < end; first += 32) {
    const bool here = first + lane < end && routing.experts[first + lane] == expert;
    const unsigned found = __ballot_sync(all_lanes, here);
    if (here) order[place + __popc(found & lanes_before())] = first + lane;
    place += __popc(found);
  }
  // [/doc: place_pairs]
  if (threadIdx.x > 0) return;
  bounds[expert] = first_of_expert;
  if (expert == routing.count - 1) bounds[expert + 1] = first_of_expert + all;
}

}  // namespace few_tokens
