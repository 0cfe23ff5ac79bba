// Step 07: the rungs of the forward pass.
#include "steps/07_block_sparse/01_test_per_block.cuh"
#include "steps/07_block_sparse/02_list.cuh"
#include "steps/07_block_sparse/03_two_loops.cuh"
#include "steps/07_block_sparse/04_prefetch.cuh"
#include "steps/07_block_sparse/05_ordered.cuh"
#include "steps/07_block_sparse/06_tokens.cuh"
#include "steps/07_block_sparse/launches.h"

namespace block_sparse {
namespace {

// Rungs: tiles of 128 queries, without packed sequences and dropout.
template <class T, int dim>
struct TestPerBlock {
  static constexpr auto kernel = sparse_test_per_block<T, Tile128<dim, AttentionShape>>;
};
template <class T, int dim>
struct List {
  static constexpr auto kernel = sparse_list<T, Tile128<dim, AttentionShape>>;
};
template <class T, int dim>
struct TwoLoops {
  static constexpr auto kernel = sparse_two_loops<T, Tile128<dim, AttentionShape>>;
};
template <class T, int dim>
struct Prefetch {
  static constexpr auto kernel = sparse_prefetch<T, Tile128<dim, AttentionShape>>;
};
template <class T, int dim>
struct Ordered {
  static constexpr auto kernel = sparse_ordered<T, Tile128<dim, AttentionShape>>;
};
template <class T, int dim>
struct ByToken {
  static constexpr auto kernel = sparse_tokens<T, Tile128<dim, AttentionShape>>;
};

template <template <class, int> class Rung, Needs needs>
void launch_rung(const AttentionLaunch& l) {
  const PlanSizes sizes = sizes_of(l.shape, false);
  const Mask mask = device_mask(l);
  const AttentionShape shape = l.device_shape();
  with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
    with_at_least<64, 128>(l.shape.dim, [&](auto dim) {
      constexpr std::size_t shared_bytes = sizeof(SparseSmem<T, Tile128<dim, AttentionShape>>);
      const dim3 tiles(static_cast<unsigned>(sizes.rows_of_head), static_cast<unsigned>(l.shape.heads),
                       static_cast<unsigned>(l.shape.batch));
      const runtime::LaunchConfig config{.grid = needs >= Needs::order ? dim3(static_cast<unsigned>(sizes.items)) : tiles,
                                         .block = tile_threads,
                                         .shared_bytes = shared_bytes};
      const auto launch = [&](const auto&... given) {
        runtime::launch(Rung<T, dim>::kernel, config, shape, given..., l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(),
                        l.o.as<T>(), l.lse);
      };
      if constexpr (needs == Needs::mask) {
        launch(mask);
      } else if constexpr (needs == Needs::order_and_mask) {
        launch(mask, plan_of(l));
      } else {
        launch(plan_of(l));
      }
    });
  });
}

}  // namespace

void plan_lists(const AttentionLaunch& l) {
  launch_plan<QueryRow>(l, sizes_of(l.shape, false), device_mask(l), l.device_shape(), false);
}
void plan_order(const AttentionLaunch& l) {
  launch_plan<QueryRow>(l, sizes_of(l.shape, false), device_mask(l), l.device_shape());
}

void launch_test_per_block(const AttentionLaunch& l) { launch_rung<TestPerBlock, Needs::mask>(l); }
void launch_list(const AttentionLaunch& l) { launch_rung<List, Needs::lists>(l); }
void launch_two_loops(const AttentionLaunch& l) { launch_rung<TwoLoops, Needs::lists>(l); }
void launch_prefetch(const AttentionLaunch& l) { launch_rung<Prefetch, Needs::lists>(l); }
void launch_ordered(const AttentionLaunch& l) { launch_rung<Ordered, Needs::order>(l); }
void launch_tokens(const AttentionLaunch& l) { launch_rung<ByToken, Needs::order_and_mask>(l); }

}  // namespace block_sparse
