// Step 07: the forward pass for every option.
#include "common/run/family/packed.h"
#include "steps/07_block_sparse/07_balanced.cuh"
#include "steps/07_block_sparse/launches.h"

namespace block_sparse {
namespace {

template <template <int, class> class Tile>
void launch_tiled(const AttentionLaunch& l) {
  const Attention& a = l.shape;
  const PlanSizes sizes = sizes_of(a, true);
  const Mask mask = device_mask(l);
  const Parts parts{l.arrays.get<float>("part_o"), l.arrays.get<SoftmaxState>("part_states")};
  run::with_found_shape(l, [&]<class Shape>(const Shape& shape) {
    with_16_bit_type(a.dtype, [&]<class T>(T) {
      with_at_least<32, 64, 96, 128>(a.dim, [&](auto dim) {
        using OneTile = Tile<dim, Shape>;
        runtime::launch(
            sparse_balanced<T, OneTile>,
            {.grid = static_cast<unsigned>(sizes.items), .block = tile_threads, .shared_bytes = sizeof(SparseSmem<T, OneTile>)},
            shape, mask, plan_of(l), l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.o.as<T>(), l.lse, parts);
        runtime::launch(merge_parts<T, Tile<dim, AttentionShape>>,
                        {.grid = dim3(static_cast<unsigned>(sizes.most_split_rows()), OneTile::rows / merge_warps),
                         .block = 32 * merge_warps},
                        l.device_shape(), sizes, l.arrays.get<int>("split_rows"), l.arrays.get<Rank>("ranks"), parts,
                        l.o.as<T>(), l.lse);
      });
    });
  });
}

}  // namespace

void plan_balanced(const AttentionLaunch& l) { make_plan<QueryRow>(l, sizes_of(l.shape, true)); }
void launch_balanced(const AttentionLaunch& l) {
  if (tile_queries(l.shape) == 64) return launch_tiled<Tile64>(l);
  launch_tiled<Tile128>(l);
}

}  // namespace block_sparse
