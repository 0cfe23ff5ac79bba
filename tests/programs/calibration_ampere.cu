// The same for ldmatrix, mma.sync and cp.async, as an executable of its own: results/DEVICE/ncu_calibration_ampere.csv.
#include <cstdint>

#include "common/device/dialect.h"
#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"
#include "tests/programs/calibration_kernels.h"

namespace calibration {  // and none without a name: Nsight Compute cuts names of kernels at it

using runtime::Buffer;
using runtime::launch;

constexpr int elements = 4096;  // of each array

struct Smem {
  alignas(16) float values[elements];
};

// ---- ldmatrix ----

// Lane l gives a row of the column l / rows of matrices, which are 16 bytes wide and lie side by side in rows of `stride`
// bytes. Swizzled, the 16-byte pieces of each row change places as its number says; the stride is 128 then.
template <int matrices, bool transposed>
__global__ void matrix_load(float* out, int rows, int stride, int swizzled) {
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  for (int i = t; i < elements; i += blockDim.x) smem.values[i] = i;
  __syncthreads();  // filled before it is read
  const int row = t % 32 % rows;
  const int piece = t % 32 / rows ^ (swizzled ? row % 8 : 0);
  const void* const address = &smem.values[(row * stride + 16 * piece) / 4];
  std::uint32_t r[matrices];
  if constexpr (matrices == 1 && !transposed) ptx::ldmatrix_x1(r, address);
  if constexpr (matrices == 1 && transposed) ptx::ldmatrix_x1_trans(r, address);
  if constexpr (matrices == 2 && !transposed) ptx::ldmatrix_x2(r, address);
  if constexpr (matrices == 2 && transposed) ptx::ldmatrix_x2_trans(r, address);
  if constexpr (matrices == 4 && !transposed) ptx::ldmatrix_x4(r, address);
  if constexpr (matrices == 4 && transposed) ptx::ldmatrix_x4_trans(r, address);
  std::uint32_t sum = 0;
  for (int m = 0; m < matrices; ++m) sum += r[m];
  out[t] = sum;
}

// ---- mma.sync ----

template <class T, int k>
__global__ void tensor_multiply(float* out, int times) {
  const std::uint32_t a[4] = {threadIdx.x, 1, 2, 3}, b[2] = {threadIdx.x, 4};
  float c[4] = {};
#pragma unroll 1
  for (int i = 0; i < times; ++i) {
    if constexpr (k == 16) {
      ptx::mma_m16n8k16<T>(c, a, b);
    } else {
      ptx::mma_m16n8k8<T>(c, {a[0], a[1]}, {b[0]});
    }
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = c[0] + c[3];
}

// A tile of 16 × 64 and one of 8 × 64, in rows of 144 bytes, through ldmatrix into mma: what a step does.
__global__ void load_and_multiply(float* out) {
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  for (int i = t; i < elements; i += blockDim.x) smem.values[i] = 0.0f;
  __syncthreads();  // filled before it is read
  float c[4] = {};
#pragma unroll 1
  for (int k = 0; k < 64; k += 16) {
    std::uint32_t a[4], b[2];
    ptx::ldmatrix_x4(a, &smem.values[(t % 16 * 144 + k * 2 + t / 16 * 16) / 4]);
    ptx::ldmatrix_x2(b, &smem.values[((16 + t % 8) * 144 + k * 2 + t / 8 % 2 * 16) / 4]);
    ptx::mma_m16n8k16<__half>(c, a, b);
  }
  out[t] = c[0] + c[1] + c[2] + c[3];
}

// ---- cp.async ----

// Where the lanes of a warp copy from and to, in bytes: lane l the piece l % per_row of the row l / per_row. Lanes outside the
// mask do not take part.
struct Pattern {
  int per_row, from_row, from_step, to_row, to_step;
  unsigned lanes;
};

template <int bytes, bool past_l1>
__device__ void copy_piece(float* to, const float* from, int source_bytes) {
  if constexpr (bytes == 4) ptx::cp_async_4(to, from, source_bytes);
  if constexpr (bytes == 8) ptx::cp_async_8(to, from, source_bytes);
  if constexpr (bytes == 16 && past_l1) ptx::cp_async_16(to, from, source_bytes);
  if constexpr (bytes == 16 && !past_l1) ptx::cp_async_16_ca(to, from, source_bytes);
}

// `times` copies by each lane, 2048 bytes from one to the next.
template <int bytes, bool past_l1>
__global__ void copy_whole(const float* in, float* out, Pattern p, int times) {
  auto& smem = device::shared_storage<Smem>();
  const int l = threadIdx.x % 32;
  const bool takes_part = p.lanes >> l & 1;
  const int from = (l / p.per_row * p.from_row + l % p.per_row * p.from_step) / 4;
  const int to = (threadIdx.x / 32 * 4096 + l / p.per_row * p.to_row + l % p.per_row * p.to_step) / 4;
  if (takes_part) {
#pragma unroll 1
    for (int i = 0; i < times; ++i) copy_piece<bytes, past_l1>(&smem.values[to + 512 * i], &in[from + 512 * i], bytes);
  }
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // copied before it is read
  if (takes_part) out[blockIdx.x * blockDim.x + threadIdx.x] = smem.values[to];
}

// Lanes in `whole` read all the bytes, the others only `part`; the sizes are known when it runs, not when it is compiled.
template <int bytes, bool past_l1>
__global__ void copy_sized(const float* in, float* out, Pattern p, unsigned whole, int part) {
  auto& smem = device::shared_storage<Smem>();
  const int l = threadIdx.x;
  const bool takes_part = p.lanes >> l & 1;
  const int from = (l / p.per_row * p.from_row + l % p.per_row * p.from_step) / 4;
  const int to = (l / p.per_row * p.to_row + l % p.per_row * p.to_step) / 4;
  if (takes_part) copy_piece<bytes, past_l1>(&smem.values[to], &in[from], whole >> l & 1 ? bytes : part);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // copied before it is read
  if (takes_part) out[l] = smem.values[to];
}

template <int matrices, bool transposed>
void run_matrix_loads(float* out) {
  const auto load = [&](int threads, int rows, int stride, bool swizzled) {
    launch(matrix_load<matrices, transposed>, {1, threads, sizeof(Smem)}, out, rows, stride, int{swizzled});
  };
  for (const int stride : {0, 16, 32, 48, 64, 80, 128, 144, 256}) load(32, 32, stride, false);
  if (matrices >= 2) {
    for (const int stride : {32, 128, 144}) load(32, 16, stride, false);  // two columns of matrices
  }
  if (matrices == 4) {
    for (const int stride : {64, 128, 144}) load(32, 8, stride, false);  // four
  }
  for (const int rows : {8, 32}) load(32, rows, 128, true);
  load(32, 4, 144, false);   // lanes that give the same row
  load(96, 16, 144, false);  // three warps
}

template <int bytes, bool past_l1>
void run_copies(const float* in, float* out) {
  const auto run = [&](const Pattern& pattern, int times = 1, dim3 grid = 1, dim3 block = 32) {
    launch(copy_whole<bytes, past_l1>, {grid, block, sizeof(Smem)}, in, out, pattern, times);
  };
  const unsigned all = 0xffffffffu;
  const Pattern contiguous = {32, 0, bytes, 0, bytes, all};
  run(contiguous);
  run(contiguous, 3);
  run(contiguous, 2, 2, 96);
  for (const int step : {2, 3, 8}) {
    run({32, 0, step * bytes, 0, bytes, all});
    run({32, 0, bytes, 0, step * bytes, all});
  }
  for (const int step : {32, 48, 128}) run({32, 0, step, 0, step, all});
  run({32, 0, 0, 0, bytes, all});  // all lanes from one place
  run({32, 0, -bytes, 0, bytes, all});
  // Rows of 64 and 128 bytes out of wider ones, into rows with and without padding.
  for (const int row : {64, 128}) {
    for (const int padding : {0, bytes, 16, 32}) {
      if (padding != 16 || bytes != 16) run({row / bytes, 256, bytes, row + padding, bytes, all});
    }
  }
  for (const unsigned lanes : {0x0000ffffu, 0x55555555u, 0x00ff00ffu, 0x80000001u}) {
    run({32, 0, bytes, 0, bytes, lanes});
    run({32, 0, bytes, 0, 4 * bytes, lanes});
  }

  const auto run_sized = [&](const Pattern& pattern, unsigned whole, int part) {
    launch(copy_sized<bytes, past_l1>, {1, 32, sizeof(Smem)}, in, out, pattern, whole, part);
  };
  for (const unsigned whole : {all, 0u, 0x0000ffffu, 0x55555555u}) {
    run_sized(contiguous, whole, 0);
    run_sized({32, 0, 64, 0, 4 * bytes, all}, whole, 0);
  }
  run_sized({32, 0, bytes, 0, bytes, 0x00ffff00u}, 0x55555555u, 0);
  for (const int part : {1, bytes / 2, bytes - 1}) {
    run_sized(contiguous, 0, part);
    run_sized({32, 0, 48, 0, 2 * bytes, all}, 0x0000ffffu, part);
  }
}

void run_all() {
  const std::vector<float> values(elements, 1.0f);
  Buffer in("in", elements * sizeof(float)), out("out", elements * sizeof(float));
  in.upload(values.data(), in.bytes());
  out.upload(values.data(), out.bytes());
  auto* to = out.as<float>();

  run_matrix_loads<1, false>(to);
  run_matrix_loads<1, true>(to);
  run_matrix_loads<2, false>(to);
  run_matrix_loads<2, true>(to);
  run_matrix_loads<4, false>(to);
  run_matrix_loads<4, true>(to);
  launch(tensor_multiply<__half, 8>, {1, 32}, to, 1);
  launch(tensor_multiply<__nv_bfloat16, 8>, {1, 32}, to, 1);
  launch(tensor_multiply<__half, 16>, {1, 32}, to, 1);
  launch(tensor_multiply<__nv_bfloat16, 16>, {1, 32}, to, 1);
  launch(tensor_multiply<__half, 16>, {2, 96}, to, 7);
  launch(load_and_multiply, {1, 32, sizeof(Smem)}, to);

  const auto* from = in.as<const float>() + 1024;  // room on both sides
  run_copies<4, false>(from, to);
  run_copies<8, false>(from, to);
  run_copies<16, false>(from, to);
  run_copies<16, true>(from, to);
  runtime::synchronize();
}

}  // namespace calibration
