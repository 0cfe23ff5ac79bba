// Ceilings, memory: how fast bytes move.
//
// A copy and a read of global memory, with nothing else to do: 16 bytes a lane, neighbours side by side, many loads in flight.
// Buffers are far larger than L2.
#pragma once

#include "common/device/dialect.h"

namespace ceilings {

using device::load;
using device::store;

// to = from, 16 bytes a thread.
__global__ void __launch_bounds__(512) copy(std::int64_t count, const uint4* from, uint4* to) {  // [count]
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) store(&to[i], load(&from[i]));
}

constexpr int reads_in_flight = 8;  // of a thread

__device__ inline unsigned mixed(const uint4& value) { return value.x ^ value.y ^ value.z ^ value.w; }

// Reads all of `from` and keeps a checksum of each thread, so that no load can be left out. A block takes stretches of 256 ·
// reads_in_flight loads. Two things make the compiler start all eight loads before it waits for the first: the end is looked
// for once a stretch instead of once a load, and five blocks an SM leave registers for eight values (with eight it keeps four).
__global__ void __launch_bounds__(256, 5) read(std::int64_t count, const uint4* from,  // [count]
                                               unsigned* sums) {                       // [threads of the launch]
  const std::int64_t stretch = std::int64_t(blockDim.x) * reads_in_flight;
  unsigned sum = 0;
  std::int64_t i = blockIdx.x * stretch + threadIdx.x;
  for (; i + (reads_in_flight - 1) * blockDim.x < count; i += gridDim.x * stretch) {
    uint4 values[reads_in_flight];
#pragma unroll
    for (int u = 0; u < reads_in_flight; ++u) values[u] = load(&from[i + u * blockDim.x]);
#pragma unroll
    for (int u = 0; u < reads_in_flight; ++u) sum += mixed(values[u]);
  }
  for (; i < count; i += blockDim.x) sum += mixed(load(&from[i]));  // a stretch that ends early is the last
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace ceilings
