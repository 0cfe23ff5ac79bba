// A program of plain CUDA with the faults of a first program, one for each name that main() takes.
// tests/tools/test_plain_cuda.py runs it.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

constexpr int threads = 64;

__global__ void fill(int* values, int n, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = value + i;
}

__global__ void fill_too_far(int* values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) values[i] = i;
}

__global__ void reversed(const int* values, int* out) {
  __shared__ int copy[threads];
  __shared__ int first;
  const int thread = threadIdx.x;
  if (thread == 0) first = values[0];
  copy[thread] = values[thread];
  __syncthreads();
  out[thread] = copy[threads - 1 - thread] - first;
}

__global__ void reversed_without_a_barrier(const int* values, int* out) {
  __shared__ int copy[threads];
  const int thread = threadIdx.x;
  copy[thread] = values[thread];
  out[thread] = copy[threads - 1 - thread];
}

__global__ void reversed_in_dynamic_memory(const int* values, int* out) {
  __shared__ int first[3];
  extern __shared__ int copy[];
  const int thread = threadIdx.x;
  if (thread < 3) first[thread] = values[0];
  copy[thread] = values[thread];
  __syncthreads();
  out[thread] = copy[threads - 1 - thread] - first[thread % 3];
}

template <class T>
__global__ void twice(T* values) {
  values[threadIdx.x] *= 2;
}

// A of ones, B of ones: 16 more for each sum.
__device__ void add_16(float& c0, float& c1, float& c2, float& c3) {
  const unsigned ones = 0x3c003c00;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(ones), "r"(ones), "r"(ones), "r"(ones), "r"(ones), "r"(ones));
}

// Three times, with sums that are neighbours in memory, and with others.
__global__ void inline_products(int* out, int lanes) {
  float c[4] = {0, 1, 2, 3}, apart[7] = {0, 0, 1, 0, 2, 0, 3};
  if (int(threadIdx.x) < lanes) {
    for (int i = 0; i < 3; ++i) add_16(c[0], c[1], c[2], c[3]);
    for (int i = 0; i < 3; ++i) add_16(apart[0], apart[2], apart[4], apart[6]);
  }
  out[threadIdx.x] = int(c[0] + 100 * c[1] + 1e4f * c[2]) + 1'000'000 * int(c[3]);
  out[threads - 1 - threadIdx.x] = int(apart[0] + 100 * apart[2] + 1e4f * apart[4]) + 1'000'000 * int(apart[6]);
}

constexpr size_t bytes = threads * sizeof(int);

struct Numbers {
  int* device = nullptr;
  std::vector<int> host = std::vector<int>(threads);
  cudaStream_t stream = nullptr;

  Numbers() {
    int* numbers;
    cudaMalloc(&numbers, bytes);
    device = numbers;
    cudaStreamCreate(&stream);
  }
  void show() const { std::printf("%d %d\n", host[0], host[threads - 1]); }
};

