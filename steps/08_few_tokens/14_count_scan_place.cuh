// 08_few_tokens, experts_many: the same permutation for many ids. Blocks count, one scans, blocks place; no atomics.
// Predecessor: 10_route.cuh (option: many ids)
//
// In `route` the block of each expert reads all ids: the work is ids times experts, and 32,768 ids of 64 experts take 9 to 13
// µs. Here a block takes a part of the ids, and looks at each of them once for all experts. So the work is the ids alone. The
// price: where a block's pairs go depends on the counts of all blocks, so there are three launches.
//
//   count_part    how many pairs of a part name each expert?     counts[expert][part]
//   scan_counts   each count becomes the sum of all before it, which is the place of the part's first pair of this expert
//   place_part    counts once more, and each pair takes the next place
//
// Lanes of a warp that name the same expert find each other by ballots, one for each bit of the expert's number. The first of
// them adds for all of them. Each warp has counters of its own, so nobody else adds there, and no atomics are needed.
//
//   block    x: 4,096 pairs; y: 512 experts, because the counters of more do not fit
//   warp     256 pairs, in 8 turns. One block scans: there a warp has a contiguous part of the counts
//   lane     a pair in each turn; it reads all 8 ids at once
//   Smem     counts[16][512] of each warp, 32 KB
//
// The order is that of `route`, bit by bit: the sort is stable.
//
// What to expect: 7 µs at 32,768 ids of 64 experts, because three launches take 2 µs each, and the rest is a few reads that
// wait for each other. So `route` stays ahead while it takes less than that: up to about 16,384 ids of 64 experts.
#pragma once

#include "steps/08_few_tokens/routing.cuh"

namespace few_tokens {

constexpr int part_warps = 16, part_threads = 32 * part_warps;
constexpr int part_experts = part_threads;  // of a block: in the end a thread has an expert
constexpr int part_turns = 8;               // of a warp, with 32 pairs each
constexpr int part_pairs = part_threads * part_turns;

struct PartSmem {
  int counts[part_warps][part_experts];  // of each warp's pairs; then the next place of each warp's pairs
};

// The pairs of this lane's warp. Experts are counted from the block's first one.
struct WarpPairs {
  int experts;  // of the block
  int first;    // this lane's pair in the first turn; the others follow, 32 apart
  unsigned expert[part_turns];
  unsigned alike[part_turns];  // lanes that name the same expert; none if it is not of the block

  __device__ explicit WarpPairs(const Routing& routing) {
    const int first_expert = blockIdx.y * part_experts;
    experts = min(routing.count - first_expert, part_experts);
    first = blockIdx.x * part_pairs + threadIdx.x / 32 * (32 * part_turns) + threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < part_turns; ++i) {
      const int pair = first + 32 * i;
      // Any number is allowed: what lies below the first expert wraps around, and is far above the last one.
      expert[i] = pair < routing.pairs() ? static_cast<unsigned>(routing.experts[pair]) - first_expert : part_experts;
    }
    // [doc: lanes_alike]
#pragma unroll
    for (int i = 0; i < part_turns; ++i) {
      const bool here = expert[i] < static_cast<unsigned>(experts);
      unsigned same = __ballot_sync(all_lanes, here);
      for (int bit = 1; bit < experts; bit *= 2) {
        const bool is_set = expert[i] & bit;
        const unsigned set = __ballot_sync(all_lanes, is_set);
        same &= is_set ? set : ~set;
      }
      alike[i] = here ? same : 0;
    }
    // [/doc: lanes_alike]
  }

  // Whether this lane adds for those that name the same expert.
  __device__ bool adds(int turn) const { return alike[turn] != 0 && (alike[turn] & lanes_before()) == 0; }

  __device__ void count(PartSmem& smem) const {
    int* counts = smem.counts[threadIdx.x / 32];
    for (int e = threadIdx.x % 32; e < experts; e += 32) counts[e] = 0;
    __syncwarp();  // all counters are 0 before a lane adds
#pragma unroll
    for (int i = 0; i < part_turns; ++i) {
      if (adds(i)) counts[expert[i]] += __popc(alike[i]);
      __syncwarp();  // in the next turn another lane may add to this counter
    }
    __syncthreads();  // all warps have counted
  }
};

