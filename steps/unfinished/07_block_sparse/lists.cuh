// Step 07, the plan's lists: count_tiles and write_lists (plan.cuh).
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
               row % sizes.rows_of_head * sizes.tile_queries, sizes.tile_queries, sizes.tile_keys) {}
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
                                                                TileList* lists) {  // [rows]
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
  if (threadIdx.x % 32 == 0) store(reinterpret_cast<int4*>(&lists[row]), make_int4(0, list.right, list.full, list.left));
}

// The same, but the tiles go to their places.
template <template <class> class Row, class Shape>
__global__ void __launch_bounds__(32 * count_warps) write_lists(Shape shape, Mask mask, PlanSizes sizes,
                                                                const TileList* lists,  // [rows]
                                                                int* tiles) {
  const int row = blockIdx.x * count_warps + threadIdx.x / 32;
  if (row >= sizes.rows) return;
  const int4 list = load(reinterpret_cast<const int4*>(&lists[row]));
  int right_at = list.x, full_at = right_at + list.y, left_at = full_at + list.z;
  const int first_full = full_at;
  const unsigned before = (1u << threadIdx.x % 32) - 1;  // lanes
  for_all_tiles(Row<Shape>(shape, mask, sizes, row),
                [&](int tile, TileState state, unsigned partial_lanes, unsigned full_lanes) {
                  const unsigned right = Row<Shape>::partials_first ? partial_lanes
                                         : full_at > first_full     ? 0
                                                                    : right_of_full(partial_lanes, full_lanes);
                  const unsigned left = partial_lanes & ~right;
                  const bool is_right = right >> threadIdx.x % 32 & 1;
                  if (state == full) tiles[full_at + __popc(full_lanes & before)] = tile;
                  if (state == partial && is_right) tiles[right_at + __popc(right & before)] = tile;
                  if (state == partial && !is_right) tiles[left_at + __popc(left & before)] = tile;
                  right_at += __popc(right);
                  full_at += __popc(full_lanes);
                  left_at += __popc(left);
                });
}

}  // namespace block_sparse
