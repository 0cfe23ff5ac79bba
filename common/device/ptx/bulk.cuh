// cp.async.bulk: copies of many bytes between device and shared memory, which one thread asks for
//
// Both addresses and the size are multiples of 16. bulk_load(to, from, bytes, barrier) copies to shared memory; when the bytes
// have come, the mbarrier's phase expects so many less (mbarrier_tx.cuh). Who has found the end of that phase sees them.
// bulk_store(to, from, bytes) copies to device memory. It belongs to the group that the thread's next bulk_commit_group()
// closes; bulk_wait_group_read<n>() waits until at most the n latest groups of this thread may still read shared memory, and
// bulk_wait_group<n>() until at most these are not complete. A thread does not end before its groups have read.
//
// These copies go by another way than loads and stores (the asynchronous proxy). Whoever has stored to shared memory says
// fence_proxy_async() before the barrier behind which a copy is asked for that reads or writes there; and fence_mbarrier_init()
// behind mbarrier_init(). Where threads have only read, or waited for a bulk_load, order is enough. From 9.0 on: kernels that
// use these stand in NAME.sm_90.cu. PTX ISA, "cp.async.bulk", "fence.proxy.async".
#pragma once

#include "common/device/ptx/mbarrier_tx.cuh"

namespace ptx {

#if defined(FLASHSTEPS_SIM)

using simt::ptx::bulk_commit_group;
using simt::ptx::bulk_load;
using simt::ptx::bulk_store;
using simt::ptx::bulk_wait_group;
using simt::ptx::bulk_wait_group_read;
using simt::ptx::fence_mbarrier_init;
using simt::ptx::fence_proxy_async;

#else

__device__ inline void bulk_load(void* to, const void* from, int bytes, Mbarrier& barrier) {
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(from), "r"(bytes), "r"(mbarrier_address(barrier))
               : "memory");
}
__device__ inline void bulk_store(void* to, const void* from, int bytes) {
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared), "r"(bytes) : "memory");
}
__device__ inline void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int pending>
__device__ inline void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}
template <int pending>
__device__ inline void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

#endif

}  // namespace ptx
