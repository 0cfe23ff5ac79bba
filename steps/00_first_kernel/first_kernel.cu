// Two kernels in plain CUDA: the sum of two vectors, and the sum of each row of a matrix. The file needs nothing but CUDA:
//
//     nvcc -O2 -std=c++17 -o first_kernel first_kernel.cu
//     ./first_kernel [ELEMENTS [ROWS COLUMNS]]
//
// It prints whether the results are right, and how long the host believes that a launch takes.
#include <cuda_runtime.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

// Every call of CUDA's runtime can fail, and says so by its result alone.
void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(3);
}

// ---- the sum of two vectors: a thread for each element ----

// [doc: add]
__global__ void add(const float* a, const float* b, float* sum, int n) {  // each [n]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];  // the last block may have more threads than elements are left
}
// [/doc: add]

// ---- the sum of each row of a matrix: a block for each row ----

constexpr int threads = 256;  // of a block: a power of two

// [doc: row_sum]
__global__ void row_sum(const float* x, float* sums, int cols) {  // x: [rows, cols], sums: [rows]
  __shared__ float partial[threads];
  const int thread = threadIdx.x;
  const float* row = x + size_t(blockIdx.x) * cols;

  // Each thread adds up every 256th element of the row.
  float mine = 0;
  for (int j = thread; j < cols; j += threads) mine += row[j];
  partial[thread] = mine;
  __syncthreads();  // all partial sums are there before any thread reads another's

  // Half of the threads add the other half's sums to their own; then a quarter, an eighth …
  for (int active = threads / 2; active > 0; active /= 2) {
    if (thread < active) partial[thread] += partial[thread + active];
    __syncthreads();  // this round's sums are there before the next round reads them
  }
  if (thread == 0) sums[blockIdx.x] = partial[0];
}
// [/doc: row_sum]

// ---- the host's side ----

// The milliseconds that the host counts while it runs `work`.
template <class Work>
double milliseconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// [doc: vectors]
bool add_vectors(int n) {
  std::vector<float> a(n), b(n), sum(n);
  for (int i = 0; i < n; ++i) {
    a[i] = i % 1000;
    b[i] = 0.5f * (i % 7);
  }
  float *device_a, *device_b, *device_sum;  // addresses of the GPU's memory: the host can pass them on, not read them
  check(cudaMalloc(&device_a, n * sizeof(float)), "cudaMalloc");
  check(cudaMalloc(&device_b, n * sizeof(float)), "cudaMalloc");
  check(cudaMalloc(&device_sum, n * sizeof(float)), "cudaMalloc");
  check(cudaMemcpy(device_a, a.data(), n * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemcpy(device_b, b.data(), n * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");

  const int blocks = (n + threads - 1) / threads;  // enough for all elements
  add<<<blocks, threads>>>(device_a, device_b, device_sum, n);
  check(cudaGetLastError(), "add");  // was the launch accepted?

  check(cudaMemcpy(sum.data(), device_sum, n * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");  // waits for the kernel
  // [/doc: vectors]
  check(cudaFree(device_a), "cudaFree");
  check(cudaFree(device_b), "cudaFree");
  check(cudaFree(device_sum), "cudaFree");

  int wrong = 0;
  for (int i = 0; i < n; ++i) wrong += sum[i] != a[i] + b[i];
  std::printf("add:      %d elements, %d wrong\n", n, wrong);
  return wrong == 0;
}

bool sum_rows(int rows, int cols) {
  const size_t count = size_t(rows) * cols;
  std::vector<float> x(count), sums(rows);
  for (size_t i = 0; i < count; ++i) x[i] = float(i * 37 % 101) / 101;
  float *device_x, *device_sums;
  check(cudaMalloc(&device_x, count * sizeof(float)), "cudaMalloc");
  check(cudaMalloc(&device_sums, rows * sizeof(float)), "cudaMalloc");

  // [doc: stream]
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  check(cudaMemcpyAsync(device_x, x.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  row_sum<<<rows, threads, 0, stream>>>(device_x, device_sums, cols);  // after the copy: work of a stream goes in order
  check(cudaGetLastError(), "row_sum");
  check(cudaMemcpyAsync(sums.data(), device_sums, rows * sizeof(float), cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");  // behind this line the host may read `sums`
  // [/doc: stream]

  // [doc: timing]
  const auto launch = [&] { row_sum<<<rows, threads, 0, stream>>>(device_x, device_sums, cols); };
  const double launched = milliseconds(launch);  // not the kernel's time: a launch returns at once
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  const double waited = milliseconds([&] {
    launch();
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  });
  // [/doc: timing]
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  check(cudaFree(device_x), "cudaFree");
  check(cudaFree(device_sums), "cudaFree");

  int wrong = 0;
  for (int i = 0; i < rows; ++i) {
    double sum = 0;
    for (int j = 0; j < cols; ++j) sum += x[size_t(i) * cols + j];
    wrong += !(std::fabs(sums[i] - sum) <= 1e-6 * cols);
  }
  std::printf("row_sum:  %d rows of %d, %d wrong\n", rows, cols, wrong);
  std::printf("the host: %.3f ms for a launch, %.3f ms for a launch and its kernel\n", launched, waited);
  return wrong == 0;
}

int argument(const char* text, const char* name) {
  char* end;
  const long value = std::strtol(text, &end, 10);
  if (*end == '\0' && value >= 1 && value <= 100'000'000) return int(value);
  std::fprintf(stderr, "%s is '%s'; it must be a number from 1 to 100000000\n", name, text);
  std::exit(2);
}

int main(int argc, char** argv) {
  if (argc != 1 && argc != 2 && argc != 4) {
    std::fprintf(stderr, "usage: %s [ELEMENTS [ROWS COLUMNS]]\n", argv[0]);
    return 2;
  }
  const int n = argc > 1 ? argument(argv[1], "ELEMENTS") : 100'003;
  const int rows = argc > 3 ? argument(argv[2], "ROWS") : 61, cols = argc > 3 ? argument(argv[3], "COLUMNS") : 1'003;
  if (double(rows) * cols > 100'000'000) {
    std::fprintf(stderr, "ROWS x COLUMNS is %.0f; it must be at most 100000000\n", double(rows) * cols);
    return 2;
  }
  const bool right = add_vectors(n) & sum_rows(rows, cols);
  return right ? 0 : 1;
}
