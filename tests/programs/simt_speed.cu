// What the simulator's checks cost: nanoseconds of host time for each access, barrier or warp call of one thread, on one
// worker. Prints JSON. Not a test: run it on a quiet machine.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "common/device/dialect.h"
#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"

namespace {

using runtime::Buffer;

constexpr int threads = 256;
constexpr int blocks = 16;
constexpr int times = 200;  // by each thread

struct Smem {
  alignas(16) float values[2 * threads];
  alignas(16) float stage[4][threads][4];
};

__global__ void nothing(const float*, float* out) { out[blockIdx.x * threads + threadIdx.x] = 0.0f; }

__global__ void global_loads(const float* in, float* out) {
  const int t = blockIdx.x * threads + threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < times; ++i) sum += in[(i * threads + t) % (blocks * threads)];
  out[t] = sum;
}

// Two places, in turn: of stores to one the compiler would keep the last.
__global__ void global_stores(const float*, float* out) {
  const int t = blockIdx.x * threads + threadIdx.x;
  for (int i = 0; i < times; ++i) out[(i & 1) * blocks * threads + t] = i;
}

__global__ void shared_loads(const float*, float* out) {
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  __syncthreads();  // written before it is read
  float sum = 0.0f;
  for (int i = 0; i < times; ++i) sum += smem.values[(t + i) % threads];
  out[blockIdx.x * threads + t] = sum;
}

__global__ void shared_stores(const float*, float* out) {
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  for (int i = 0; i < times; ++i) smem.values[2 * t + (i & 1)] = i;
  out[blockIdx.x * threads + t] = 0.0f;
}

__global__ void barriers(const float*, float* out) {
  for (int i = 0; i < times; ++i) __syncthreads();  // for its cost
  out[blockIdx.x * threads + threadIdx.x] = 0.0f;
}

__global__ void warp_barriers(const float*, float* out) {
  for (int i = 0; i < times; ++i) __syncwarp();
  out[blockIdx.x * threads + threadIdx.x] = 0.0f;
}

__global__ void shuffles(const float*, float* out) {
  float value = threadIdx.x;
  for (int i = 0; i < times; ++i) value = __shfl_xor_sync(0xffffffffu, value, 1);
  out[blockIdx.x * threads + threadIdx.x] = value;
}

// 16 bytes, waited for two groups later.
__global__ void copies(const float* in, float* out) {
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  for (int i = 0; i < times; ++i) {
    ptx::cp_async_16(smem.stage[i % 4][t], &in[(i + blockIdx.x) % blocks * threads + t / 4 * 4]);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<2>();
  }
  out[blockIdx.x * threads + t] = 0.0f;
}

__global__ void loads_beside_copies(const float* in, float* out) {
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  ptx::cp_async_16(smem.stage[0][t], &in[t / 4 * 4]);
  __syncthreads();  // written before it is read
  float sum = 0.0f;
  for (int i = 0; i < times; ++i) sum += smem.values[(t + i) % threads];
  out[blockIdx.x * threads + t] = sum;
}

__global__ void matrix_loads(const float* in, float* out) {
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  for (int i = 0; i < 4; ++i) smem.stage[0][t][i] = in[t];
  __syncthreads();  // written before it is read
  std::uint32_t sum = 0, r[4];
  for (int i = 0; i < times; ++i) {
    ptx::ldmatrix_x4(r, smem.stage[0][(t + 32 * i) % threads]);
    sum += r[0];
  }
  out[blockIdx.x * threads + t] = sum;
}

__global__ void transposed_matrix_loads(const float* in, float* out) {
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  for (int i = 0; i < 4; ++i) smem.stage[0][t][i] = in[t];
  __syncthreads();  // written before it is read
  std::uint32_t sum = 0, r[4];
  for (int i = 0; i < times; ++i) {
    ptx::ldmatrix_x4_trans(r, smem.stage[0][(t + 32 * i) % threads]);
    sum += r[0];
  }
  out[blockIdx.x * threads + t] = sum;
}

__global__ void multiplications(const float*, float* out) {
  const std::uint32_t a[4] = {0x3c003c00, 0x3c00, 0x3c003c00, 0x3c00}, b[2] = {0x3c003c00, 0x3c00};
  float c[4] = {};
  for (int i = 0; i < times; ++i) ptx::mma_m16n8k16<__half>(c, a, b);
  out[blockIdx.x * threads + threadIdx.x] = c[0];
}

using Kernel = void (*)(const float*, float*);

double seconds(Kernel kernel, const Buffer& in, const Buffer& out) {
  std::vector<double> all;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    runtime::launch(kernel, {blocks, threads, sizeof(Smem)}, in.as<const float>(), out.as<float>());
    all.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  runtime::take_counters();
  return *std::min_element(all.begin(), all.end());
}

// "model name : …" of /proc/cpuinfo
std::string cpu() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

int main() {
  const std::vector<float> values(blocks * threads);
  Buffer in("in", values.size() * sizeof(float)), out("out", 2 * values.size() * sizeof(float));
  in.upload(values.data(), in.bytes());

  const std::pair<const char*, Kernel> kernels[] = {{"load from device memory", global_loads},
                                                    {"store to device memory", global_stores},
                                                    {"load from shared memory", shared_loads},
                                                    {"store to shared memory", shared_stores},
                                                    {"__syncthreads()", barriers},
                                                    {"__syncwarp()", warp_barriers},
                                                    {"shuffle", shuffles},
                                                    {"cp.async of 16 bytes, and its wait", copies},
                                                    {"load from shared memory beside copies", loads_beside_copies},
                                                    {"ldmatrix.x4", matrix_loads},
                                                    {"ldmatrix.x4.trans", transposed_matrix_loads},
                                                    {"mma.m16n8k16", multiplications}};
  struct Mode {
    const char* name;
    bool races, counters;
  };
  const Mode modes[] = {{"bounds", false, false}, {"races", true, false}, {"counters", false, true}, {"all", true, true}};

  std::cout << "{\"unit\": \"ns for each, by one thread\", \"cpu\": \"" << cpu() << "\", \"rows\": [\n";
  for (const auto& [name, kernel] : kernels) {
    std::cout << (kernel == kernels[0].second ? "" : ",\n") << " {\"what\": \"" << name << '"';
    for (const Mode& mode : modes) {
      runtime::SimOptions options;
      options.workers = 1;
      options.races = mode.races;
      runtime::configure(options);
      runtime::set_counting(mode.counters);
      const double net = seconds(kernel, in, out) - seconds(nothing, in, out);
      std::cout << ", \"" << mode.name << "\": " << static_cast<int>(10 * net * 1e9 / (blocks * threads * times)) / 10.0;
    }
    std::cout << '}';
  }
  std::cout << "\n]}\n";
  for (const runtime::Finding& finding : runtime::take_findings()) std::cerr << finding.text << '\n';
}
