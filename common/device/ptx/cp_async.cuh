// cp.async: copies from device to shared memory that go on beside the thread
//
// Copies 4, 8 or 16 bytes, both addresses a multiple of that. Only the first source_bytes are read, the rest becomes zero: 0
// fills with zeros and reads nothing. Copies of 16 bytes go past L1 (.cg), or through it (_ca). The copy belongs to the group
// that the thread's next cp_async_commit_group() closes; cp_async_wait_group<n>() waits until at most the n latest groups of
// this thread are under way. Other threads see the bytes after a barrier behind that wait. PTX ISA, "cp.async".
#pragma once

#include "common/device/dialect.h"
#include "common/device/ptx/shared_address.cuh"
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

#else

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
