// Step 07, host side: the backward pass. Its kernels need compute capability 9.0: red of 16 bytes and stmatrix.
#include "common/device/dispatch.h"
#include "common/launches/backward.h"
#include "common/run/family/packed.h"
#include "steps/07_block_sparse/08_backward_64.cuh"
#include "steps/07_block_sparse/09_backward_128.cuh"
#include "steps/07_block_sparse/backward.h"
#include "steps/07_block_sparse/host.h"

namespace block_sparse {
namespace {

template <class T, int dim, class Shape>
struct Backward64 {
  static constexpr auto kernel = sparse_backward_64<T, dim, Shape>;
  static constexpr std::size_t shared_bytes = sizeof(SparseKeysSmem<Keys32Smem<T, dim>>);
  static constexpr int threads = backward::tile_threads;
};
template <class T, int dim, class Shape>
struct Backward128 {
  static constexpr auto kernel = sparse_backward_128<T, dim, Shape>;
  static constexpr std::size_t shared_bytes = sizeof(SparseKeysSmem<RolesSmem<T, dim>>);
  static constexpr int threads = split_threads;
};

PlanSizes sizes_of(const problem::Attention& a) { return key_sizes(a, backward::tile_rows, wide_keys); }

template <template <class, int, class> class Kernel, int... dims>
void launch_dims(const run::BackwardLaunch& l) {
  const PlanSizes sizes = sizes_of(l.shape);
  const Mask mask = device_mask(l);
  const KeyParts parts{l.arrays.get<float>("part_dk"), l.arrays.get<float>("part_dv")};
  run::with_found_shape(l, [&]<class Shape>(const Shape& shape) {
    device::with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
      float* dq_sums = l.arrays.get<float>("dq_sums");
      launch_prepare_chunks<T>(l, dq_sums);
      device::with_at_least<dims...>(l.shape.dim, [&](auto dim) {
        using K = Kernel<T, dim, Shape>;
        runtime::launch(
            K::kernel, {.grid = static_cast<unsigned>(sizes.items), .block = K::threads, .shared_bytes = K::shared_bytes},
            shape, mask,
            KeyPlan{l.arrays.get<int>("tiles"), l.arrays.get<WorkItem>("work"), ceil_div(l.shape.seq_q, backward::tile_rows)},
            l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.d_o.as<const T>(), statistics_of(l), dq_sums,
            l.dk.as<T>(), l.dv.as<T>(), parts);
      });
      runtime::launch(merge_columns<T>,
                      {.grid = dim3(static_cast<unsigned>(sizes.most_split_rows()), wide_keys / merge_columns_keys),
                       .block = merge_columns_threads},
                      l.device_shape(), sizes, l.arrays.get<int>("split_rows"), l.arrays.get<Rank>("ranks"), parts,
                      statistics_of(l), l.dk.as<T>(), l.dv.as<T>());
      launch_convert_blocks<T>(l);
      repair(l, device::any_shape(shape));
    });
  });
}

}  // namespace

void plan_backward(const run::BackwardLaunch& l) { make_plan<KeyRow>(l, sizes_of(l.shape)); }
void launch_backward(const run::BackwardLaunch& l) {
  if (l.shape.dim <= 64) return launch_dims<Backward64, 32, 64>(l);
  launch_dims<Backward128, 96, 128>(l);
}
run::Arrays backward_arrays(const problem::Backward& a) {
  const PlanSizes sizes = sizes_of(a);
  const std::vector<std::int64_t> parts = {parts_of(sizes), wide_keys, a.dim};
  return backward::sums_arrays(a) + plan_arrays(sizes, a) +
         run::Arrays{run::scratch("part_dk", problem::Dtype::fp32, parts),
                     run::scratch("part_dv", problem::Dtype::fp32, parts)};
}
std::size_t backward_bytes(const problem::Backward& a) {
  if (a.dim <= 64)
    return device::with_at_least<32, 64>(a.dim, [](auto dim) { return sizeof(SparseKeysSmem<Keys32Smem<__half, dim>>); });
  return device::with_at_least<96, 128>(a.dim, [](auto dim) { return sizeof(SparseKeysSmem<RolesSmem<__half, dim>>); });
}
std::string too_large_backward(const problem::Attention& a) {
  const std::string too_large = backward::too_large(a);
  return too_large.empty() ? too_large_for_plan(a, backward::tile_rows, wide_keys, true) : too_large;
}

}  // namespace block_sparse
