// Exercise 3 of step 00, solved: reading a counter, adding to it and writing it are three things, between which another thread
// may do the same. atomicAdd makes one of them.
#include <cuda_runtime.h>

constexpr int threads = 128;

__global__ void histogram(const unsigned* words, int n, int* counts) {  // words: [n], four bytes each; counts: [256]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned word = words[i];
  for (int byte = 0; byte < 4; ++byte) {
    const unsigned value = word >> (8 * byte) & 255;
    atomicAdd(&counts[value], 1);
  }
}

void count_bytes(int n, const unsigned* words, int* counts) {  // words: [n], counts: [256], on the host
  unsigned* device_words;
  int* device_counts;
  cudaMalloc(&device_words, n * sizeof(unsigned));
  cudaMalloc(&device_counts, 256 * sizeof(int));
  cudaMemcpy(device_words, words, n * sizeof(unsigned), cudaMemcpyHostToDevice);
  cudaMemset(device_counts, 0, 256 * sizeof(int));
  histogram<<<(n + threads - 1) / threads, threads>>>(device_words, n, device_counts);
  cudaMemcpy(counts, device_counts, 256 * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(device_words);
  cudaFree(device_counts);
}
