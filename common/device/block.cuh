// What a block of threads has: its shared memory, and its share of a problem that is cut into tiles.
#pragma once

#include <cstddef>

#include "common/device/dialect.h"

namespace device {

// The block's shared memory, seen as one struct. A kernel calls it once; the launch asks for sizeof(Smem) bytes.
#if defined(FLASHSTEPS_SIM)
template <class Smem>
Smem& shared_storage(const std::source_location where = std::source_location::current()) {
  return *static_cast<Smem*>(simt::shared_memory(sizeof(Smem), alignof(Smem), &simt::type_anchor<Smem>, where));
}
#else
template <class Smem>
__device__ Smem& shared_storage() {
  extern __shared__ __align__(1024) unsigned char raw[];
  return *reinterpret_cast<Smem*>(raw);
}
#endif

// ⌈a / b⌉: how many tiles of b cover a.
template <class T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace device
