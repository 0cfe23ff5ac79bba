// Step 06, host side: the launches of the tensor-core rungs, and the file that has each.
#pragma once

#include "common/device/dispatch.h"
#include "common/device/dropout.h"
#include "common/launches/backward.h"
#include "common/run/family/any_step.h"
#include "common/run/family/packed.h"
#include "steps/06_backward/05_fragment_order.cuh"

namespace backward {

using device::with_16_bit_type;
using device::with_at_least;
using device::with_type;

// A rung whose blocks have tiles of keys, for one type and one head dim: shared memory, keys and threads of a block. A rung
// adds its kernel, and whether its sums of dQ lie by lane.
template <class S, int block_keys, int block_threads>
struct Block {
  using Smem = S;
  static constexpr int keys = block_keys, threads = block_threads;
};

void repair(const run::BackwardLaunch& l, const device::AnyShape& shape);  // repair.cu

// The kernel of a rung for one type and one head dim: a block for each tile of keys.
template <class T, class K, class Kernel, class Shape>
void launch_keys(const run::BackwardLaunch& l, const Kernel& kernel, const Shape& shape, float* dq_sums) {
  runtime::launch(kernel,
                  {.grid = grid_of(ceil_div(l.shape.seq_k, K::keys), l.shape.kv_heads, l.shape.batch),
                   .block = K::threads,
                   .shared_bytes = sizeof(typename K::Smem)},
                  shape, l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.d_o.as<const T>(), statistics_of(l),
                  dq_sums, l.dk.as<T>(), l.dv.as<T>());
}

template <template <class, int> class Rung, int... dims>
void launch_rung(const run::BackwardLaunch& l) {
  run::with_device_shape(l, [&](const auto& shape) {
    with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
      float* dq_sums = l.arrays.get<float>("dq_sums");
      launch_prepare_chunks<T>(l, dq_sums);
      with_at_least<dims...>(l.shape.dim, [&](auto dim) {
        using K = Rung<T, dim>;
        run::with_kernel<K>(shape, [&](const auto& kernel) {
          launch_keys<T, K>(l, kernel, shape, dq_sums);
          if constexpr (K::by_lane) {
            launch_convert_blocks<T>(l);
          } else {
            launch_convert<T>(l);
          }
          repair(l, device::any_shape(shape));
        });
      });
    });
  });
}
template <template <class, int> class Rung, int... dims>
std::size_t rung_bytes(const problem::Backward& a) {
  return with_at_least<dims...>(a.dim, [](auto dim) { return sizeof(typename Rung<__half, dim>::Smem); });
}

// A rung as a variant needs it.
struct Rung {
  void (*launch)(const run::BackwardLaunch&);
  std::size_t (*shared_bytes)(const problem::Backward&);
  const char* convert;  // the kernel that makes dQ of its sums
};
template <template <class, int> class R, int first, int... more>
Rung rung_of() {
  return {launch_rung<R, first, more...>, rung_bytes<R, first, more...>,
          R<__half, first>::by_lane ? "convert_blocks" : "convert_dq"};
}

// What the tensor-core rungs take: rows at multiples of 16 bytes, and head dims of tiles.
template <bool Const>
bool has_aligned_rows(const device::AnyHeads<Const>& x) {  // of elements of 16 bits
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && (x.batch_stride | x.head_stride | x.row_stride) % chunk == 0;
}
inline bool has_aligned_rows(const run::BackwardLaunch& l) {
  return has_aligned_rows(l.q) && has_aligned_rows(l.k) && has_aligned_rows(l.v) && has_aligned_rows(l.o) &&
         has_aligned_rows(l.d_o) && has_aligned_rows(l.dq) && has_aligned_rows(l.dk) && has_aligned_rows(l.dv);
}

// Each file has some, so that none takes long to compile.
Rung recompute();  // rungs.cu
Rung two_kernels();
Rung one_kernel();
Rung pipeline_80();  // tuned_80.cu
Rung transposed_80();
Rung any_dim_80();
// Those whose instructions need compute capability 9.0.
Rung fragment_order();  // rungs.sm_90.cu
Rung transposed();
Rung pipeline();
Rung keys_32();
Rung column_split();  // split.sm_90.cu
Rung roles();
Rung tuned_64();  // tuned.sm_90.cu
Rung tuned_128();
Rung shared_64();  // the same two, with query heads that share keys split over blocks where that fills the device
Rung shared_128();
Rung deterministic();
Rung any_dim();  // any_dim.sm_90.cu

}  // namespace backward
