// How far away is memory, and how wide is the way? Measures each level of a GPU's memory hierarchy and prints JSON:
//   latency    one thread follows a chain of addresses: each load needs the result of the load before it
//   bandwidth  every multiprocessor is full of threads that read, and nothing waits for a single load
// It stands alone, and needs a GPU of compute capability 8.0 or newer:
//   nvcc -O3 -arch=native -o build/memory benchmarks/memory.cu && build/memory
// The numbers in docs/machine/ come from it. The book's page 00 shows those of an H200.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#define CUDA_CHECK(call)                                                    \
  do {                                                                      \
    const cudaError_t status_ = (call);                                     \
    if (status_ != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status_)); \
      std::exit(3);                                                         \
    }                                                                       \
  } while (false)

enum class Level { shared, l1, l2 };

// ---- latency ----

// Reads the address that is stored at `address`. ca: through L1; cg: from L2, past L1 (PTX ISA, "Cache Operators").
template <Level level>
__device__ std::uint64_t follow(std::uint64_t address) {
  std::uint64_t next;
  if constexpr (level == Level::shared) asm volatile("ld.shared.u64 %0, [%1];" : "=l"(next) : "l"(address));
  if constexpr (level == Level::l1) asm volatile("ld.global.ca.u64 %0, [%1];" : "=l"(next) : "l"(address));
  if constexpr (level == Level::l2) asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"(address));
  return next;
}

template <Level level>
__device__ void chase(std::uint64_t address, int warm_up, int steps, std::int64_t* cycles) {
  for (int i = 0; i < warm_up; ++i) address = follow<level>(address);  // brings the chain into the cache
  const std::int64_t begin = clock64();
#pragma unroll 16
  for (int i = 0; i < steps; ++i) address = follow<level>(address);
  cycles[0] = clock64() - begin;
  cycles[1] = static_cast<std::int64_t>(address);  // used, so that the compiler keeps the loop
}

template <Level level>
__global__ void chase_global(const std::uint64_t* chain, int warm_up, int steps, std::int64_t* cycles) {
  chase<level>(reinterpret_cast<std::uint64_t>(chain), warm_up, steps, cycles);
}

__global__ void chase_shared(int steps, std::int64_t* cycles) {
  __shared__ std::uint64_t chain[1024];
  const std::uint64_t base = __cvta_generic_to_shared(chain);
  for (int i = 0; i < 1024; ++i) chain[i] = base + 8 * ((i + 33) % 1024);
  chase<Level::shared>(base, 1024, steps, cycles);
}

// A ring through `bytes` of device memory, one stop every `stride` bytes, in random order.
std::vector<std::uint64_t> random_ring(std::uint64_t base, std::size_t bytes, std::size_t stride) {
  std::vector<std::size_t> order(bytes / stride);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin() + 1, order.end(), std::mt19937_64(1));
  std::vector<std::uint64_t> ring(bytes / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < order.size(); ++i) {
    ring[order[i] * stride / 8] = base + order[(i + 1) % order.size()] * stride;
  }
  return ring;
}

double cycles_per_load(const std::int64_t* cycles, int steps) {
  CUDA_CHECK(cudaDeviceSynchronize());
  std::int64_t total = 0;
  CUDA_CHECK(cudaMemcpy(&total, cycles, sizeof total, cudaMemcpyDeviceToHost));
  return static_cast<double>(total) / steps;
}

// `cold`: the chain is driven out of the caches first, and every stop is visited once.
template <Level level>
double global_latency(std::size_t bytes, bool cold, std::int64_t* cycles) {
  constexpr std::size_t stride = 256, flush_bytes = std::size_t{1} << 30;
  std::uint64_t* chain = nullptr;
  void* flush = nullptr;
  CUDA_CHECK(cudaMalloc(&chain, bytes));
  CUDA_CHECK(cudaMalloc(&flush, flush_bytes));
  const auto ring = random_ring(reinterpret_cast<std::uint64_t>(chain), bytes, stride);
  CUDA_CHECK(cudaMemcpy(chain, ring.data(), bytes, cudaMemcpyHostToDevice));
  const int stops = static_cast<int>(bytes / stride);
  const int steps = cold ? stops / 2 : 4 * stops;
  double best = 1e30;
  for (int round = 0; round < 3; ++round) {
    if (cold) CUDA_CHECK(cudaMemset(flush, round, flush_bytes));
    chase_global<level><<<1, 1>>>(chain, cold ? 64 : stops, steps, cycles);
    best = std::min(best, cycles_per_load(cycles, steps));
  }
  CUDA_CHECK(cudaFree(flush));
  CUDA_CHECK(cudaFree(chain));
  return best;
}

// ---- bandwidth ----

constexpr int readers = 1024;  // threads of a block

__device__ float sum(float4 v) { return v.x + v.y + v.z + v.w; }

