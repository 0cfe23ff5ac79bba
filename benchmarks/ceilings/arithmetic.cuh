// Ceilings, arithmetic: how fast numbers are multiplied.
//
// Operands come from memory once, so that the compiler knows nothing about them, and then stay in registers. They are random:
// multiplying zeros takes less power, and a GPU with power to spare keeps its clock.
#pragma once

#include "common/device/ptx/arithmetic.cuh"

namespace ceilings {

constexpr int fma_chains = 8;  // that do not wait for each other
constexpr int fma_unroll = 8;

// rounds · fma_unroll · fma_chains multiply-adds by each thread, in fp32. Repeated, s = s² + c with c in (−2, −1.8) jumps about
// between −2 and 2 and does not settle: operands are new each time, and one multiply-add more or less gives another result.
__global__ void __launch_bounds__(256) fma_chain(int rounds, const float* values,  // [4096 + fma_chains]: |value| < 1
                                                 float* sums) {                    // [threads of the launch]
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  const float c = fmaf(0.09f, values[t % 4096], -1.89f);
  float s[fma_chains];
#pragma unroll
  for (int i = 0; i < fma_chains; ++i) s[i] = values[t % 4096 + 1 + i];
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < fma_unroll * fma_chains; ++i) s[i % fma_chains] = fmaf(s[i % fma_chains], s[i % fma_chains], c);
  }
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < fma_chains; ++i) total += s[i];
  sums[t] = total;
}

constexpr int mma_a = 4;  // fragments of A, 16 × 16, of a warp
constexpr int mma_b = 8;  // fragments of B, 16 × 8
constexpr int mma_unroll = 2;
constexpr double mma_flops = 2.0 * 16 * 8 * 16;  // of one mma.sync.m16n8k16

// rounds · mma_unroll · 32 mma.sync by each warp, to 32 fragments of C: what a warp with a 64 × 64 tile of a matrix product
// executes, without its loads.
template <class T>
__global__ void __launch_bounds__(256) mma_chain(int rounds, const std::uint32_t* pairs,  // [4096 · 32]: two elements each
                                                 float* sums) {                           // [threads of the launch]
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  std::uint32_t a[mma_a][4], b[mma_b][2];
#pragma unroll
  for (int i = 0; i < 4 * mma_a; ++i) a[i / 4][i % 4] = pairs[t % 4096 + i * 4096];
#pragma unroll
  for (int i = 0; i < 2 * mma_b; ++i) b[i / 2][i % 2] = pairs[t % 4096 + (4 * mma_a + i) * 4096];
  // [doc: mma_loop]
  float c[mma_a][mma_b][4] = {};
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < mma_unroll * mma_a * mma_b; ++i) {
      const int p = i / mma_b % mma_a;
      const int q = p % 2 == 0 ? i % mma_b : mma_b - 1 - i % mma_b;  // there and back: at the turn B's fragment stays
      ptx::mma_m16n8k16<T>(c[p][q], a[p], b[q]);
    }
  }
  // [/doc: mma_loop]
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < 4 * mma_a * mma_b; ++i) total += c[i / 4 / mma_b][i / 4 % mma_b][i % 4];
  sums[t] = total;
}

}  // namespace ceilings
