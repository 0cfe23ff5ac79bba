// Instructions that compute, from registers to registers: ex2, prmt, max.NaN and mma.sync.
//
// ex2: 2^x, to 2 ulp, in one instruction of the special function unit; subnormal results become 0. PTX ISA, "ex2".
//
// prmt: a word of any four bytes of two words. Each digit of the selector, the lowest first, chooses a byte of the result: 0
// to 3 from `low`, 4 to 7 from `high`; 8 more: not the byte, but its highest bit, eight times. PTX ISA, "prmt".
//
// max.NaN of two packed numbers of 16 bits each: the larger, or NaN where one is NaN. PTX ISA, "max".
//
// mma.sync: C += A · B by a warp, with 16-bit operands (__half or __nv_bfloat16) and sums in fp32; or D = A · B + C, for sums
// that do not begin where they end
//
// A is 16 × K, B is K × 8, C and D are 16 × 8. Of lane l:
//   A, element i (2 in each register)   row g + 8 (i / 2 % 2), column 2t + i % 2 + 8 (i / 4)
//   B, element i                        row (k) 2t + i % 2 + 8 (i / 2), column (n) g
//   C and D, element i                  row g + 8 (i / 2), column 2t + i % 2
// All lanes of the warp must make the call. PTX ISA, "mma", matrix fragments for m16n8k16 and m16n8k8.
//
// l is the lane, g = l / 4 and t = l % 4; a register holds two elements of 16 bits, the low half first.
#pragma once

#include <type_traits>

#include "common/device/dialect.h"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::ex2_approx_ftz;
using simt::ptx::max_nan_x2;
using simt::ptx::mma_m16n8k16;
using simt::ptx::mma_m16n8k8;
using simt::ptx::prmt;

#else

__device__ inline float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline std::uint32_t prmt(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  std::uint32_t word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "r"(selector));
  return word;
}

template <class T>
__device__ inline std::uint32_t max_nan_x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t larger;
  if constexpr (std::is_same_v<T, __half>) {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  } else {
    static_assert(std::is_same_v<T, __nv_bfloat16>, "__half or __nv_bfloat16");
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  }
  return larger;
}

template <class T>
inline constexpr bool is_mma_operand = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

template <class T>
__device__ inline void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  static_assert(is_mma_operand<T>, "__half or __nv_bfloat16");
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

template <class T>
__device__ inline void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                    const float (&c)[4]) {
  static_assert(is_mma_operand<T>, "__half or __nv_bfloat16");
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
        "%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  }
}

template <class T>
__device__ inline void mma_m16n8k8(float (&c)[4], const std::uint32_t (&a)[2], const std::uint32_t (&b)[1]) {
  static_assert(is_mma_operand<T>, "__half or __nv_bfloat16");
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  } else {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  }
}

#endif

}  // namespace ptx
