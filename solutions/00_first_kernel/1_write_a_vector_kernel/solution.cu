// Exercise 1 of step 00, solved: a thread for each element, and one more block where n is no multiple of a block's threads.
#include <cuda_runtime.h>

__global__ void axpy_kernel(int n, float a, const float* x, float* y) {  // each [n]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

void axpy(int n, float a, const float* x, float* y) {  // x, y: [n], on the host
  const size_t bytes = n * sizeof(float);
  float *device_x, *device_y;
  cudaMalloc(&device_x, bytes);
  cudaMalloc(&device_y, bytes);
  cudaMemcpy(device_x, x, bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(device_y, y, bytes, cudaMemcpyHostToDevice);

  constexpr int threads = 128;
  axpy_kernel<<<(n + threads - 1) / threads, threads>>>(n, a, device_x, device_y);

  cudaMemcpy(y, device_y, bytes, cudaMemcpyDeviceToHost);  // waits for the kernel
  cudaFree(device_x);
  cudaFree(device_y);
}
