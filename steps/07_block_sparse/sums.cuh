// Step 07, the plan's sums: add_up (plan.cuh).
#pragma once

#include "steps/07_block_sparse/plan.cuh"

namespace block_sparse {

struct AddUpSmem {
  int of_warps[add_threads / 32];
};

// The sum of the numbers of a block's threads before this one; `all` becomes the sum of all.
__device__ inline int exclusive_sum(int (&of_warps)[add_threads / 32], int mine, int& all) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = mine;  // of the lanes up to this one
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(all_lanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) of_warps[warp] = sum;
  __syncthreads();              // the sums of all warps are there
  int before = of_warps[lane];  // of the warps up to this lane's number
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(all_lanes, before, distance);
    if (lane >= distance) before += other;
  }
  all = __shfl_sync(all_lanes, before, 31);
  const int of_earlier_warps = __shfl_sync(all_lanes, before, (warp + 31) % 32);
  __syncthreads();  // everyone has read before the next sum
  return sum - mine + (warp > 0 ? of_earlier_warps : 0);
}

// Where lists begin, which rows are split, and which head comes when. A thread has a share of neighbouring rows.
// One block of `threads`. heads: of all batch entries.
template <int threads>
__global__ void __launch_bounds__(threads) add_up(PlanSizes sizes, int heads,
                                                  int* counts,        // [rows] of tiles; becomes where each list begins
                                                  HeadOrder* orders,  // [heads]
                                                  Rank* ranks,        // [rows]
                                                  int* split_rows) {  // [most_split_rows], or null
  auto& smem = device::shared_storage<AddUpSmem>();
  const int thread = threadIdx.x, share = ceil_div(sizes.rows, threads);
  const int from = min(thread * share, sizes.rows), to = min(from + share, sizes.rows);
  // [doc: where_lists_begin]
  // the tiles of all rows before this share
  int mine = 0, tiles = 0;
#pragma unroll 4
  for (int row = from; row < to; ++row) mine += counts[row];
  int first = exclusive_sum(smem.of_warps, mine, tiles);
  // Rows longer than this are split. All-live rows never are: none has more than twice the mean.
  const auto part_of_tiles = [&](int of, int all) {
    return static_cast<int>(ceil_div(std::int64_t{of} * tiles, std::int64_t{all}));
  };
  const int longest =
      sizes.split_long_rows ? max(1, max(part_of_tiles(split_above, sizes.rows), part_of_tiles(1, most_parts))) : INT_MAX;
  // [/doc: where_lists_begin]
  int split_here = 0, parts_here = 0;  // of this share: rows that are split, and their parts
#pragma unroll 4
  for (int row = from; row < to; ++row) {
    if (counts[row] <= longest) continue;
    ++split_here;
    parts_here += ceil_div(counts[row], longest);
  }
  // the same of all shares before this one
  int split_before = 0, parts_before = 0, all_split = 0, all_parts = 0;
  if (__syncthreads_or(split_here > 0)) {
    split_before = exclusive_sum(smem.of_warps, split_here, all_split);
    parts_before = exclusive_sum(smem.of_warps, parts_here, all_parts);
  }
#pragma unroll 4
  for (int row = from; row < to; ++row) {
    const int count = counts[row], item = row + parts_before - split_before;
    counts[row] = first;
    first += count;
    if (count <= longest) {
      store(reinterpret_cast<int4*>(&ranks[row]), make_int4(item, count, 1, -1));
      continue;
    }
    const int parts = ceil_div(count, longest);
    store(reinterpret_cast<int4*>(&ranks[row]), make_int4(item, ceil_div(count, parts), parts, parts_before));
    split_rows[split_before++] = row;
    parts_before += parts;
  }
  for (int n = all_split + thread; sizes.split_long_rows && n < sizes.most_split_rows(); n += threads) split_rows[n] = -1;
  __syncthreads();  // the beginnings of all lists, and all ranks, are there
  // What a head weighs: the tiles between its first row and that of the next head.
  const auto tiles_before = [&](int row) { return row < sizes.rows ? counts[row] : tiles; };
  for (int head = thread; head < heads; head += threads) {
    const int row = head * sizes.rows_of_head;
    orders[head].weight = tiles_before(row + sizes.rows_of_head) - tiles_before(row);
  }
  __syncthreads();  // all weights are there
  // a head's place, heaviest first
  for (int head = thread; head < heads; head += threads) {
    const int weight = orders[head].weight;
    int place = 0;
#pragma unroll 8
    for (int other = 0; other < heads; ++other) {
      const int theirs = orders[other].weight;
      place += theirs > weight || (theirs == weight && other < head);
    }
    orders[head].place = place;
    orders[place].by_place = head;
  }
  __syncthreads();  // all places are taken
  // the work items before those of a place
  const auto items_before = [&](int row) {
    return row < sizes.rows ? ranks[row].first_item : sizes.rows + all_parts - all_split;
  };
  int items = 0;
  for (int begin = 0; begin < heads; begin += threads) {
    const int place = begin + thread, row = place < heads ? orders[place].by_place * sizes.rows_of_head : 0;
    int of_these = 0;
    const int before =
        exclusive_sum(smem.of_warps, place < heads ? items_before(row + sizes.rows_of_head) - items_before(row) : 0, of_these);
    if (place < heads) orders[place].first_item = items + before;
    items += of_these;
  }
}

}  // namespace block_sparse
