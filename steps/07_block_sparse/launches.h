// Step 07, host side: the launches of its forward variants. Each file of kernels has some of them, so that none takes long to
// compile.
#pragma once

#include "common/device/dispatch.h"
#include "steps/07_block_sparse/block.cuh"
#include "steps/07_block_sparse/host.h"

namespace block_sparse {

using device::with_16_bit_type;
using device::with_at_least;
using problem::Attention;
using run::AttentionLaunch;

// Blocks of 64 queries have tiles of 64: a warp has 16 rows.
template <int dim, class S>
struct Tile128 : TunedTile<dim> {
  using Shape = S;
};
template <int dim, class S>
struct Tile64 : TunedTile<dim> {
  using Shape = S;
  static constexpr int slices = 1;
  static constexpr int rows = 64;
};

inline int tile_queries(const Attention& a) { return a.sparse && a.sparse->block_q % 128 != 0 ? 64 : 128; }
constexpr int keys_of_tile = 64;

inline PlanSizes sizes_of(const Attention& a, bool split_long_rows) {
  return query_sizes(a, tile_queries(a), keys_of_tile, split_long_rows);
}

inline Plan plan_of(const AttentionLaunch& l) {
  return {l.arrays.get<int>("tiles"), l.arrays.get<TileList>("lists"), l.arrays.get<WorkItem>("work")};
}

enum class Needs { mask, lists, order, order_and_mask };  // what a rung's kernel is given

void plan_lists(const AttentionLaunch& l);  // rungs.cu
void plan_order(const AttentionLaunch& l);
void launch_test_per_block(const AttentionLaunch& l);
void launch_list(const AttentionLaunch& l);
void launch_two_loops(const AttentionLaunch& l);
void launch_prefetch(const AttentionLaunch& l);
void launch_ordered(const AttentionLaunch& l);
void launch_tokens(const AttentionLaunch& l);

void plan_balanced(const AttentionLaunch& l);  // balanced.cu
void launch_balanced(const AttentionLaunch& l);

inline std::size_t shared_bytes(const Attention& a) {  // of each of them, at most
  return with_at_least<32, 64, 96, 128>(a.dim,
                                        [](auto dim) { return sizeof(SparseSmem<__half, Tile128<dim, AttentionShape>>); });
}

}  // namespace block_sparse
