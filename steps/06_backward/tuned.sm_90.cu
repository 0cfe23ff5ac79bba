// Step 06: the fastest kernels, and with them `deterministic`. Their instructions need compute capability 9.0.
#include <algorithm>

#include "steps/06_backward/09_tuned_64.cuh"
#include "steps/06_backward/12_tuned_128.cuh"
#include "steps/06_backward/13_deterministic.cuh"
#include "steps/06_backward/launches.h"
#include "steps/06_backward/shared_heads.h"

namespace backward {
namespace {

using DroppedShape = device::Dropped<AttentionShape>;

template <class T, int dim>
struct Tuned64 : Block<Keys32Smem<T, dim>, wide_keys, tile_threads> {
  static constexpr auto kernel = backward_tuned_64<T, dim>;
  static constexpr auto packed = backward_tuned_64<T, dim, true, device::PackedShape>;
  static constexpr auto dropped = backward_tuned_64<T, dim, true, DroppedShape>;
  static constexpr bool by_lane = true;
};
template <class T, int dim>
struct Tuned128 : Block<RolesSmem<T, dim>, split_keys, split_threads> {
  static constexpr auto kernel = backward_tuned_128<T, dim>;
  static constexpr auto packed = backward_tuned_128<T, dim, true, device::PackedShape>;
  static constexpr auto dropped = backward_tuned_128<T, dim, true, DroppedShape>;
  static constexpr bool by_lane = true;
};

// The tuned kernel of a head dim, without dQ.
template <class T, int dim>
struct WithoutDq : Block<Keys32Smem<T, dim>, wide_keys, tile_threads> {
  static constexpr auto kernel = backward_tuned_64<T, dim, false>;
};
template <class T, int dim>
requires(dim > 64) struct WithoutDq<T, dim> : Block<RolesSmem<T, dim>, split_keys, split_threads> {
  static constexpr auto kernel = backward_tuned_128<T, dim, false>;
};

void launch_deterministic(const run::BackwardLaunch& l) {
  const std::optional<run::BackwardLaunch> of_parts = in_parts(l);
  const run::BackwardLaunch& for_keys = of_parts ? *of_parts : l;
  with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
    launch_prepare_chunks<T>(for_keys, nullptr);
    with_at_least<32, 64, 96, 128>(l.shape.dim, [&](auto dim) {
      using Keys = WithoutDq<T, dim>;
      launch_keys<T, Keys>(for_keys, Keys::kernel, for_keys.device_shape(), nullptr);
      runtime::launch(gradient_of_queries_32<T, dim>,
                      {.grid = grid_of(ceil_div(l.shape.seq_q, query_threads<dim>), l.shape.heads, l.shape.batch),
                       .block = query_threads<dim>,
                       .shared_bytes = sizeof(DeterministicSmem<T, dim>)},
                      l.device_shape(), l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.d_o.as<const T>(),
                      statistics_of(l), l.dq.as<T>());
    });
    if (of_parts) launch_add_parts<T>(l);
  });
  repair(l, device::any_shape(l.device_shape()));
}
std::size_t deterministic_bytes(const problem::Backward& a) {
  return with_at_least<32, 64, 96, 128>(a.dim, [](auto dim) {
    return std::max(sizeof(typename WithoutDq<__half, dim>::Smem), sizeof(DeterministicSmem<__half, dim>));
  });
}

}  // namespace

Rung tuned_64() { return rung_of<Tuned64, 32, 64>(); }
Rung tuned_128() { return rung_of<Tuned128, 96, 128>(); }
Rung shared_64() { return shared_rung_of<Tuned64, 32, 64>(); }
Rung shared_128() { return shared_rung_of<Tuned128, 96, 128>(); }
Rung deterministic() { return {launch_deterministic, deterministic_bytes, ""}; }

}  // namespace backward
