// Step 07, the plan's order: add_up and order_work (plan.cuh).
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

__device__ inline int count_of(const TileList* list) {
  const int4 words = load(reinterpret_cast<const int4*>(list));
  return words.y + words.z + words.w;
}

// One block of add_threads. heads: of all batch entries.
template <int threads>
__global__ void __launch_bounds__(threads) add_up(PlanSizes sizes, int heads,
                                                  TileList* lists,    // [rows], whose `first` is written
                                                  HeadOrder* orders,  // [heads]
                                                  Rank* ranks,        // [rows]
                                                  int* split_rows) {  // [rows / 4], or null
  auto& smem = device::shared_storage<AddUpSmem>();
  const int thread = threadIdx.x;
  // where each list begins
  int tiles = 0;  // of all rows so far
  for (int from = 0; from < sizes.rows; from += threads) {
    const int row = from + thread, count = row < sizes.rows ? count_of(&lists[row]) : 0;
    int all = 0;
    const int before = exclusive_sum(smem.of_warps, count, all);
    if (row < sizes.rows) lists[row].first = tiles + before;
    tiles += all;
  }
  // Rows longer than this are split. All-live rows never are: none has more than twice the mean.
  const std::int64_t above = ceil_div(std::int64_t{split_above} * tiles, std::int64_t{sizes.rows});
  const int longest = sizes.splits ? max(1, static_cast<int>(above)) : INT_MAX;
  int items = 0, slots = 0, splits = 0;
  for (int from = 0; from < sizes.rows; from += threads) {
    const int row = from + thread, count = row < sizes.rows ? count_of(&lists[row]) : 0;
    const int parts = row >= sizes.rows ? 0 : count > longest ? ceil_div(count, longest) : 1;
    int all_items = min(threads, sizes.rows - from), all_slots = 0, all_splits = 0, item = thread, slot = 0, split = 0;
    if (sizes.splits) {
      item = exclusive_sum(smem.of_warps, parts, all_items);
      slot = exclusive_sum(smem.of_warps, parts > 1 ? parts : 0, all_slots);
      split = exclusive_sum(smem.of_warps, parts > 1, all_splits);
    }
    if (row < sizes.rows) {
      store(reinterpret_cast<int4*>(&ranks[row]),
            make_int4(items + item, parts > 1 ? ceil_div(count, parts) : count, parts, parts > 1 ? slots + slot : -1));
      if (parts > 1) split_rows[splits + split] = row;
    }
    items += all_items;
    slots += all_slots;
    splits += all_splits;
  }
  for (int n = splits + thread; sizes.splits && n < sizes.most_splits(); n += threads) split_rows[n] = -1;
  __syncthreads();  // all lists and ranks are there
  // What a head weighs, and its work items: what lies between its first row and that of the next head.
  for (int head = thread; head < heads; head += threads) {
    const int row = head * sizes.rows_of_head, next = row + sizes.rows_of_head;
    orders[head].weight = (next < sizes.rows ? lists[next].first : tiles) - lists[row].first;
    orders[head].items = (next < sizes.rows ? ranks[next].first_item : items) - ranks[row].first_item;
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
    orders[place].by_place = head;
  }
  __syncthreads();  // all places are taken
  // the work items before those of a place
  items = 0;
  for (int from = 0; from < heads; from += threads) {
    const int place = from + thread, of_head = place < heads ? orders[orders[place].by_place].items : 0;
    int all = 0;
    const int before = exclusive_sum(smem.of_warps, of_head, all);
    if (place < heads) orders[place].first_item = items + before;
    items += all;
  }
}

constexpr int order_rows = 32, order_threads = 256;  // so many threads share the comparisons of a row: threads / rows

struct OrderSmem {
  alignas(16) int2 keys[order_threads];  // length of a part, and parts
  int before[order_threads / order_rows][order_rows];
};

// A row's place is the number of work items that go before it: those of heavier heads, longer ones of its own head, and of
// equal ones those of later rows, as with causal masks. The last heads are ordered as one. Grid: x over order_rows tiles of
// queries, y over places of heads. Blocks of order_threads.
template <int threads>
__global__ void __launch_bounds__(threads) order_work(PlanSizes sizes, int heads, const int* entries,
                                                      const TileList* lists,    // [rows]
                                                      const Rank* ranks,        // [rows]
                                                      const HeadOrder* orders,  // [heads]
                                                      WorkItem* work) {         // [items]
  auto& smem = device::shared_storage<OrderSmem>();
  // behind the last item
  const int4 last = load(reinterpret_cast<const int4*>(&ranks[sizes.rows - 1]));
  const int thread = (blockIdx.y * gridDim.x + blockIdx.x) * threads + threadIdx.x;
  for (int n = last.x + last.z + thread; n < sizes.items; n += gridDim.x * gridDim.y * threads) {
    store_item(&work[n], {0, 0, 0, 0, -1, 0, -1, -1});
  }
  // the heads that are ordered with this one: places begin_place … end_place − 1
  const int own_place = blockIdx.y, together = max(heads - sizes.together, 0);
  const int begin_place = min(own_place, together), end_place = own_place < together ? own_place + 1 : heads;
  const int head = orders[own_place].by_place, tile = blockIdx.x * order_rows + threadIdx.x % order_rows;
  const int share = threadIdx.x / order_rows, row = head * sizes.rows_of_head + tile;
  const bool inside = tile < sizes.rows_of_head;
  const int4 mine = inside ? load(reinterpret_cast<const int4*>(&ranks[row])) : make_int4(0, 0, 0, 0);
  int before = 0;
  for (int place = begin_place; place < end_place; ++place) {
    const int other_head = orders[place].by_place;
    for (int first = 0; first < sizes.rows_of_head; first += threads) {
      const int other_tile = first + threadIdx.x;
      const int4 theirs = other_tile < sizes.rows_of_head
                              ? load(reinterpret_cast<const int4*>(&ranks[other_head * sizes.rows_of_head + other_tile]))
                              : make_int4(0, -1, 0, 0);
      store(&smem.keys[threadIdx.x], make_int2(theirs.y, theirs.z));
      __syncthreads();                                                  // the lengths of these rows are there
      const int own = row - (other_head * sizes.rows_of_head + first);  // this row among them, or before or behind them
#pragma unroll
      for (int n = 0; n < order_rows; ++n) {
        const int i = share * order_rows + n;
        const int2 other = load(&smem.keys[i]);
        if (other.x > mine.y || (other.x == mine.y && i > own)) before += other.y;
      }
      __syncthreads();  // everyone has read them
    }
  }
  smem.before[share][threadIdx.x % order_rows] = before;
  __syncthreads();  // all shares are there
  if (share > 0 || !inside) return;
  int place = orders[begin_place].first_item;
#pragma unroll
  for (int n = 0; n < threads / order_rows; ++n) place += smem.before[n][threadIdx.x];
  const int4 list = load(reinterpret_cast<const int4*>(&lists[row]));
  const int count = list.y + list.z + list.w, first = tile * sizes.tile_size();
  for (int part = 0; part < mine.z; ++part) {
    const int begin = min(part * mine.y, count), end = min(begin + mine.y, count);
    const auto within = [&](int from, int to) { return max(min(end, to) - max(begin, from), 0); };
    store_item(&work[place + part],
               {list.x + begin, within(0, list.y), within(list.y, list.y + list.z), within(list.y + list.z, count), head, first,
                begin < end ? entries[list.x + begin] : -1, mine.w < 0 ? -1 : mine.w + part});
  }
}

}  // namespace block_sparse
