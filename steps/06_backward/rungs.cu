// Step 06: the first rungs, whose kernels run on every device.
#include "steps/06_backward/02_recompute.cuh"
#include "steps/06_backward/04_one_kernel.cuh"
#include "steps/06_backward/gradient_of_queries.cuh"
#include "steps/06_backward/launches.h"

namespace backward {
namespace {

using problem::Backward;
using run::BackwardLaunch;

// ---- recompute ----

template <class F>
auto with_columns(int dim, F f) {  // 32 columns for each lane of a warp
  return with_at_least<2, 4, 8>(ceil_div(dim, 32), f);
}

void launch_recompute(const BackwardLaunch& l) {
  run::with_device_shape(l, [&]<class Shape>(const Shape& shape) {
    with_type(l.shape.dtype, [&]<class T>(T) {
      float* dq_sums = l.arrays.get<float>("dq_sums");
      launch_prepare<T>(l, dq_sums);
      with_columns(l.shape.dim, [&](auto columns) {
        runtime::launch(backward_recompute<T, columns, Shape>,
                        {.grid = grid_of(ceil_div(l.shape.seq_k, recompute_keys), l.shape.kv_heads, l.shape.batch),
                         .block = 32 * recompute_warps,
                         .shared_bytes = sizeof(RecomputeSmem<columns>)},
                        shape, l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.d_o.as<const T>(), statistics_of(l),
                        dq_sums, l.dk.as<T>(), l.dv.as<T>());
      });
      launch_convert<T>(l);
    });
  });
}
std::size_t recompute_bytes(const Backward& a) {
  return with_columns(a.dim, [](auto columns) { return sizeof(RecomputeSmem<columns>); });
}

// ---- two_kernels, one_kernel ----

void launch_two_kernels(const BackwardLaunch& l) {
  with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
    launch_prepare_chunks<T>(l, nullptr);
    with_at_least<32, 64, 96, 128>(l.shape.dim, [&](auto dim) {
      const auto& a = l.shape;
      runtime::launch(gradient_of_keys<T, dim>,
                      {.grid = grid_of(ceil_div(a.seq_k, tile_keys), a.kv_heads, a.batch),
                       .block = tile_threads,
                       .shared_bytes = sizeof(KeysSmem<T, dim>)},
                      l.device_shape(), l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.d_o.as<const T>(),
                      statistics_of(l), l.dk.as<T>(), l.dv.as<T>());
      runtime::launch(gradient_of_queries<T, dim>,
                      {.grid = grid_of(ceil_div(a.seq_q, tile_rows), a.heads, a.batch),
                       .block = tile_threads,
                       .shared_bytes = sizeof(QueriesSmem<T, dim>)},
                      l.device_shape(), l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.d_o.as<const T>(),
                      statistics_of(l), l.dq.as<T>());
    });
    repair(l, device::any_shape(l.device_shape()));
  });
}

std::size_t keys_bytes(const Backward& a) {
  return with_at_least<32, 64, 96, 128>(a.dim, [](auto dim) { return sizeof(KeysSmem<__half, dim>); });
}

template <class T, int dim>
struct OneKernel : Block<KeysSmem<T, dim>, tile_keys, tile_threads> {
  static constexpr auto kernel = backward_one_kernel<T, dim, SumsByRow>;
  static constexpr bool by_lane = false;
};

}  // namespace

Rung recompute() { return {launch_recompute, recompute_bytes, "convert_dq"}; }
Rung two_kernels() { return {launch_two_kernels, keys_bytes, ""}; }
Rung one_kernel() { return rung_of<OneKernel, 32, 64, 96, 128>(); }

}  // namespace backward
