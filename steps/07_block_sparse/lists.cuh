// Step 07, the plan's lists and order: count_tiles and write_lists (plan.cuh).
#pragma once

#include "steps/07_block_sparse/plan.cuh"

namespace block_sparse {

// Forward, a row is a tile of queries of one head, and visits tiles of keys.
template <class Shape>
struct QueryRow {
  static constexpr bool partials_first = false;  // as in step 05: partial tiles at both ends
  TileStates<Shape> states;

  __device__ QueryRow(const Shape& shape, const Mask& mask, const PlanSizes& sizes, int row)
      : states(shape, mask, row / sizes.rows_of_head / shape.heads, row / sizes.rows_of_head % shape.heads,
               row % sizes.rows_of_head * sizes.tile_queries, sizes.tile_queries) {}
  __device__ int begin() const { return states.tiles.begin; }
  __device__ int end() const { return states.tiles.end; }
  __device__ TileState of(int tile, int& entry) const {
    entry = tile;
    return states.of(tile);
  }
};

// Calls visit(entry, state, lanes with partial tiles, lanes with full ones) for what a row may visit, from right to left, 32 at
// a time: a lane has one.
template <class Row, class Visit>
__device__ void for_all_tiles(const Row& row, const Visit& visit) {
#pragma unroll 4
  for (int last = row.end() - 1; last >= row.begin(); last -= 32) {
    int entry = 0;
    const TileState state = row.of(last - static_cast<int>(threadIdx.x % 32), entry);
    visit(entry, state, __ballot_sync(all_lanes, state == partial), __ballot_sync(all_lanes, state == full));
  }
}

// Of the lanes with partial tiles, those to the right of the first full one. Lane 0 has the rightmost tile.
__device__ inline unsigned right_of_full(unsigned partial_lanes, unsigned full_lanes) {
  return full_lanes == 0 ? partial_lanes : partial_lanes & ((full_lanes & -full_lanes) - 1);
}

// Grid: x over rows, count_warps a block.
template <template <class> class Row, class Shape>
__global__ void __launch_bounds__(32 * count_warps) count_tiles(Shape shape, Mask mask, PlanSizes sizes,
                                                                TileList* lists,  // [rows], but for `first`
                                                                int* counts) {    // [rows] of tiles
  const int row = blockIdx.x * count_warps + threadIdx.x / 32;
  if (row >= sizes.rows) return;
  TileList list{0, 0, 0, 0};
  for_all_tiles(Row<Shape>(shape, mask, sizes, row), [&](int, TileState, unsigned partial_lanes, unsigned full_lanes) {
    const unsigned right = Row<Shape>::partials_first ? partial_lanes
                           : list.full > 0            ? 0
                                                      : right_of_full(partial_lanes, full_lanes);
    list.right += __popc(right);
    list.left += __popc(partial_lanes & ~right);
    list.full += __popc(full_lanes);
  });
  if (threadIdx.x % 32 > 0) return;
  store(reinterpret_cast<int4*>(&lists[row]), make_int4(0, list.right, list.full, list.left));
  counts[row] = list.count();
}

// A row's place in the order of work, in the whole warp: how many work items go before its own. First come those of heavier
// heads, then longer ones of its own head, and of equal ones those of later rows, as with causal masks. The last heads are
// ordered as one.
__device__ inline int place_of(const PlanSizes& sizes, int heads, const Rank* ranks, const HeadOrder* orders, int row) {
  const int own_place = orders[row / sizes.rows_of_head].place, together = max(heads - sizes.together, 0);
  const int begin_place = min(own_place, together), end_place = own_place < together ? own_place + 1 : heads;
  const int length = ranks[row].length, lane = threadIdx.x % 32;
  // [doc: count_what_goes_before]
  // A lane knows one of these heads, so that no read of the loop waits for another.
  const int count = end_place - begin_place, first_item = orders[begin_place].first_item;
  const int head_of_lane = lane < count ? orders[begin_place + lane].by_place : 0;
  int before = 0;
#pragma unroll 8
  for (int from = 0; from < count * sizes.rows_of_head; from += 32) {
    const int n = from + lane, place = min(n / sizes.rows_of_head, count - 1);  // beyond the end, too, for the shuffle
    const int other = __shfl_sync(all_lanes, head_of_lane, place) * sizes.rows_of_head + n - place * sizes.rows_of_head;
    if (n >= count * sizes.rows_of_head) continue;
    const int4 theirs = load(reinterpret_cast<const int4*>(&ranks[other]));  // Rank
    if (theirs.y > length || (theirs.y == length && other > row)) before += theirs.z;
  }
  // [/doc: count_what_goes_before]
  for (int distance = 16; distance > 0; distance /= 2) before += __shfl_xor_sync(all_lanes, before, distance);
  return first_item + before;
}

// The lists, and the work items in their order. Grid: x over rows, count_warps a block.
template <template <class> class Row, class Shape>
__global__ void __launch_bounds__(32 * count_warps) write_lists(Shape shape, Mask mask, PlanSizes sizes, int heads,
                                                                TileList* lists,          // [rows], whose `first` is written
                                                                const int* begins,        // [rows] of lists
                                                                const Rank* ranks,        // [rows]
                                                                const HeadOrder* orders,  // [heads]
                                                                int* tiles,
                                                                WorkItem* work) {  // [items]; null: no order
  const int row = blockIdx.x * count_warps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= sizes.rows) return;
  int4 list = load(reinterpret_cast<const int4*>(&lists[row]));
  list.x = begins[row];
  __syncwarp();  // all lanes have read the list before its beginning is written
  if (lane == 0) lists[row].first = list.x;
  int right_at = list.x, full_at = right_at + list.y, left_at = full_at + list.z;
  const int first_full = full_at;
  const unsigned before = (1u << lane) - 1;  // lanes
  for_all_tiles(Row<Shape>(shape, mask, sizes, row),
                [&](int tile, TileState state, unsigned partial_lanes, unsigned full_lanes) {
                  const unsigned right = Row<Shape>::partials_first ? partial_lanes
                                         : full_at > first_full     ? 0
                                                                    : right_of_full(partial_lanes, full_lanes);
                  const unsigned left = partial_lanes & ~right;
                  const bool is_right = right >> lane & 1;
                  if (state == full) tiles[full_at + __popc(full_lanes & before)] = tile;
                  if (state == partial && is_right) tiles[right_at + __popc(right & before)] = tile;
                  if (state == partial && !is_right) tiles[left_at + __popc(left & before)] = tile;
                  right_at += __popc(right);
                  full_at += __popc(full_lanes);
                  left_at += __popc(left);
                });
  if (work == nullptr) return;
  const int place = place_of(sizes.by_place(), heads, ranks, orders, row);
  __syncwarp();  // all of the list is there: a part's first tile goes into its work item
  const int4 rank = load(reinterpret_cast<const int4*>(&ranks[row]));
  const int count = list.y + list.z + list.w, head = row / sizes.rows_of_head;
  const int first = row % sizes.rows_of_head * sizes.tile_size();
  for (int part = lane; part < rank.z; part += 32) {
    const int begin = min(part * rank.y, count), end = min(begin + rank.y, count);
    const auto within = [&](int from, int to) { return max(min(end, to) - max(begin, from), 0); };
    store_item(&work[place + part],
               {list.x + begin, within(0, list.y), within(list.y, list.y + list.z), within(list.y + list.z, count), head, first,
                begin < end ? tiles[list.x + begin] : -1, rank.w < 0 ? -1 : rank.w + part});
  }
  // behind the last item
  const int4 last = load(reinterpret_cast<const int4*>(&ranks[sizes.rows - 1]));
  for (int n = last.x + last.z + row * 32 + lane; n < sizes.items; n += sizes.rows * 32) {
    store_item(&work[n], {0, 0, 0, 0, -1, 0, -1, -1});
  }
}

}  // namespace block_sparse
