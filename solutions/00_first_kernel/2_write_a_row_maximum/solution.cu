// Exercise 2 of step 00, solved: `row_sum` with a maximum for the sum, and −infinity where that begins with 0.
#include <cuda_runtime.h>

#include <cmath>

constexpr int threads = 128;  // of a block: a power of two

__global__ void row_maximum(const float* x, float* maxima, int cols) {  // x: [rows, cols], maxima: [rows]
  __shared__ float partial[threads];
  const int thread = threadIdx.x;
  const float* row = x + size_t(blockIdx.x) * cols;

  float mine = -INFINITY;
  for (int j = thread; j < cols; j += threads) mine = fmaxf(mine, row[j]);
  partial[thread] = mine;
  __syncthreads();  // all partial maxima are there before any thread reads another's

  for (int active = threads / 2; active > 0; active /= 2) {
    if (thread < active) partial[thread] = fmaxf(partial[thread], partial[thread + active]);
    __syncthreads();  // this round's maxima are there before the next round reads them
  }
  if (thread == 0) maxima[blockIdx.x] = partial[0];
}

void row_maxima(int rows, int cols, const float* x, float* maxima) {  // x: [rows, cols], maxima: [rows], on the host
  const size_t bytes = size_t(rows) * cols * sizeof(float);
  float *device_x, *device_maxima;
  cudaMalloc(&device_x, bytes);
  cudaMalloc(&device_maxima, rows * sizeof(float));
  cudaMemcpy(device_x, x, bytes, cudaMemcpyHostToDevice);
  row_maximum<<<rows, threads>>>(device_x, device_maxima, cols);
  cudaMemcpy(maxima, device_maxima, rows * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(device_x);
  cudaFree(device_maxima);
}
