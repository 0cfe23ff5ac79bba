// Step 07, host side: the plan's arrays and launches, forward and backward.
#pragma once

#include <algorithm>
#include <bit>

#include "common/run/family/backward.h"
#include "common/run/family/packed.h"
#include "steps/07_block_sparse/limits.h"
#include "steps/07_block_sparse/lists.cuh"
#include "steps/07_block_sparse/sums.cuh"

namespace block_sparse {

inline problem::SparseMask mask_of(const problem::Attention& a) {  // without one all heads are dense
  return a.sparse ? *a.sparse : problem::SparseMask{.types = std::vector<std::int32_t>(a.heads)};
}
template <class Launch>
Mask device_mask(const Launch& l) {
  const problem::SparseMask mask = mask_of(l.shape);
  const auto given = [&](const char* name) { return l.shape.sparse ? l.arrays.template get<int>(name) : nullptr; };
  return {given("head_type"),
          given("streaming"),
          given("block_mask"),
          mask.batches,
          std::countr_zero(static_cast<unsigned>(mask.block_q)),
          std::countr_zero(static_cast<unsigned>(mask.block_k)),
          problem::query_blocks(mask, l.shape),
          problem::words_of_row(mask, l.shape)};
}

constexpr int heads_together = 8;  // at most 32: place_of has one for each lane
inline int parts_of(const PlanSizes& sizes) { return 2 * sizes.most_split_rows(); }  // parts of split rows, at most

inline void order_heads(PlanSizes& sizes, int heads) {
  sizes.heads_of_place = ceil_div(heads, most_places);
  sizes.together = sizes.heads_of_place > 1 ? 0 : heads_together;
}
inline PlanSizes query_sizes(const problem::Attention& a, int tile_queries, int tile_keys, bool split_long_rows) {
  PlanSizes sizes{};
  sizes.rows_of_head = ceil_div(a.seq_q, tile_queries);
  sizes.rows = a.batch * a.heads * sizes.rows_of_head;
  sizes.tile_queries = tile_queries;
  sizes.tile_keys = tile_keys;
  sizes.items = sizes.rows + (split_long_rows ? sizes.most_split_rows() : 0);
  sizes.split_long_rows = split_long_rows;
  order_heads(sizes, a.batch * a.heads);
  return sizes;
}
inline PlanSizes key_sizes(const problem::Attention& a, int tile_queries, int tile_keys) {
  PlanSizes sizes = query_sizes(a, tile_queries, tile_keys, true);
  sizes.rows_of_head = ceil_div(a.seq_k, tile_keys);
  sizes.rows = a.batch * a.kv_heads * sizes.rows_of_head;
  sizes.items = sizes.rows + sizes.most_split_rows();
  sizes.by_keys = true;
  order_heads(sizes, a.batch * a.kv_heads);
  return sizes;
}

// Lists have room for the tiles that the mask may leave, not for all.
inline run::Arrays plan_arrays(const PlanSizes& sizes, const problem::Attention& a) {
  const auto live_tiles = static_cast<std::int64_t>(most_live_tiles(a, sizes.tile_queries, sizes.tile_keys));
  const auto integers = [](std::string name, std::vector<std::int64_t> shape) {
    return run::of_plan(std::move(name), run::Element::int32(), std::move(shape));
  };
  run::Arrays arrays = {integers("tiles", {std::max<std::int64_t>(live_tiles, 1)}),
                        integers("lists", {sizes.rows, 4}),
                        integers("counts", {sizes.rows}),
                        integers("ranks", {sizes.rows, 4}),
                        integers("work", {sizes.items, 8}),
                        integers("orders", {sizes.places(), 4})};
  if (sizes.split_long_rows) arrays.push_back(integers("split_rows", {sizes.most_split_rows()}));
  return arrays;
}

// The whole plan, or its lists alone.
template <template <class> class Row, class Launch, class Shape>
void launch_plan(const Launch& l, const PlanSizes& sizes, const Mask& mask, const Shape& shape, bool with_order = true) {
  TileList* lists = l.arrays.template get<TileList>("lists");
  Rank* ranks = l.arrays.template get<Rank>("ranks");
  HeadOrder* orders = l.arrays.template get<HeadOrder>("orders");
  int *tiles = l.arrays.template get<int>("tiles"), *counts = l.arrays.template get<int>("counts"),
      *split_rows = sizes.split_long_rows ? l.arrays.template get<int>("split_rows") : nullptr;
  const auto by_warps = static_cast<unsigned>(ceil_div(sizes.rows, count_warps));
  runtime::launch(count_tiles<Row, Shape>, {.grid = by_warps, .block = 32 * count_warps}, shape, mask, sizes, lists, counts);
  runtime::launch(add_up<add_threads>, {.grid = 1, .block = add_threads, .shared_bytes = sizeof(AddUpSmem)}, sizes.by_place(),
                  sizes.places(), counts, orders, ranks, split_rows);
  WorkItem* work = with_order ? l.arrays.template get<WorkItem>("work") : nullptr;
  runtime::launch(write_lists<Row, Shape>, {.grid = by_warps, .block = 32 * count_warps}, shape, mask, sizes, sizes.places(),
                  lists, counts, ranks, orders, tiles, work);
}

// The plan of a variant that takes packed sequences. Which tiles are live does not depend on dropout.
template <template <class> class Row, class Launch>
void make_plan(const Launch& l, const PlanSizes& sizes) {
  run::launch_find_sequences(l);
  run::with_sequences(l, [&](const auto& shape) { launch_plan<Row>(l, sizes, device_mask(l), shape); });
}

}  // namespace block_sparse