// Grid: x over parts of the pairs, y over parts of the experts.
__global__ void __launch_bounds__(part_threads) count_part(Routing routing,
                                                           int* counts) {  // [experts, parts]
  auto& smem = device::shared_storage<PartSmem>();
  const WarpPairs pairs(routing);
  pairs.count(smem);
  const int e = threadIdx.x;
  if (e >= pairs.experts) return;
  int all = 0;
  for (int w = 0; w < part_warps; ++w) all += smem.counts[w][e];
  counts[std::int64_t{blockIdx.y * part_experts + e} * gridDim.x + blockIdx.x] = all;
}

constexpr int scan_warps = 32, scan_threads = 32 * scan_warps;

struct ScanSmem {
  int sums[scan_warps];
};

// One block. It does not matter to it what is counted.
__global__ void __launch_bounds__(scan_threads) scan_counts(std::int64_t all,
                                                            int* counts,   // [all]: in and out
                                                            int* total) {  // [1]
  auto& smem = device::shared_storage<ScanSmem>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::int64_t part = ceil_div(all, std::int64_t{scan_threads}) * 32;  // of a warp
  const std::int64_t begin = warp * part, end = begin + part < all ? begin + part : all;
  // the sum of the part
  int sum = 0;
#pragma unroll 4
  for (std::int64_t i = begin + lane; i < end; i += 32) sum += counts[i];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(all_lanes, sum, distance);
  if (lane == 0) smem.sums[warp] = sum;
  __syncthreads();  // all parts have their sums
  int before = 0;
  for (int w = 0; w < warp; ++w) before += smem.sums[w];
  // each count becomes the sum of those before it
  for (std::int64_t first = begin; first < end; first += 32) {
    const std::int64_t i = first + lane;
    const int count = i < end ? counts[i] : 0;
    int up_to = count;  // of this lane and those before it
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int below = __shfl_up_sync(all_lanes, up_to, distance);
      if (lane >= distance) up_to += below;
    }
    if (i < end) counts[i] = before + up_to - count;
    before += __shfl_sync(all_lanes, up_to, 31);
  }
  if (threadIdx.x == scan_threads - 1) *total = before;
}

// Grid: as count_part.
__global__ void __launch_bounds__(part_threads) place_part(Routing routing,
                                                           const int* places,  // [experts, parts]
                                                           int* bounds,        // [experts + 1]; the last is there
                                                           int* order) {       // [pairs]
  auto& smem = device::shared_storage<PartSmem>();
  const WarpPairs pairs(routing);
  pairs.count(smem);
  // the place of each warp's first pair
  const int e = threadIdx.x;
  if (e < pairs.experts) {
    const int expert = blockIdx.y * part_experts + e;
    int place = places[std::int64_t{expert} * gridDim.x + blockIdx.x];
    if (blockIdx.x == 0) bounds[expert] = place;
    for (int w = 0; w < part_warps; ++w) {
      const int count = smem.counts[w][e];
      smem.counts[w][e] = place;
      place += count;
    }
  }
  __syncthreads();  // all warps have their places
  // [doc: place_part]
  int* places_of_warp = smem.counts[threadIdx.x / 32];
#pragma unroll
  for (int i = 0; i < part_turns; ++i) {
    if (pairs.alike[i] != 0) {
      order[places_of_warp[pairs.expert[i]] + __popc(pairs.alike[i] & lanes_before())] = pairs.first + 32 * i;
    }
    __syncwarp();  // all lanes have read before one adds
    if (pairs.adds(i)) places_of_warp[pairs.expert[i]] += __popc(pairs.alike[i]);
    __syncwarp();  // in the next turn another lane may read what was added
  }
  // [/doc: place_part]
}

}  // namespace few_tokens
