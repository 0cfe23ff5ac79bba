// One function for each PTX instruction that CUDA C++ has no name for, named after it. In the sim build the simulator does what
// the PTX ISA says of the instruction. In the pictures l is the lane, g = l / 4 and t = l % 4; a register holds two elements of
// 16 bits, the low half first.
#pragma once

#include <type_traits>

#include "common/device/dialect.h"

namespace ptx {

template <class T>
inline constexpr bool is_mma_operand = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

#if defined(FLASHSTEPS_SIM)

using simt::bar_arrive;
using simt::bar_sync;

[[gnu::always_inline]] inline void ldmatrix_x1(std::uint32_t (&r)[1], const void* row,
                                               const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 1, false, where);
}
[[gnu::always_inline]] inline void ldmatrix_x1_trans(std::uint32_t (&r)[1], const void* row,
                                                     const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 1, true, where);
}
[[gnu::always_inline]] inline void ldmatrix_x2(std::uint32_t (&r)[2], const void* row,
                                               const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 2, false, where);
}
[[gnu::always_inline]] inline void ldmatrix_x2_trans(std::uint32_t (&r)[2], const void* row,
                                                     const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 2, true, where);
}
[[gnu::always_inline]] inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row,
                                               const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 4, false, where);
}
[[gnu::always_inline]] inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row,
                                                     const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 4, true, where);
}

template <class T>
[[gnu::always_inline]] inline void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                                const std::source_location where = std::source_location::current()) {
  static_assert(is_mma_operand<T>, "__half or __nv_bfloat16");
  simt::mma(c, a, b, 16, std::is_same_v<T, __nv_bfloat16>, where);
}
template <class T>
[[gnu::always_inline]] inline void mma_m16n8k8(float (&c)[4], const std::uint32_t (&a)[2], const std::uint32_t (&b)[1],
                                               const std::source_location where = std::source_location::current()) {
  static_assert(is_mma_operand<T>, "__half or __nv_bfloat16");
  simt::mma(c, a, b, 8, std::is_same_v<T, __nv_bfloat16>, where);
}

[[gnu::always_inline]] inline void cp_async_4(void* to, const void* from, int source_bytes = 4) {
  simt::cp_async(to, from, 4, static_cast<std::uint32_t>(source_bytes), false);
}
[[gnu::always_inline]] inline void cp_async_8(void* to, const void* from, int source_bytes = 8) {
  simt::cp_async(to, from, 8, static_cast<std::uint32_t>(source_bytes), false);
}
[[gnu::always_inline]] inline void cp_async_16(void* to, const void* from, int source_bytes = 16) {
  simt::cp_async(to, from, 16, static_cast<std::uint32_t>(source_bytes), true);
}
[[gnu::always_inline]] inline void cp_async_16_ca(void* to, const void* from, int source_bytes = 16) {
  simt::cp_async(to, from, 16, static_cast<std::uint32_t>(source_bytes), false);
}
using simt::cp_async_commit_group;
using simt::cp_async_wait_all;
template <int pending>
inline void cp_async_wait_group() {
  simt::cp_async_wait_group(pending);
}

inline float ex2_approx_ftz(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}

#else

// The address of shared memory as the instructions below take it: 32 bits.
__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- barriers of some warps ----

// bar.sync id, threads: waits until `threads` threads have come to barrier `id`, by bar.sync or bar.arrive. id is 1 … 15 (0 is
// __syncthreads()'s), threads a multiple of 32; every lane of a warp must make the call. PTX ISA, "barrier{.cta}".
__device__ inline void bar_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// bar.arrive id, threads: counts as having come, and goes on.
__device__ inline void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- ldmatrix: 8 × 8 matrices of 16-bit elements from shared memory to the registers of a warp ----
//
// Lane 8 m + r gives the address of row r of matrix m: 16 bytes, a multiple of 16. Register m of lane l gets the elements
// [g][2t] and [g][2t + 1] of matrix m; with .trans [2t][g] and [2t + 1][g]. That is how mma.sync wants its operands. Addresses
// of lanes beyond the last matrix are ignored. All lanes of the warp must make the call. PTX ISA, "ldmatrix".

__device__ inline void ldmatrix_x1(std::uint32_t (&r)[1], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(shared_address(row)) : "memory");
}
__device__ inline void ldmatrix_x1_trans(std::uint32_t (&r)[1], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(shared_address(row)) : "memory");
}
__device__ inline void ldmatrix_x2(std::uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void ldmatrix_x2_trans(std::uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// ---- mma.sync: C += A · B by a warp, with 16-bit operands (__half or __nv_bfloat16) and sums in fp32 ----
//
// A is 16 × K, B is K × 8, C is 16 × 8. Of lane l:
//   A, element i (2 in each register)   row g + 8 (i / 2 % 2), column 2t + i % 2 + 8 (i / 4)
//   B, element i                        row (k) 2t + i % 2 + 8 (i / 2), column (n) g
//   C, element i                        row g + 8 (i / 2), column 2t + i % 2
// All lanes of the warp must make the call. PTX ISA, "mma", matrix fragments for m16n8k16 and m16n8k8.

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

// ---- cp.async: copies from device to shared memory that go on beside the thread ----
//
// Copies 4, 8 or 16 bytes, both addresses a multiple of that. Only the first source_bytes are read, the rest becomes zero: 0
// fills with zeros and reads nothing. Copies of 16 bytes go past L1 (.cg), or through it (_ca). The copy belongs to the group
// that the thread's next cp_async_commit_group() closes; cp_async_wait_group<n>() waits until at most the n latest groups of
// this thread are under way. Other threads see the bytes after a barrier behind that wait. PTX ISA, "cp.async".

__device__ inline void cp_async_4(void* to, const void* from, int source_bytes = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(source_bytes)
               : "memory");
}
__device__ inline void cp_async_8(void* to, const void* from, int source_bytes = 8) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)), "l"(from), "r"(source_bytes)
               : "memory");
}
__device__ inline void cp_async_16(void* to, const void* from, int source_bytes = 16) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(source_bytes)
               : "memory");
}
__device__ inline void cp_async_16_ca(void* to, const void* from, int source_bytes = 16) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(source_bytes)
               : "memory");
}
__device__ inline void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ inline void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
__device__ inline void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- ex2: 2^x, to 2 ulp, in one instruction of the special function unit; subnormal results become 0. PTX ISA, "ex2" ----
__device__ inline float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif

}  // namespace ptx
