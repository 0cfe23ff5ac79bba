// One function for each PTX instruction that CUDA C++ has no name for, named after it. In the sim build the simulator does what
// the PTX ISA says of the instruction.
#pragma once

#include "common/device/dialect.h"

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::bar_arrive;
using simt::bar_sync;

#else

// bar.sync id, threads: waits until `threads` threads have come to barrier `id`, by bar.sync or bar.arrive. id is 1 … 15 (0 is
// __syncthreads()'s), threads a multiple of 32; every lane of a warp must make the call. PTX ISA, "barrier{.cta}".
__device__ inline void bar_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// bar.arrive id, threads: counts as having come, and goes on.
__device__ inline void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif

}  // namespace ptx
