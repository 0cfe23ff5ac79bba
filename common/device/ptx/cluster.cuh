// The blocks of a cluster: which they are, their barrier, and the way to each other's shared memory.
//
// runtime::LaunchConfig::cluster says how many blocks are a cluster. They run at the same time. cluster_rank() is the block's
// number among them, x first; cluster_size() is how many there are. In a launch without clusters each block is one.
//
// cluster_arrive() says that the thread has come to the barrier of the cluster; cluster_wait() waits until all threads of the
// cluster have, and sees what they did before. A thread must wait before it arrives again; it may work in between. Threads that
// have ended are not waited for. cluster_arrive_relaxed() lets nobody see anything. cluster_sync() arrives and waits.
//
// in_block(&smem.x, rank) is the address of the same x in the shared memory of block `rank`. Plain loads, stores and atomics
// take it; cp.async and ldmatrix do not. A block must not end while another one may still access its shared memory: all meet
// before they end.
//
// From sm_90 on: kernels that use these stand in NAME.sm_90.cu. PTX ISA, "barrier.cluster", "mapa", "%cluster_ctarank".
#pragma once

#include "common/device/dialect.h"
#if defined(FLASHSTEPS_SIM)
#include "common/simt/ptx.h"
#endif

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::cluster_arrive;
using simt::ptx::cluster_arrive_relaxed;
using simt::ptx::cluster_rank;
using simt::ptx::cluster_size;
using simt::ptx::cluster_sync;
using simt::ptx::cluster_wait;
using simt::ptx::in_block;

#else

__device__ inline int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline int cluster_size() {
  int size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

// The address that the instruction takes may be generic, and so is the one that it gives.
template <class T>
__device__ inline T* in_block(T* pointer, int rank) {
  std::uint64_t there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(reinterpret_cast<std::uint64_t>(pointer)), "r"(rank));
  return reinterpret_cast<T*>(there);
}

#endif

}  // namespace ptx