// l1: each block reads `count` float4s of its own, `rounds` times. l2: all blocks read the same ones, each from another start,
// so that no two ask for the same line at the same time.
template <Level level>
__global__ void read_global(const float4* data, int count, int rounds, float* sink) {
  const bool own = level == Level::l1;
  const float4* mine = data + (own ? std::size_t(count) * blockIdx.x : 0);
  const int start = own ? 0 : int(std::int64_t(count) * blockIdx.x / gridDim.x);
  float total = 0;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll 8
    for (int i = threadIdx.x; i < count; i += readers) {
      const int at = start + i < count ? start + i : start + i - count;
      total += sum(own ? __ldca(mine + at) : __ldcg(mine + at));
    }
  }
  if (total == 1) *sink = total;  // never; but the compiler does not know
}

__global__ void read_shared(int rounds, float* sink) {
  __shared__ volatile float data[8 * readers];
  for (int i = threadIdx.x; i < 8 * readers; i += readers) data[i] = 0;
  __syncthreads();  // all of data is written before any of it is read
  float total = 0;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < 8; ++i) total += data[threadIdx.x + i * readers];
  }
  if (total == 1) *sink = total;
}

__global__ void nothing() {}

// Seconds of the fastest of three launches.
template <class Launch>
double seconds(Launch launch) {
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  float best = 1e30f;
  for (int round = 0; round < 4; ++round) {  // the first warms up
    CUDA_CHECK(cudaEventRecord(begin));
    launch();
    CUDA_CHECK(cudaEventRecord(end));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (round > 0) best = std::min(best, ms);
  }
  return best * 1e-3;
}

int main() {
  cudaDeviceProp p{};
  CUDA_CHECK(cudaGetDeviceProperties(&p, 0));
  int clock_khz = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0));
  std::int64_t* cycles = nullptr;
  CUDA_CHECK(cudaMalloc(&cycles, 2 * sizeof(std::int64_t)));

  const int shared_steps = 1 << 20;
  chase_shared<<<1, 1>>>(shared_steps, cycles);
  const double shared_cycles = cycles_per_load(cycles, shared_steps);
  const double l1_cycles = global_latency<Level::l1>(16 << 10, false, cycles);
  const double l2_cycles = global_latency<Level::l2>(4 << 20, false, cycles);
  const double hbm_cycles = global_latency<Level::l2>(32 << 20, true, cycles);

  const int sms = p.multiProcessorCount, blocks = 2 * sms;
  const std::size_t l2_bytes = 16 << 20;
  float4* data = nullptr;
  CUDA_CHECK(cudaMalloc(&data, std::max<std::size_t>(l2_bytes, std::size_t(blocks) << 15)));
  CUDA_CHECK(cudaMemset(data, 0, std::max<std::size_t>(l2_bytes, std::size_t(blocks) << 15)));
  float* sink = reinterpret_cast<float*>(cycles);
  const int l1_count = (32 << 10) / 16, l2_count = static_cast<int>(l2_bytes / 16);
  const double shared_seconds = seconds([&] { read_shared<<<blocks, readers>>>(20000, sink); });
  const double l1_seconds = seconds([&] { read_global<Level::l1><<<blocks, readers>>>(data, l1_count, 5000, sink); });
  const double l2_seconds = seconds([&] { read_global<Level::l2><<<blocks, readers>>>(data, l2_count, 4, sink); });
  constexpr int launches = 1000;
  const double launch_seconds = seconds([] {
    for (int i = 0; i < launches; ++i) nothing<<<1, 32>>>();
  });
  CUDA_CHECK(cudaGetLastError());

  std::printf("{\"name\": \"%s\", \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, \"max_sm_clock_mhz\": %d,\n",
              p.name, p.major, p.minor, sms, clock_khz / 1000);
  std::printf(
      " \"memory_bytes\": %zu, \"l2_bytes\": %d, \"shared_bytes_per_multiprocessor\": %zu, \"shared_bytes_per_block\": %zu,\n",
      p.totalGlobalMem, p.l2CacheSize, p.sharedMemPerMultiprocessor, p.sharedMemPerBlockOptin);
  std::printf(" \"registers_per_multiprocessor\": %d, \"threads_per_multiprocessor\": %d, \"blocks_per_multiprocessor\": %d,\n",
              p.regsPerMultiprocessor, p.maxThreadsPerMultiProcessor, p.maxBlocksPerMultiProcessor);
  std::printf(" \"latency_cycles\": {\"shared\": %.1f, \"l1\": %.1f, \"l2\": %.1f, \"hbm\": %.1f},\n", shared_cycles, l1_cycles,
              l2_cycles, hbm_cycles);
  std::printf(" \"launch_seconds\": %.3g,\n", launch_seconds / launches);
  std::printf(" \"read_bytes_per_second\": {\"shared\": %.4g, \"l1\": %.4g, \"l2\": %.4g}}\n",
              blocks * 4.0 * 8 * readers * 20000 / shared_seconds, blocks * 16.0 * l1_count * 5000 / l1_seconds,
              blocks * 16.0 * l2_count * 4 / l2_seconds);
}
