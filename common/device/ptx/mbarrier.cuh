// mbarrier: a barrier that lies in shared memory, and at which copies can arrive, too
//
// mbarrier_init(barrier, arrivals) begins phase 0. A phase ends when so many arrivals have come (and, from 9.0 on, as many
// bytes as are expected: mbarrier_tx.cuh); then the next one begins, which takes as many. The parity of a phase is its number's
// last bit. mbarrier_test_wait(barrier, parity) asks whether the phase of that parity is over: the one under way (no), or the
// one before it (yes). So a thread that falls two phases behind is lost. mbarrier_wait() asks until it is so. What a thread did
// before it arrived is seen by those who have found the end of the phase. cp_async_mbarrier_arrive() arrives once all cp.async
// that the thread has issued so far are complete; it counts as one arrival (.noinc). What these copies wrote is then seen, but
// not what the thread wrote itself.
//
// The memory of an mbarrier is touched by nothing else, until mbarrier_inval(). The threads that use it must see that it was
// made: a barrier comes in between. PTX ISA, "mbarrier", "cp.async.mbarrier.arrive".
#pragma once

#include "common/device/dialect.h"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::cp_async_mbarrier_arrive;
using simt::ptx::Mbarrier;
using simt::ptx::mbarrier_arrive;
using simt::ptx::mbarrier_init;
using simt::ptx::mbarrier_inval;
using simt::ptx::mbarrier_test_wait;
using simt::ptx::mbarrier_wait;

#else

struct alignas(8) Mbarrier {
  std::uint64_t opaque;
};

__device__ inline std::uint32_t mbarrier_address(const Mbarrier& barrier) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(&barrier));
}

__device__ inline void mbarrier_init(Mbarrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(mbarrier_address(barrier)), "r"(arrivals) : "memory");
}
__device__ inline void mbarrier_inval(Mbarrier& barrier) {
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(mbarrier_address(barrier)) : "memory");
}
__device__ inline void mbarrier_arrive(Mbarrier& barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(mbarrier_address(barrier)) : "memory");
}
__device__ inline void cp_async_mbarrier_arrive(Mbarrier& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(mbarrier_address(barrier)) : "memory");
}
__device__ inline bool mbarrier_test_wait(Mbarrier& barrier, int parity) {
  std::uint32_t over;
  asm volatile("{.reg .pred over; mbarrier.test_wait.parity.shared.b64 over, [%1], %2; selp.u32 %0, 1, 0, over;}"
               : "=r"(over)
               : "r"(mbarrier_address(barrier)), "r"(parity)
               : "memory");
  return over != 0;
}
__device__ inline void mbarrier_wait(Mbarrier& barrier, int parity) {
  while (!mbarrier_test_wait(barrier, parity)) {
  }
}

#endif

}  // namespace ptx
