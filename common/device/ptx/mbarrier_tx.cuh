// mbarrier from 9.0 on: phases that count bytes, too, and a wait that lets the thread sleep
//
// A phase ends when all arrivals have come, and as many bytes of bulk copies (bulk.cuh) as are expected.
// mbarrier_expect_tx(barrier, bytes) expects so many more; mbarrier_arrive_expect_tx() also arrives. mbarrier_try_wait(barrier,
// parity) is mbarrier_test_wait(), but it may wait for a while before it says that the phase is not over. Kernels that use
// these stand in NAME.sm_90.cu. PTX ISA, "mbarrier".
#pragma once

#include "common/device/ptx/mbarrier.cuh"

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::mbarrier_arrive_expect_tx;
using simt::ptx::mbarrier_expect_tx;
using simt::ptx::mbarrier_try_wait;

#else

__device__ inline void mbarrier_expect_tx(Mbarrier& barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(mbarrier_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ inline void mbarrier_arrive_expect_tx(Mbarrier& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ inline bool mbarrier_try_wait(Mbarrier& barrier, int parity) {
  std::uint32_t over;
  asm volatile("{.reg .pred over; mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2; selp.u32 %0, 1, 0, over;}"
               : "=r"(over)
               : "r"(mbarrier_address(barrier)), "r"(parity)
               : "memory");
  return over != 0;
}

#endif

}  // namespace ptx
