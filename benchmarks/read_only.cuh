// A kernel that only reads: what time a kernel needs at least that must read as many bytes.
#pragma once

#include <cstdint>

#include "common/device/dialect.h"
#include "common/runtime/launch.h"

namespace benchmarks {

inline constexpr int reader_threads = 512, reader_blocks = 2;  // of an SM
inline constexpr int reads_in_flight = 8;                      // of a thread, 16 bytes each

// found: where it may leave a number.
static __global__ void __launch_bounds__(reader_threads)
    read_only(const uint4* words, std::int64_t count, std::uint32_t* found) {
  std::uint32_t all = 0;
  const std::int64_t step = std::int64_t{gridDim.x} * reader_threads * reads_in_flight;
  for (std::int64_t i = std::int64_t{blockIdx.x} * reader_threads * reads_in_flight + threadIdx.x; i < count; i += step) {
    uint4 x[reads_in_flight];
#pragma unroll
    for (int j = 0; j < reads_in_flight; ++j)
      x[j] = device::load_if(i + j * reader_threads < count, &words[i + j * reader_threads]);
#pragma unroll
    for (int j = 0; j < reads_in_flight; ++j) all ^= x[j].x ^ x[j].y ^ x[j].z ^ x[j].w;
  }
  if (all == 0x12345678) *found = all;  // so that nvcc keeps the loads
}

inline void launch_read_only(const void* data, std::int64_t bytes, std::uint32_t* found) {
  const unsigned blocks = static_cast<unsigned>(reader_blocks * runtime::properties().multiprocessors);
  runtime::launch(read_only, {.grid = blocks, .block = reader_threads}, static_cast<const uint4*>(data),
                  bytes / static_cast<std::int64_t>(sizeof(uint4)), found);
}

}  // namespace benchmarks
