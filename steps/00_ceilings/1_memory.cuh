// Step 00, file 1: how fast bytes move.
//
// A copy and a read of device memory, with nothing else to do: 16 bytes a lane, neighbours side by side, many loads under way.
// Buffers are far larger than L2.
#pragma once

#include "common/device/launch.h"
#include "common/device/memory.cuh"

namespace ceilings {

using device::load;
using device::store;

// to = from, 16 bytes a thread.
__global__ void __launch_bounds__(512) copy(std::int64_t count, const uint4* from, uint4* to) {  // [count]
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) store(&to[i], load(&from[i]));
}

constexpr int reads_under_way = 8;  // of a thread

// Reads all of `from` and keeps a checksum for each block, so that no load can be left out.
__global__ void __launch_bounds__(256) read(std::int64_t count, const uint4* from,  // [count]
                                            unsigned* sums) {                       // [blocks * threads]
  const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x * reads_under_way;
  unsigned sum = 0;
  for (std::int64_t first = std::int64_t(blockIdx.x) * blockDim.x * reads_under_way + threadIdx.x; first < count;
       first += step) {
    uint4 values[reads_under_way];
#pragma unroll
    for (int u = 0; u < reads_under_way; ++u) {
      const std::int64_t i = first + u * blockDim.x;
      values[u] = i < count ? load(&from[i]) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < reads_under_way; ++u) sum += values[u].x ^ values[u].y ^ values[u].z ^ values[u].w;
  }
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace ceilings
