// Barriers of some warps of a block.
//
// bar.sync id, threads: waits until `threads` threads have come to barrier `id`, by bar.sync or bar.arrive. id is 1 … 15 (0 is
// __syncthreads()'s), threads a multiple of 32; every lane of a warp must make the call. bar.arrive counts as having come, and
// goes on. All lanes of a warp must wait in the same bar.sync. Other warps may wait in another one, but the synccheck tool of
// compute-sanitizer reports that, and so does the simulator. Warps of different roles wait in barrier.sync, with which neither
// finds fault. PTX ISA, "barrier{.cta}".
#pragma once

#include "common/device/dialect.h"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::bar_arrive;
using simt::ptx::bar_sync;
using simt::ptx::barrier_sync;

#else

__device__ inline void bar_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ inline void barrier_sync(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif

}  // namespace ptx
