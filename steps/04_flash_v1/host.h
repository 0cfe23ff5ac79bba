// 04_flash_v1, host side: the state of the rows, and the three launches of a variant. Shared by step.cu, the exercises and the
// tests.
#pragma once

#include "common/run/family/attention.h"
#include "common/runtime/launch.h"
#include "steps/04_flash_v1/05_tensor_cores.cuh"

namespace flash_v1 {

using device::ceil_div;
using problem::Attention;
using problem::KernelCost;
using run::AttentionLaunch;

inline std::int64_t row_count(const Attention& a) { return std::int64_t{a.batch} * a.heads * a.seq_q; }

inline run::Arrays state_arrays(const Attention& a) {
  using problem::Dtype;
  return {run::scratch("O state", Dtype::fp32, {a.batch, a.heads, a.seq_q, a.dim}),
          run::scratch("m and l", Dtype::fp32, {a.batch, a.heads, a.seq_q, 2})};
}

inline RowState state_of(const run::DeviceArrays& arrays) {
  return {arrays.get<float>("O state"), arrays.get<float2>("m and l")};
}

inline dim3 element_grid(const Attention& a) {
  return {static_cast<unsigned>(ceil_div<std::int64_t>(row_count(a) * a.dim, element_threads))};
}

// ---- what is predicted ----

// The bytes that Algorithm 1 asks of memory, by the loops: K and V once; then for each block of keys, of each query that is
// looked at, Q, and O, l and m both ways. Without a mask that is all queries, ⌈seq_k / Bc⌉ times.
inline KernelCost algorithm_cost(const Attention& a, BlockSizes sizes, std::string kernel) {
  const double heads = static_cast<double>(a.batch) * a.heads;
  const double element = static_cast<double>(problem::bytes(a.dtype));
  const device::AttentionShape shape = run::device_shape(a);
  double visits = 0;  // of queries
  for (int key = 0; key < a.seq_k; key += sizes.keys) {
    visits += std::max(0, a.seq_q - first_row_block(shape, key, sizes.rows));
  }
  const double state = sizeof(float) * (a.dim + 2.0);  // of one query
  return {std::move(kernel), heads * 4 * a.dim * static_cast<double>(a.dense_pairs()),
          heads * (2.0 * a.seq_k * a.dim * element + visits * (a.dim * element + state)), heads * visits * state};
}

inline std::vector<KernelCost> cost_of(const Attention& a, BlockSizes sizes, std::string kernel) {
  const auto rows = static_cast<double>(row_count(a));
  const double state = rows * sizeof(float) * (a.dim + 2);
  const double o = rows * a.dim * static_cast<double>(problem::bytes(a.dtype));
  return {
      {"initialise", 0, 0, state}, algorithm_cost(a, sizes, std::move(kernel)), {"finish", 0, state, o + sizeof(float) * rows}};
}

// ---- launches ----

// What a row knows before it has seen a key.
inline void launch_initialise(const AttentionLaunch& l) {
  runtime::launch(initialise<element_threads>, {.grid = element_grid(l.shape), .block = element_threads}, row_count(l.shape),
                  l.shape.dim, state_of(l.arrays));
}

// Algorithm 1 over the keys of l, by a kernel with one block for each head: the rows' state goes on from where it is.
template <class T>
void launch_keys(const AttentionLaunch& l,
                 void (*kernel)(AttentionShape, Heads<const T>, Heads<const T>, Heads<const T>, RowState), dim3 threads,
                 std::size_t shared_bytes) {
  const dim3 grid(static_cast<unsigned>(l.shape.heads), static_cast<unsigned>(l.shape.batch));
  runtime::launch(kernel, {.grid = grid, .block = threads, .shared_bytes = shared_bytes}, l.device_shape(), l.q.as<const T>(),
                  l.k.as<const T>(), l.v.as<const T>(), state_of(l.arrays));
}

template <class T>
void launch_finish(const AttentionLaunch& l) {
  runtime::launch(finish<T, element_threads>, {.grid = element_grid(l.shape), .block = element_threads}, l.device_shape(),
                  state_of(l.arrays), l.o.as<T>(), l.lse);
}

// Calls f(T{}) with the element type of the problem.
template <class F>
void with_type(problem::Dtype dtype, F f) {
  switch (dtype) {
    case problem::Dtype::fp32:
      return f(float{});
    case problem::Dtype::fp16:
      return f(__half{});
    case problem::Dtype::bf16:
      return f(__nv_bfloat16{});
  }
}

// ---- the scalar variants ----

// Calls f(Budget{}) with the block sizes for a head dim.
template <int smem_bytes, class F>
auto with_budget(int dim, F f) {
  if (dim <= 32) return f(Budget<smem_bytes, 32>{});
  if (dim <= 64) return f(Budget<smem_bytes, 64>{});
  if (dim <= 128) return f(Budget<smem_bytes, 128>{});
  return f(Budget<smem_bytes, 256>{});
}

template <int smem_bytes, class Update>
void launch_scalar_keys(const AttentionLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) {
    with_budget<smem_bytes>(
        l.shape.dim, [&]<class B>(B) { launch_keys<T>(l, algorithm_1<T, B, Update>, scalar_threads, sizeof(ScalarSmem<B>)); });
  });
}

template <int smem_bytes, class Update>
void launch_scalar(const AttentionLaunch& l) {
  launch_initialise(l);
  launch_scalar_keys<smem_bytes, Update>(l);
  with_type(l.shape.dtype, [&]<class T>(T) { launch_finish<T>(l); });
}

// ---- on tensor cores ----

template <class F>
auto with_tensor_tile(int dim, F f) {
  if (dim <= 32) return f(TensorTile<32>{});
  if (dim <= 64) return f(TensorTile<64>{});
  if (dim <= 128) return f(TensorTile<128>{});
  return f(TensorTile<256>{});
}

// launch_all_keys(T{}, Tile{}) runs Algorithm 1's kernel.
template <class F>
void launch_tensor_tiles(const AttentionLaunch& l, F launch_all_keys) {
  const auto launch = [&]<class T>(T type) {
    launch_initialise(l);
    with_tensor_tile(l.shape.dim, [&](auto tile) { launch_all_keys(type, tile); });
    launch_finish<T>(l);
  };
  if (l.shape.dtype == problem::Dtype::fp16) {
    launch(__half{});
  } else {
    launch(__nv_bfloat16{});
  }
}

inline void launch_tensor_scores(const AttentionLaunch& l) {
  launch_tensor_tiles(l, [&]<class T, class Tile>(T, Tile) {
    launch_keys<T>(l, algorithm_1_tensor_scores<T, Tile>, Tile::threads, sizeof(ScoresSmem<T, Tile>));
  });
}

inline void launch_register_softmax(const AttentionLaunch& l) {
  launch_tensor_tiles(l, [&]<class T, class Tile>(T, Tile) {
    launch_keys<T>(l, algorithm_1_register_softmax<T, Tile>, Tile::threads, sizeof(ScoresSmem<T, Tile>));
  });
}

inline void launch_tensor_cores(const AttentionLaunch& l) {
  launch_tensor_tiles(l, [&]<class T, class Tile>(T, Tile) {
    launch_keys<T>(l, algorithm_1_tensor_cores<T, Tile>, Tile::threads, sizeof(TensorSmem<T, Tile>));
  });
}

}  // namespace flash_v1
