// The same for stmatrix and red, as an executable of its own: results/DEVICE/ncu_calibration_hopper.csv. It launches nothing on
// a device below compute capability 9.0.
#include <cstdint>

#include "common/device/dialect.h"
#include "common/device/ptx/red.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"
#include "tests/programs/calibration_kernels.h"

namespace calibration {  // and none without a name: Nsight Compute cuts names of kernels at it

using runtime::Buffer;
using runtime::launch;

constexpr int elements = 8192;  // of each array

struct Smem {
  alignas(16) float values[elements];
};

// Lane l gives a row of the column l / rows of matrices, which are 16 bytes wide and lie side by side in rows of `stride`
// bytes. Swizzled, the 16-byte pieces of each row change places as its number says; the stride is 128 then.
template <bool transposed>
__global__ void matrix_store(float* out, int rows, int stride, int swizzled) {
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  const int row = t / 32 * rows + t % 32 % rows;
  const int piece = t % 32 / rows ^ (swizzled ? row % 8 : 0);
  void* const address = &smem.values[(row * stride + 16 * piece) / 4];
  const auto number = static_cast<std::uint32_t>(t);
  const std::uint32_t r[4] = {number, 1, 2, 3};
  if constexpr (transposed) {
    ptx::stmatrix_x4_trans(address, r);
  } else {
    ptx::stmatrix_x4(address, r);
  }
  __syncthreads();                                     // stored before it is read
  out[t] = smem.values[row * stride / 4 + 4 * piece];  // what the lane gave the address of
}

// Lane l adds `width` floats to sums[l / per_word × step], if it takes part.
template <int width>
__global__ void reduction(float* sums, int per_word, int step, unsigned lanes) {
  const int l = threadIdx.x % 32;
  if (!(lanes >> l & 1)) return;
  float* const to = &sums[static_cast<int>(threadIdx.x) / per_word * step];
  if constexpr (width == 1) ptx::red_add_f32(to, 1.0f);
  if constexpr (width == 2) ptx::red_add_v2_f32(to, 1.0f, 2.0f);
  if constexpr (width == 4) ptx::red_add_v4_f32(to, 1.0f, 2.0f, 3.0f, 4.0f);
}

template <bool transposed>
void run_matrix_stores(float* out) {
  const auto store = [&](int threads, int rows, int stride, bool swizzled) {
    launch(matrix_store<transposed>, {1, threads, sizeof(Smem)}, out, rows, stride, int{swizzled});
  };
  for (const int stride : {16, 32, 48, 64, 80, 128, 144, 256}) store(32, 32, stride, false);
  for (const int stride : {32, 64, 128, 144, 256}) store(32, 16, stride, false);  // two columns of matrices
  for (const int stride : {64, 128, 144, 256}) store(32, 8, stride, false);       // four
  for (const int rows : {8, 16, 32}) store(32, rows, 128, true);
  for (const bool swizzled : {false, true}) store(96, 8, 128, swizzled);  // three warps
}

template <int width>
void run_reductions(float* sums) {
  const auto add = [&](int threads, int per_word, int step, unsigned lanes) {
    launch(reduction<width>, {1, threads}, sums, per_word, step, lanes);
  };
  const unsigned all = 0xffffffffu;
  for (const int step : {1, 2, 3, 8, 16}) add(32, 1, width * step, all);
  for (const int per_word : {2, 4, 8, 32}) {  // lanes that add to the same words
    add(32, per_word, width, all);
    add(32, per_word, 8 * width, all);
  }
  for (const unsigned lanes : {0x0000ffffu, 0x55555555u, 0x00000001u}) add(32, 1, width, lanes);
  add(96, 1, width, all);
}

void run_all() {
  const int capability = runtime::properties().compute_capability;
  if (capability != 0 && capability < 90) return;
  const std::vector<float> values(elements);
  Buffer out("out", elements * sizeof(float));
  out.upload(values.data(), out.bytes());
  run_matrix_stores<false>(out.as<float>());
  run_matrix_stores<true>(out.as<float>());
  run_reductions<1>(out.as<float>());
  run_reductions<2>(out.as<float>());
  run_reductions<4>(out.as<float>());
  runtime::synchronize();
}

}  // namespace calibration
