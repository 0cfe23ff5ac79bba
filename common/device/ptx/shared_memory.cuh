// Instructions that address shared memory: ldmatrix, stmatrix and cp.async. They stand in one file with the address that all of
// them take: nvcc gives lines of a helper from another file the wrong name, and `make sass` could not tell whose access an
// instruction is.
//
// ldmatrix: 8 × 8 matrices of 16-bit elements from shared memory to the registers of a warp
//
// Lane 8 m + r gives the address of row r of matrix m: 16 bytes, a multiple of 16. Register m of lane l gets the elements
// [g][2t] and [g][2t + 1] of matrix m; with .trans [2t][g] and [2t + 1][g]. That is how mma.sync wants its operands. Addresses
// of lanes beyond the last matrix are ignored. All lanes of the warp must make the call. PTX ISA, "ldmatrix".
//
// stmatrix: the same way back, from registers to shared memory
//
// Lane 8 m + r gives the address of row r of matrix m, as above. Register m of lane l holds the elements [g][2t] and [g][2t +
// 1] of matrix m, which are the places of mma.sync's sums once two of them are rounded to 16 bits; with .trans [2t][g] and [2t
// + 1][g]. All lanes of the warp must make the call. From sm_90 on: kernels that use it stand in NAME.sm_90.cu. PTX ISA,
// "stmatrix".
//
// l is the lane, g = l / 4 and t = l % 4; a register holds two elements of 16 bits, the low half first.
//
// cp.async: copies from device to shared memory that go on beside the thread
//
// Copies 4, 8 or 16 bytes, both addresses a multiple of that. Only the first source_bytes are read, the rest becomes zero: 0
// fills with zeros and reads nothing. Copies of 16 bytes go past L1 (.cg), or through it (_ca). The copy belongs to the group
// that the thread's next cp_async_commit_group() closes; cp_async_wait_group<n>() waits until at most the n latest groups of
// this thread are under way. Other threads see the bytes after a barrier behind that wait. PTX ISA, "cp.async".
#pragma once

#include "common/device/dialect.h"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::cp_async_16;
using simt::ptx::cp_async_16_ca;
using simt::ptx::cp_async_4;
using simt::ptx::cp_async_8;
using simt::ptx::cp_async_commit_group;
using simt::ptx::cp_async_wait_all;
using simt::ptx::cp_async_wait_group;
using simt::ptx::ldmatrix_x1;
using simt::ptx::ldmatrix_x1_trans;
using simt::ptx::ldmatrix_x2;
using simt::ptx::ldmatrix_x2_trans;
using simt::ptx::ldmatrix_x4;
using simt::ptx::ldmatrix_x4_trans;
using simt::ptx::stmatrix_x4;
using simt::ptx::stmatrix_x4_trans;

#else

// The address of shared memory as the instructions take it: 32 bits.
__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

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

__device__ inline void stmatrix_x4(void* row, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ inline void stmatrix_x4_trans(void* row, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

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

#endif

}  // namespace ptx