const std::map<std::string, std::function<void(Numbers&)>> programs = {
    {"right",
     [](Numbers& n) {
       int* out;
       cudaMalloc(&out, bytes);
       fill<<<2, threads / 2>>>(n.device, threads, 5);
       reversed<<<1, threads>>>(n.device, out);
       twice<int><<<1, threads>>>(out);
       cudaMemcpy(n.host.data(), out, bytes, cudaMemcpyDeviceToHost);
       n.show();
       reversed_in_dynamic_memory<<<dim3(1), dim3(threads), bytes>>>(n.device, out);
       cudaMemcpy(n.host.data(), out, bytes, cudaMemcpyDefault);
       n.show();
       cudaMemset(out, 0, bytes);
       cudaMemcpy(n.host.data(), out, bytes, cudaMemcpyDeviceToHost);
       n.show();
       std::printf("%s\n", cudaGetErrorName(cudaFree(out)));
     }},
    {"no barrier",
     [](Numbers& n) {
       int* out;
       cudaMalloc(&out, bytes);
       fill<<<1, threads>>>(n.device, threads, 0);
       reversed_without_a_barrier<<<1, threads>>>(n.device, out);
       cudaDeviceSynchronize();
     }},
    {"products",
     [](Numbers& n) {
       inline_products<<<1, 32>>>(n.device, 32);
       cudaMemcpy(n.host.data(), n.device, bytes, cudaMemcpyDeviceToHost);
       n.show();
     }},
    {"products of half a warp",
     [](Numbers& n) {
       inline_products<<<1, 32>>>(n.device, 16);
       cudaDeviceSynchronize();
     }},
    {"too far",
     [](Numbers& n) {
       fill_too_far<<<2, threads>>>(n.device, threads);
       cudaDeviceSynchronize();
     }},
    {"too little shared memory",
     [](Numbers& n) {
       int* out;
       cudaMalloc(&out, bytes);
       fill<<<1, threads>>>(n.device, threads, 0);
       reversed_in_dynamic_memory<<<1, threads, bytes - 4>>>(n.device, out);
       cudaDeviceSynchronize();
     }},
    {"host reads",
     [](Numbers& n) {
       fill<<<1, threads>>>(n.device, threads, 0);
       cudaDeviceSynchronize();
       std::printf("%d\n", n.device[3]);
     }},
    {"host pointer",
     [](Numbers& n) {
       fill<<<1, threads>>>(n.host.data(), threads, 0);
       cudaDeviceSynchronize();
     }},
    {"never written",
     [](Numbers& n) {
       fill<<<1, threads>>>(n.device, threads - 1, 0);
       cudaMemcpy(n.host.data(), n.device, bytes, cudaMemcpyDeviceToHost);
     }},
    {"no wait",
     [](Numbers& n) {
       fill<<<1, threads, 0, n.stream>>>(n.device, threads, 7);
       cudaMemcpyAsync(n.host.data(), n.device, bytes, cudaMemcpyDeviceToHost, n.stream);
       n.show();
       cudaStreamSynchronize(n.stream);
       n.show();
     }},
    {"never waited for", [](Numbers& n) { fill<<<1, threads>>>(n.device, threads, 7); }},
    {"streams",  // the default stream waits for the others, and they for it; two others do not wait for each other
     [](Numbers& n) {
       cudaStream_t other;
       cudaStreamCreate(&other);
       fill<<<1, threads, 0, n.stream>>>(n.device, threads, 1);
       fill<<<1, threads>>>(n.device, threads, 2);
       fill<<<1, threads, 0, other>>>(n.device, threads, 3);
       cudaStreamSynchronize(n.stream);
       cudaMemcpyAsync(n.host.data(), n.device, bytes, cudaMemcpyDeviceToHost, n.stream);
       cudaStreamSynchronize(n.stream);
       n.show();
       cudaStreamDestroy(other);
       cudaMemcpy(n.host.data(), n.device, bytes, cudaMemcpyDeviceToHost);
       n.show();
     }},
    {"errors",
     [](Numbers& n) {
       const auto show = [](cudaError_t status) {
         std::printf("%s: %s\n", cudaGetErrorName(status), cudaGetErrorString(status));
       };
       fill<<<1, 1025>>>(n.device, threads, 0);
       show(cudaPeekAtLastError());
       show(cudaGetLastError());
       show(cudaGetLastError());
       fill<<<0, threads>>>(n.device, threads, 0);
       show(cudaGetLastError());
       show(cudaMemcpy(n.host.data(), n.host.data(), bytes, cudaMemcpyHostToDevice));
       show(cudaMemcpy(n.device, n.device, bytes, cudaMemcpyDeviceToHost));
       show(cudaMemcpy(n.device + 1, n.host.data(), bytes, cudaMemcpyHostToDevice));
       show(cudaMemcpy(n.device, n.host.data(), bytes, static_cast<cudaMemcpyKind>(9)));
       show(cudaFree(n.device + 1));
       show(cudaFree(n.device));
       show(cudaFree(n.device));
       show(cudaStreamDestroy(n.stream));
       show(cudaStreamSynchronize(n.stream));
       float* huge;
       show(cudaMalloc(&huge, size_t(1) << 60));
     }},
};

int main(int argc, char** argv) {
  if (argc != 2 || programs.count(argv[1]) == 0) return 2;
  Numbers numbers;
  programs.at(argv[1])(numbers);
}
