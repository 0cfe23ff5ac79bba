// ldmatrix: 8 × 8 matrices of 16-bit elements from shared memory to the registers of a warp
//
// Lane 8 m + r gives the address of row r of matrix m: 16 bytes, a multiple of 16. Register m of lane l gets the elements
// [g][2t] and [g][2t + 1] of matrix m; with .trans [2t][g] and [2t + 1][g]. That is how mma.sync wants its operands. Addresses
// of lanes beyond the last matrix are ignored. All lanes of the warp must make the call. PTX ISA, "ldmatrix".
//
// l is the lane, g = l / 4 and t = l % 4; a register holds two elements of 16 bits, the low half first.
#pragma once

#include "common/device/dialect.h"
#include "common/device/ptx/shared_address.cuh"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::ldmatrix_x1;
using simt::ptx::ldmatrix_x1_trans;
using simt::ptx::ldmatrix_x2;
using simt::ptx::ldmatrix_x2_trans;
using simt::ptx::ldmatrix_x4;
using simt::ptx::ldmatrix_x4_trans;

#else

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

#endif

}  // namespace ptx
