// Step 05, host side: the launch of a kernel whose blocks each have a tile of queries. Shared by step.cu, the exercises and the
// tests.
#pragma once

#include "common/device/flash_v2/tile.cuh"
#include "common/run/family/attention.h"
#include "common/runtime/launch.h"

namespace flash_v2 {

template <class T, class Shape = AttentionShape>
using Kernel = void (*)(Shape, Heads<const T>, Heads<const T>, Heads<const T>, Heads<T>, float*);

// A block for each tile of `rows` queries, of each head and batch entry.
template <class T, class Shape>
void launch_tiles(const run::AttentionLaunch& l, const Shape& shape, Kernel<T, Shape> kernel, int rows, int threads,
                  std::size_t shared_bytes) {
  const dim3 grid(static_cast<unsigned>(ceil_div(l.shape.seq_q, rows)), static_cast<unsigned>(l.shape.heads),
                  static_cast<unsigned>(l.shape.batch));
  runtime::launch(kernel, {.grid = grid, .block = threads, .shared_bytes = shared_bytes}, shape, l.q.as<const T>(),
                  l.k.as<const T>(), l.v.as<const T>(), l.o.as<T>(), l.lse);
}
template <class T>
void launch_tiles(const run::AttentionLaunch& l, Kernel<T> kernel, int rows, int threads, std::size_t shared_bytes) {
  launch_tiles<T>(l, l.device_shape(), kernel, rows, threads, shared_bytes);
}

}  // namespace flash_v2
