// Accesses that say their width. In kernels, plain indexing is for 32-bit scalars; 16-bit and vector values go through these,
// so that the source, the machine code and the simulator's count agree on what one access is.
#pragma once

#include "common/device/dialect.h"

namespace device {

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

}  // namespace device
