// Step 05, host side: the launches of its variants. Each file of kernels has some of them, so that none takes long to compile,
// and a change of one kernel compiles one of them again.
#pragma once

#include "common/device/dispatch.h"
#include "common/device/flash_v2/warp_tile.cuh"
#include "common/run/family/packed.h"
#include "common/run/family/score_options.h"
#include "steps/05_flash_v2/host.h"

namespace flash_v2 {

using device::with_16_bit_type;
using device::with_at_least;
using device::with_type;
using problem::Attention;
using run::AttentionLaunch;

// Of a tensor-core kernel, for one type and one head dim: the shared memory of its block, and the block's queries. A rung of
// the ladder adds its kernel.
template <class S, int queries = tile_rows>
struct Block {
  using Smem = S;
  static constexpr int rows = queries;
};

template <template <class, int> class Tiled, int... dims>
void launch_tiled(const AttentionLaunch& l) {
  with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
    with_at_least<dims...>(l.shape.dim, [&](auto dim) {
      using K = Tiled<T, dim>;
      const auto launch = [&](const auto& shape) {
        run::with_kernel<K>(shape, [&](const auto& kernel) {
          launch_tiles<T>(l, shape, kernel, K::rows, tile_threads, sizeof(typename K::Smem));
        });
      };
      if (l.shape.has_score_options()) return launch(run::scored_shape<T>(l));
      run::with_device_shape(l, launch);
    });
  });
}
template <template <class, int> class Tiled, int... dims>
std::size_t tiled_bytes(const Attention& a) {
  using H = __half;  // a __nv_bfloat16 is as large
  return with_at_least<dims...>(a.dim, [](auto dim) { return sizeof(typename Tiled<H, dim>::Smem); });
}

// A rung as a variant needs it.
struct Rung {
  void (*launch)(const AttentionLaunch&);
  std::size_t (*shared_bytes)(const Attention&);
};
template <template <class, int> class Tiled, int... dims>
Rung rung_of() {
  return {launch_tiled<Tiled, dims...>, tiled_bytes<Tiled, dims...>};
}

inline bool is_tuned_dim(int dim) { return dim == 32 || dim == 64 || dim == 96 || dim == 128 || dim == 256; }

Rung scalar_rung();  // scalar.cu

Rung tensor_cores_rung();  // rungs.cu
Rung ldmatrix_rung();
Rung pipeline_rung();
Rung edge_masks_rung();
Rung folded_scale_rung();
Rung registers_rung();
Rung overlap_rung();
Rung addresses_rung();
Rung rows_32_rung();
Rung lazy_rescale_rung();

Rung tuned_rung();    // tuned.cu
Rung any_dim_rung();  // any_dim.cu

}  // namespace flash_v2
