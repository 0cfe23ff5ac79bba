// Step 06, host side: the scratch memory and the launches of `any_dim`, for both compute capabilities.
#pragma once

#include "steps/06_backward/14_any_dim.cuh"
#include "steps/06_backward/costs.h"
#include "steps/06_backward/launches.h"

namespace backward {

// Columns of a row in shared memory, and of dQ's sums. Without `vector`, for compute capability 8.0, they must fit 99 KB.
template <bool vector, class F>
auto with_padded(int dim, F f) {
  if constexpr (vector) {
    return with_at_least<32, 64, 96, 128, 192, 256>(dim, f);
  } else {
    return with_at_least<32, 64, 96, 128, 192>(dim, f);
  }
}

inline run::Arrays any_dim_arrays(const problem::Backward& a) {
  const int padded = with_padded<true>(a.dim, [](auto columns) { return columns.value; });
  return statistics_arrays(a) +
         run::Arrays{run::scratch("dq_sums", problem::Dtype::fp32, {a.batch, a.heads, padded_rows(a), padded})};
}

template <class T, int padded, bool vector>
struct AnyDimRung : AnyDim<T, padded> {
  static constexpr auto kernel = backward_any_dim<T, padded, vector>;
};
template <class T, int padded>
struct AnyDimRung<T, padded, true> : AnyDim<T, padded> {
  static constexpr auto kernel = backward_any_dim<T, padded, true>;
  static constexpr auto packed = backward_any_dim<T, padded, true, device::PackedShape>;
  static constexpr auto dropped = backward_any_dim<T, padded, true, device::Dropped<AttentionShape>>;
};

template <bool vector>
void launch_any_dim(const run::BackwardLaunch& l) {
  run::with_device_shape(l, [&](const auto& shape) {
    with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
      with_padded<vector>(l.shape.dim, [&](auto padded) {
        using K = AnyDimRung<T, padded, vector>;
        const problem::Attention& a = l.shape;
        float* dq_sums = l.arrays.get<float>("dq_sums");
        const std::int64_t sums = std::int64_t{a.batch} * a.heads * padded_rows(a) * padded;
        launch_prepare<T>(l, nullptr);
        runtime::launch(zero_sums<convert_threads>,
                        {.grid = grid_of(ceil_div<std::int64_t>(sums, 4 * convert_threads), 1, 1), .block = convert_threads},
                        dq_sums, sums);
        run::with_kernel<K>(shape, [&](const auto& kernel) {
          runtime::launch(kernel,
                          {.grid = grid_of(ceil_div(a.seq_k, tile_keys) * K::parts, a.kv_heads, a.batch),
                           .block = tile_threads,
                           .shared_bytes = sizeof(typename K::Smem)},
                          shape, l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.d_o.as<const T>(), statistics_of(l),
                          dq_sums, l.dk.as<T>(), l.dv.as<T>());
          runtime::launch(
              convert_padded<T>,
              {.grid = grid_of(ceil_div<std::int64_t>(std::int64_t{a.seq_q} * a.dim, convert_threads), a.heads, a.batch),
               .block = convert_threads},
              l.device_shape(), dq_sums, statistics_of(l), static_cast<int>(padded), l.dq.as<T>());
          repair(l, device::any_shape(shape));
        });
      });
    });
  });
}
template <bool vector>
std::size_t any_dim_bytes(const problem::Backward& a) {
  return with_padded<vector>(a.dim, [](auto padded) { return sizeof(typename AnyDim<__half, padded>::Smem); });
}

}  // namespace backward
