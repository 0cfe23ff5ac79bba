// Step 00, file 1: how fast bytes move.
//
// A copy and a read of device memory, with nothing else to do: 16 bytes a lane, neighbours side by side, many loads under way.
// Buffers are far larger than L2.
#pragma once

#include "common/device/block.cuh"
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

__device__ inline unsigned mixed(const uint4& value) { return value.x ^ value.y ^ value.z ^ value.w; }

// Reads all of `from` and keeps a checksum of each thread, so that no load can be left out. A block takes pieces of 256 ·
// reads_under_way. Two things make the compiler start all eight loads before it waits for the first: the end is looked for once
// a piece instead of once a load, and five blocks a multiprocessor leave registers for eight values (with eight it keeps four).
__global__ void __launch_bounds__(256, 5) read(std::int64_t count, const uint4* from,  // [count]
                                               unsigned* sums) {                       // [threads of the launch]
  const std::int64_t piece = std::int64_t(blockDim.x) * reads_under_way;
  unsigned sum = 0;
  std::int64_t i = blockIdx.x * piece + threadIdx.x;
  for (; i + (reads_under_way - 1) * blockDim.x < count; i += gridDim.x * piece) {
    uint4 values[reads_under_way];
#pragma unroll
    for (int u = 0; u < reads_under_way; ++u) values[u] = load(&from[i + u * blockDim.x]);
#pragma unroll
    for (int u = 0; u < reads_under_way; ++u) sum += mixed(values[u]);
  }
  for (; i < count; i += blockDim.x) sum += mixed(load(&from[i]));  // a piece that ends early is the last
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace ceilings
