// Of 05_flash_v2/09_addresses.cuh: steps from addresses that are computed once.
#pragma once

#include "common/device/dialect.h"

namespace flash_v2 {

// The byte offset of the chunk 16 · step columns to the right of the chunk at offset `bytes`. That chunk is in the same row,
// and is one of the two chunks of the row's first 16 columns.

// [doc: columns_beyond]
template <int dim>
__device__ int columns_beyond(int bytes, int step) {
  return dim % 64 == 0 ? bytes ^ 32 * step : (bytes ^ 32 * (step % 2)) + 64 * (step / 2);
}
// [/doc: columns_beyond]
template <class T>
__device__ const T* bytes_beyond(const T* start, std::int64_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(start) + bytes);
}

}  // namespace flash_v2
