// What every source here is built on: CUDA, and a few words of our own for accesses, elements, the memory of a block, and bits.
// CUDA comes from nvcc in the gpu build, and from the simulator in the sim build: with it, kernel files need no #if.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(FLASHSTEPS_SIM)
#include "common/simt/cuda.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

namespace device {

// ---- accesses ----

// They say their width. In kernels, plain indexing is for 32-bit scalars; 16-bit and vector values go through these, so that
// the source, the machine code and the simulator's count agree on what one access is.

#if defined(FLASHSTEPS_SIM)

using simt::load;
using simt::load_if;
using simt::store;
using simt::store_if;

#else

// Reads a T in one access of sizeof(T) bytes: 2, 4, 8 or 16; the address must be a multiple of that.
template <class T>
__device__ __forceinline__ T load(const T* address) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "one access moves 2, 4, 8 or 16 bytes");
  return *address;
}

// Writes a T in one access.
template <class T>
__device__ __forceinline__ void store(T* address, T value) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "one access moves 2, 4, 8 or 16 bytes");
  *address = value;
}

// The same, where `condition` holds: one instruction under a predicate. Elsewhere a load gives zero.
template <class T>
__device__ __forceinline__ T load_if(bool condition, const T* address) {
  return condition ? load(address) : T{};
}
template <class T>
__device__ __forceinline__ void store_if(bool condition, T* address, T value) {
  if (condition) store(address, value);
}

#endif

// ---- elements: float, __half, __nv_bfloat16 ----

// Kernels keep sums in fp32 and convert at both ends.

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to the nearest, ties to even.
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16(x);
  } else {
    return x;
  }
}

// Two neighbouring elements of 16 bits as one 32-bit word, the first in the low half. nvcc makes one conversion of both.
template <class T>
__device__ inline std::uint32_t packed(float first, float second) {
  const T pair[2] = {from_float<T>(first), from_float<T>(second)};
  std::uint32_t word;
  memcpy(&word, pair, sizeof(word));
  return word;
}

// ---- a block of threads ----

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

// ---- bits of words of 32, one for each of 32 neighbouring numbers ----

// Which of 32 numbers from 0 on lie in a range, as bits: first … end − 1.
__device__ inline std::uint32_t bits_between(int first, int end) {
  const auto below = [](int n) {
    const int from_0 = n > 0 ? n : 0;
    return static_cast<std::uint32_t>((std::uint64_t{1} << (from_0 < 32 ? from_0 : 32)) - 1);
  };
  return below(end) & ~below(first);
}

}  // namespace device
