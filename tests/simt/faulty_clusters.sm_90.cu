// Of the kernels with one fault each those whose blocks form clusters: of two blocks of 64 threads, unless something else is
// said.
#include "common/device/dialect.h"
#include "common/device/ptx/barrier.cuh"
#include "common/device/ptx/bulk.cuh"
#include "common/device/ptx/cluster.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"
#include "tests/simt/faulty_kernels.h"

namespace faulty {
namespace {

using runtime::launch;

constexpr int threads = 64;

struct ClusterSmem {
  alignas(16) float values[64];
  int count;
  int more;
};

struct CopySmem {
  ptx::Mbarrier full;
  alignas(16) float values[64];
};

struct RowsSmem {
  alignas(16) float rows[32][4];
};

__device__ int other_rank() { return 1 - ptx::cluster_rank(); }

// The barrier of the cluster, but nobody lets others see what he did.
__device__ void meet_relaxed() {
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

// Every kernel is two: with `mended`, it is right. All take the same parameters.

// ---- races ----

template <bool mended>
__global__ void read_before_barrier(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  ptx::cluster_sync();                                                                      // all have begun
  smem.values[t] = t;                                                                       // one: read_before_barrier
  if (mended) ptx::cluster_sync();                                                          // the values are there
  o[threads * blockIdx.x + t] = ptx::in_block(smem.values, other_rank())[threads - 1 - t];  // other: read_before_barrier
  ptx::cluster_sync();                                                                      // all have read
}

// The block's own barrier lets nobody else see anything.
template <bool mended>
__global__ void barrier_of_one_block(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  ptx::cluster_sync();  // all have begun
  smem.values[t] = t;   // one: barrier_of_one_block
  __syncthreads();
  if (mended) ptx::cluster_sync();  // the values are there
  __syncthreads();
  o[threads * blockIdx.x + t] = ptx::in_block(smem.values, other_rank())[threads - 1 - t];  // other: barrier_of_one_block
  ptx::cluster_sync();                                                                      // all have read
}

template <bool mended>
__global__ void relaxed_is_no_release(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;  // one: relaxed_is_no_release
  if (mended) {
    ptx::cluster_arrive();
  } else {
    ptx::cluster_arrive_relaxed();
  }
  ptx::cluster_wait();
  o[threads * blockIdx.x + t] = ptx::in_block(smem.values, other_rank())[threads - 1 - t];  // other: relaxed_is_no_release
  ptx::cluster_sync();                                                                      // all have read
}

// What is stored between arriving and waiting nobody may read yet.
template <bool mended>
__global__ void stored_after_arrival(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  if (!mended) ptx::cluster_arrive();
  smem.values[t] = t;  // one: stored_after_arrival
  if (mended) ptx::cluster_arrive();
  ptx::cluster_wait();
  o[threads * blockIdx.x + t] = ptx::in_block(smem.values, other_rank())[threads - 1 - t];  // other: stored_after_arrival
  ptx::cluster_sync();                                                                      // all have read
}

// The same by one of the blocks, while the other one waits at once.
template <bool mended>
__global__ void stored_after_one_arrived(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  if (ptx::cluster_rank() == 0) {
    ptx::cluster_sync();                                    // the other block has stored, if it did before it arrived
    o[t] = ptx::in_block(smem.values, 1)[threads - 1 - t];  // other: stored_after_one_arrived
  } else {
    if (!mended) ptx::cluster_arrive();
    smem.values[t] = t;  // one: stored_after_one_arrived
    if (mended) ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  ptx::cluster_sync();  // all have read
}

// The other block stores to what a bulk copy reads: no barrier says that it has read it.
template <bool mended>
__global__ void given_under_bulk_copy(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  const bool copies = ptx::cluster_rank() == 0 && t == 0;
  smem.values[t] = t;
  ptx::fence_proxy_async();
  ptx::cluster_sync();  // the values are there
  if (copies) {
    ptx::bulk_store(o, smem.values, sizeof(smem.values));  // one: given_under_bulk_copy
    ptx::bulk_commit_group();
    if (mended) ptx::bulk_wait_group_read<0>();
  }
  ptx::cluster_sync();                                                    // the copy is under way
  if (ptx::cluster_rank() == 1) ptx::in_block(smem.values, 0)[t] = 1.0f;  // other: given_under_bulk_copy
  ptx::cluster_sync();                                                    // all have stored
  if (copies) ptx::bulk_wait_group<0>();
}

// Who waits for a copy after it has arrived tells the other block nothing of it.
template <bool mended>
__global__ void waited_after_arrival(const float* q, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  if (t == 0) {
    ptx::mbarrier_init(smem.full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(smem.full, sizeof(smem.values));
    ptx::bulk_load(smem.values, q, sizeof(smem.values), smem.full);  // one: waited_after_arrival
  }
  if (t == 0 && mended) ptx::mbarrier_wait(smem.full, 0);
  ptx::cluster_arrive();
  if (t == 0 && !mended) ptx::mbarrier_wait(smem.full, 0);
  ptx::cluster_wait();
  o[threads * blockIdx.x + t] = ptx::in_block(smem.values, other_rank())[threads - 1 - t];  // other: waited_after_arrival
  ptx::cluster_sync();                                                                      // all have read
}

// The first warp has ended, and counts as come; but what it did nobody has seen.
template <bool mended>
__global__ void stored_by_exited(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  if (t < 32) smem.values[t] = t;  // one: stored_by_exited
  if (!mended && t < 32) return;
  ptx::cluster_sync();  // the values are there
  if (t >= 32)
    o[threads * blockIdx.x + t] = ptx::in_block(smem.values, other_rank())[threads - 1 - t];  // other: stored_by_exited
  ptx::cluster_sync();                                                                        // all have read
}

template <bool mended>
__global__ void given_under_reader(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  ptx::cluster_sync();                                         // the values are there
  o[threads * blockIdx.x + t] = smem.values[threads - 1 - t];  // one: given_under_reader
  if (mended) ptx::cluster_sync();                             // all have read
  ptx::in_block(smem.values, other_rank())[t] = 1.0f;          // other: given_under_reader
  ptx::cluster_sync();                                         // what was given is there before a block ends
}

template <bool mended>
__global__ void given_by_two(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  ptx::cluster_sync();                                                        // all have begun
  if (ptx::cluster_rank() == 0) smem.values[t] = t;                           // one: given_by_two
  if (mended) ptx::cluster_sync();                                            // the first block has stored
  if (ptx::cluster_rank() == 1) ptx::in_block(smem.values, 0)[t ^ 1] = 1.0f;  // other: given_by_two
  ptx::cluster_sync();                                                        // all is given before a block ends
  if (ptx::cluster_rank() == 0) o[t] = smem.values[t];
}

// Where rows of 16 bytes are remembered as a whole.
template <bool mended>
__global__ void vectors_before_barrier(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  ptx::cluster_sync();  // all have begun
  float4 four = {1.0f, 2.0f, 3.0f, 4.0f};
  if (t < 16) device::store(reinterpret_cast<float4*>(&smem.values[4 * t]), four);  // one: vectors_before_barrier
  __syncthreads();
  if (mended) ptx::cluster_sync();  // the values are there
  const float* const others = ptx::in_block(smem.values, other_rank());
  if (t < 16) four = device::load(reinterpret_cast<const float4*>(&others[60 - 4 * t]));  // other: vectors_before_barrier
  o[threads * blockIdx.x + t] = four.x;
  ptx::cluster_sync();  // all have read
}

template <bool mended>
__global__ void row_given_under_matrix(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<RowsSmem>();
  const int t = threadIdx.x;
  for (int i = t; i < 128; i += threads) smem.rows[i / 4][i % 4] = 1.0f;
  ptx::cluster_sync();  // the rows are there
  std::uint32_t r[4];
  ptx::ldmatrix_x4(r, smem.rows[t % 32]);                           // one: row_given_under_matrix
  if (mended) ptx::cluster_sync();                                  // all have read
  if (t == 0) ptx::in_block(smem.rows, other_rank())[7][2] = 2.0f;  // other: row_given_under_matrix
  ptx::cluster_sync();                                              // what was given is there before a block ends
  o[threads * blockIdx.x + t] = r[0];
}

template <bool mended>
__global__ void plain_beside_others_atomic(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  if (t == 0) smem.count = 0;
  ptx::cluster_sync();                              // the counts are 0
  atomicAdd(ptx::in_block(&smem.count, 0), 1);      // one: plain_beside_others_atomic
  if (mended) ptx::cluster_sync();                  // all have counted
  if (ptx::cluster_rank() == 0) o[t] = smem.count;  // other: plain_beside_others_atomic
  ptx::cluster_sync();                              // all have counted before a block ends
}

// An atomic of block scope is none for another block.
template <bool mended>
__global__ void atomic_of_one_block(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  if (t == 0) smem.count = 0;
  ptx::cluster_sync();  // the counts are 0
  if (ptx::cluster_rank() == 0) {
    if (mended) {
      atomicAdd(&smem.count, 1);
    } else {
      atomicAdd_block(&smem.count, 1);  // one: atomic_of_one_block
    }
  } else {
    atomicAdd(ptx::in_block(&smem.count, 0), 1);  // other: atomic_of_one_block
  }
  ptx::cluster_sync();  // all have counted before a block ends
  if (ptx::cluster_rank() == 0) o[t] = smem.count;
}

// A flag in another block's shared memory.
template <bool mended>
__global__ void flag_in_other_block(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x, rank = ptx::cluster_rank();
  if (t == 0) smem.count = 0;
  ptx::cluster_sync();  // the flag is not raised
  if (t == 0 && rank == 1) {
    smem.values[0] = 1.0f;  // one: flag_in_other_block
    if (mended) __threadfence();
    atomicExch(ptx::in_block(&smem.count, 0), 1);
  }
  if (t == 0 && rank == 0) {
    while (atomicAdd(&smem.count, 0) == 0) {
    }
    __threadfence();
    o[0] = ptx::in_block(smem.values, 1)[0];  // other: flag_in_other_block
  }
  ptx::cluster_sync();  // all have read before a block ends
}

// The fence and the flag are of different blocks, and the barrier of the cluster stands between them. (Of the grid's two
// clusters the second one reads.)
template <bool mended>
__global__ void fence_before_cluster(const float*, float* o) {  // [5, 64]
  const int t = threadIdx.x, rank = ptx::cluster_rank();
  const bool first = blockIdx.x < 2;
  if (first && rank == 0 && t == 0) {
    o[0] = 1.0f;  // one: fence_before_cluster
    if (mended) __threadfence();
  }
  ptx::cluster_sync();  // the first block has stored
  int* const flag = reinterpret_cast<int*>(&o[256]);
  if (first && rank == 1 && t == 33) atomicExch(flag, 1);
  if (!first && t == 0) {
    while (atomicAdd(flag, 0) == 0) {
    }
    __threadfence();
    o[64 * blockIdx.x] = o[0];  // other: fence_before_cluster
  }
}

// A copy goes on until its thread has waited for it, whatever barriers there are.
template <bool mended>
__global__ void others_copy(const float* q, float* o) {  // [128], [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.values[t], &q[t]);  // one: others_copy
  if (mended) ptx::cp_async_wait_all();
  ptx::cluster_sync();  // the values are there, if all have waited
  o[threads * blockIdx.x + t] = ptx::in_block(smem.values, other_rank())[threads - 1 - t];  // other: others_copy
  ptx::cluster_sync();                                                                      // all have read
}

// Device memory, by way of the cluster's barrier.
template <bool mended>
__global__ void device_memory_of_cluster(const float*, float* o) {  // [2, 64], and 64 more
  const int t = threadIdx.x;
  if (ptx::cluster_rank() == 0) o[128 + t] = t;  // one: device_memory_of_cluster
  if (mended) {
    ptx::cluster_sync();  // the values are there
  } else {
    meet_relaxed();
  }
  if (ptx::cluster_rank() == 1) o[t] = o[128 + threads - 1 - t];  // other: device_memory_of_cluster
}

// ---- other faults ----

template <bool mended>
__global__ void no_closing_barrier(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  ptx::cluster_sync();  // the values are there
  const float* const others = ptx::in_block(smem.values, other_rank());
  const float first = others[threads - 1 - t];
  ptx::cluster_sync();
  o[threads * blockIdx.x + t] = first + others[t];  // fault: no_closing_barrier
  if (mended) ptx::cluster_sync();                  // all have read
}

template <bool mended>
__global__ void closing_barrier_of_block(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  if (t == 0) smem.count = 0;
  ptx::cluster_sync();                                                        // the counts are 0
  if (ptx::cluster_rank() == 1) atomicAdd(ptx::in_block(&smem.count, 0), 1);  // fault: closing_barrier_of_block
  if (mended) {
    ptx::cluster_sync();  // all have counted
  } else {
    __syncthreads();
  }
  o[threads * blockIdx.x + t] = t;
}

template <bool mended>
__global__ void closing_barrier_is_relaxed(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x, rank = ptx::cluster_rank();
  smem.values[t] = t;
  ptx::cluster_sync();  // the values are there
  const float* const others = ptx::in_block(smem.values, 1);
  const float first = rank == 0 ? others[threads - 1 - t] : 0.0f;
  ptx::cluster_sync();
  if (rank == 0) o[t] = first + others[t];  // fault: closing_barrier_is_relaxed
  if (mended) {
    ptx::cluster_sync();  // all have read
  } else {
    meet_relaxed();
  }
}

// One block waits for a flag that the other one raises when it has read, and may end: no barrier is needed. Without a fence
// the flag says nothing.
template <bool mended>
__global__ void flag_before_end(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x, rank = ptx::cluster_rank();
  smem.values[t] = t;
  if (t == 0) smem.count = 0;
  ptx::cluster_sync();  // the values are there
  if (t != 0) return;
  if (rank == 0) {
    o[0] = ptx::in_block(smem.values, 1)[5];  // fault: flag_before_end
    __threadfence();
    atomicExch(reinterpret_cast<int*>(&o[64]), 1);
  } else {
    while (atomicAdd(reinterpret_cast<int*>(&o[64]), 0) == 0) {
    }
    if (mended) __threadfence();
  }
}

// The atomic is seen by who waits for it, but the store before it is not.
template <bool mended>
__global__ void flag_behind_store(const float*, float*) {
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x, rank = ptx::cluster_rank();
  if (t == 0) smem.count = 0;
  ptx::cluster_sync();  // the flag is not raised
  if (t != 0) return;
  if (rank == 0) {
    ptx::in_block(smem.values, 1)[5] = 1.0f;  // fault: flag_behind_store
    if (mended) __threadfence();
    atomicExch(ptx::in_block(&smem.count, 1), 1);
  } else {
    while (atomicAdd(&smem.count, 0) == 0) {
    }
    __threadfence();
  }
}

// The same with an atomic that nobody waits for.
template <bool mended>
__global__ void flag_behind_atomic(const float*, float*) {
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x, rank = ptx::cluster_rank();
  if (t == 0) smem.count = smem.more = 0;
  ptx::cluster_sync();  // the flag is not raised
  if (t != 0) return;
  if (rank == 0) {
    atomicAdd(ptx::in_block(&smem.more, 1), 1);  // fault: flag_behind_atomic
    if (mended) __threadfence();
    atomicExch(ptx::in_block(&smem.count, 1), 1);
  } else {
    while (atomicAdd(&smem.count, 0) == 0) {
    }
    __threadfence();
  }
}

template <bool mended>
__global__ void given_too_early(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  if (mended) meet_relaxed();                       // all have begun
  ptx::in_block(smem.values, other_rank())[t] = t;  // fault: given_too_early
  ptx::cluster_sync();                              // what was given is there
  o[threads * blockIdx.x + t] = smem.values[t];
}

template <bool mended>
__global__ void arrived_twice(const float*, float* o) {  // [2, 64]
  ptx::cluster_arrive();
  o[threads * blockIdx.x + threadIdx.x] = 1.0f;
  if (mended) ptx::cluster_wait();
  ptx::cluster_arrive_relaxed();  // fault: arrived_twice
  ptx::cluster_wait();
}

template <bool mended>
__global__ void waited_without_arrival(const float*, float* o) {  // [2, 64]
  ptx::cluster_sync();
  o[threads * blockIdx.x + threadIdx.x] = 1.0f;
  if (mended) ptx::cluster_arrive();
  ptx::cluster_wait();  // fault: waited_without_arrival
}

// Of the second block the first warp waits for the second one, which waits for the cluster.
template <bool mended>
__global__ void block_that_never_comes(const float*, float* o) {  // [2, 64]
  const int t = threadIdx.x;
  if (ptx::cluster_rank() == 1 && (mended || t < 32)) ptx::bar_sync(1, 64);  // fault: block_that_never_comes
  ptx::cluster_sync();
  o[threads * blockIdx.x + t] = 1.0f;
}

template <bool mended>
__global__ void half_a_warp_arrives(const float*, float* o) {  // [2, 64]
  const int t = threadIdx.x;
  if (mended || t % 32 < 16) ptx::cluster_sync();
  __syncthreads();  // fault: half_a_warp_arrives
  o[threads * blockIdx.x + t] = 1.0f;
}

template <bool mended>
__global__ void rank_outside(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  ptx::cluster_sync();                                                                                 // the values are there
  const float* const next = ptx::in_block(smem.values, (ptx::cluster_rank() + 1) % (mended ? 2 : 3));  // fault: rank_outside
  o[threads * blockIdx.x + t] = next[t];
  ptx::cluster_sync();  // all have read
}

template <bool mended>
__global__ void mapped_device_memory(const float* q, float* o) {  // [128], [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  ptx::cluster_sync();                                                                // the values are there
  o[threads * blockIdx.x + t] = *ptx::in_block(mended ? &smem.values[t] : &q[t], 1);  // fault: mapped_device_memory
  ptx::cluster_sync();                                                                // all have read
}

// The address is right, but not in this cluster.
template <bool mended>
__global__ void memory_of_other_cluster(const float* q, float* o) {  // [128], [4, 64], and an address behind
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  auto* const address = reinterpret_cast<unsigned long long*>(&o[256]);
  smem.values[t] = t;
  if (t == 0 && blockIdx.x == 0) atomicExch(address, reinterpret_cast<unsigned long long>(mended ? q : smem.values));
  if (t == 0 && blockIdx.x == 3) {
    unsigned long long there = 0;
    while (there == 0) there = atomicAdd(address, 0);
    o[192] = *reinterpret_cast<const float*>(there);  // fault: memory_of_other_cluster
    atomicExch(address, 0);
  }
  if (t == 0 && blockIdx.x == 0) {
    while (atomicAdd(address, 0) != 0) {
    }
  }
}

template <bool mended>
__global__ void past_end_of_other(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  if (t == 0) smem.count = 1;
  ptx::cluster_sync();  // the counts are there
  const int* const count = ptx::in_block(&smem.count, other_rank());
  o[threads * blockIdx.x + t] = count[mended || t != 5 ? 0 : 64];  // fault: past_end_of_other
  ptx::cluster_sync();                                             // all have read
}

template <bool mended>
__global__ void others_not_written(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  if (mended || t != 13) smem.values[t] = t;
  ptx::cluster_sync();                                                        // the values are there, but perhaps for one
  o[threads * blockIdx.x + t] = ptx::in_block(smem.values, other_rank())[t];  // fault: others_not_written
  ptx::cluster_sync();                                                        // all have read
}

template <bool mended>
__global__ void added_to_unwritten(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  if (mended && threadIdx.x == 0) smem.count = 0;
  ptx::cluster_sync();                                                                   // the counts are 0
  if (threadIdx.x == 0 && blockIdx.x == 0) atomicAdd(ptx::in_block(&smem.count, 1), 1);  // fault: added_to_unwritten
  ptx::cluster_sync();                                                                   // all have counted
  o[threads * blockIdx.x + threadIdx.x] = 0.0f;
}

template <bool mended>
__global__ void others_at_odd_place(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  ptx::cluster_sync();  // the values are there
  const float* const others = ptx::in_block(&smem.values[mended ? 0 : 1], other_rank());
  float4 four = {};
  if (t < 8) four = device::load(reinterpret_cast<const float4*>(&others[4 * t]));  // fault: others_at_odd_place
  o[threads * blockIdx.x + t] = four.x;
  ptx::cluster_sync();  // all have read
}

template <bool mended>
__global__ void copied_to_other(const float* q, float* o) {  // [128], [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x, rank = mended ? ptx::cluster_rank() : other_rank();
  float* const to = ptx::in_block(smem.values, rank);
  ptx::cluster_sync();             // all have begun
  ptx::cp_async_4(&to[t], &q[t]);  // fault: copied_to_other
  ptx::cp_async_wait_all();
  ptx::cluster_sync();  // the copies are there
  o[threads * blockIdx.x + t] = smem.values[t];
}

template <bool mended>
__global__ void matrix_of_other(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<RowsSmem>();
  const int t = threadIdx.x, rank = mended ? ptx::cluster_rank() : other_rank();
  for (int i = t; i < 128; i += threads) smem.rows[i / 4][i % 4] = 1.0f;
  auto* const rows = ptx::in_block(smem.rows, rank);
  ptx::cluster_sync();  // the rows are there
  std::uint32_t r[4];
  ptx::ldmatrix_x4(r, rows[t % 32]);  // fault: matrix_of_other
  o[threads * blockIdx.x + t] = r[0];
  ptx::cluster_sync();  // all have read
}

template <bool mended>
__global__ void matrix_stored_to_other(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<RowsSmem>();
  const int t = threadIdx.x, rank = mended ? ptx::cluster_rank() : other_rank();
  auto* const rows = ptx::in_block(smem.rows, rank);
  ptx::cluster_sync();  // all have begun
  const std::uint32_t r[4] = {1, 2, 3, 4};
  if (t < 32) ptx::stmatrix_x4(rows[t], r);  // fault: matrix_stored_to_other
  o[threads * blockIdx.x + t] = 0.0f;
  ptx::cluster_sync();  // all have stored
}

// ---- correct ones ----

// A warp may arrive and end: what it did before it arrived is seen all the same. And blocks may go different ways.
__global__ void arrives_and_ends_kernel(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x, rank = ptx::cluster_rank();
  smem.values[t] = t;
  ptx::cluster_arrive();
  if (t >= 32 && rank == 0) return;
  ptx::cluster_wait();
  float sum = 0.0f;
  for (int round = 0; round < 3; ++round) {
    sum += ptx::in_block(smem.values, other_rank())[threads - 1 - t];
    if (rank == 0 || t < 32) {
      ptx::cluster_sync();  // all have read
    } else {
      ptx::cluster_arrive();
      __syncwarp();
      ptx::cluster_wait();
    }
    smem.values[t] = sum;
    __syncwarp();  // the warp's values are there
    ptx::cluster_arrive();
    sum += smem.values[t ^ 1];
    ptx::cluster_wait();  // the values of all are there
  }
  o[threads * blockIdx.x + t] = sum;
}

// A thread that ends lets nobody see anything; but what it did before a barrier of its block the others hand on.
__global__ void ends_behind_barrier_kernel(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  __syncthreads();  // the block's values are there
  if (t < 32) return;
  ptx::cluster_sync();  // the values of all are there
  o[threads * blockIdx.x + t] = ptx::in_block(smem.values, other_rank())[threads - 1 - t];
  ptx::cluster_sync();  // all have read
}

// The first thread ends, but the other block knows what it did, and hands it on to its own block.
__global__ void comes_back_kernel(const float*, float* o) {  // [2, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x, rank = ptx::cluster_rank();
  if (t == 0) smem.count = 0;
  ptx::cluster_sync();  // the flag is not raised
  if (t == 0 && rank == 0) {
    smem.values[0] = 1.0f;
    __threadfence();
    atomicExch(ptx::in_block(&smem.count, 1), 1);
    return;
  }
  if (t == 0) {
    while (atomicAdd(&smem.count, 0) == 0) {
    }
    __threadfence();
  }
  ptx::cluster_arrive();
  ptx::cluster_wait();  // the value is there
  if (rank == 0) o[t] = smem.values[0];
}

// What one block of the other cluster did one block of this cluster has seen, and so has the other one. The fence may come
// before the cluster's barrier, or behind it.
template <bool at_once>
__global__ void from_other_cluster_kernel(const float*, float* o) {  // [4, 64], and a flag behind
  const int t = threadIdx.x;
  int* const flag = reinterpret_cast<int*>(&o[256]);
  if (blockIdx.x == 0 && t == 0) {
    o[0] = 1.0f;
    __threadfence();
    atomicExch(flag, 1);
  }
  if (blockIdx.x == 2 && t == 0) {
    while (atomicAdd(flag, 0) == 0) {
    }
    if (at_once) __threadfence();
  }
  if (at_once) {
    ptx::cluster_sync();
  } else {
    ptx::cluster_arrive();
    __syncwarp();
    ptx::cluster_wait();
  }
  __syncthreads();
  if (!at_once) __threadfence();
  if (blockIdx.x == 3) o[192 + t] = o[0];
}

// What it counts: five barriers of each warp's block, one store to shared memory and one load from the block's own; and what
// reaches the other block, which is not counted.
__global__ void counted_cluster_kernel(float* o) {  // [blocks, 64]
  auto& smem = device::shared_storage<ClusterSmem>();
  const int t = threadIdx.x, size = ptx::cluster_size();
  smem.values[t] = t;
  for (int i = 0; i < 4; ++i) __syncthreads();
  ptx::cluster_sync();  // the values are there
  float sum = smem.values[63 - t];
  for (int rank = 0; rank < size; ++rank) sum += ptx::in_block(smem.values, rank)[t];
  __syncthreads();
  ptx::cluster_sync();  // all have read
  o[threads * blockIdx.x + t] = sum;
}

template <auto kernel, unsigned blocks = 2>
void run() {
  const std::vector<float> zeros(blocks * threads + 64);
  runtime::Buffer q("q", 128 * sizeof(float)), o("o", zeros.size() * sizeof(float));
  q.upload(std::vector<float>(128).data(), q.bytes());
  o.upload(zeros.data(), o.bytes());
  const std::size_t bytes = std::max(sizeof(ClusterSmem), sizeof(RowsSmem));
  launch(kernel, {.grid = blocks, .block = threads, .shared_bytes = bytes, .cluster = 2}, q.as<const float>(), o.as<float>());
}

}  // namespace

#define TWINS(kernel, ...) run<kernel<false> __VA_OPT__(, ) __VA_ARGS__>, run<kernel<true> __VA_OPT__(, ) __VA_ARGS__>

const std::vector<Fault>& cluster_faults() {
  static const std::vector<Fault> all = {
      {"no_closing_barrier", "exited block", "which may have ended by then", TWINS(no_closing_barrier)},
      {"closing_barrier_of_block", "exited block", "write of 4 bytes at ClusterSmem::count of block (0, 0, 0)",
       TWINS(closing_barrier_of_block)},
      {"closing_barrier_is_relaxed", "exited block", " of block (1, 0, 0), which may have ended by then",
       TWINS(closing_barrier_is_relaxed)},
      {"flag_before_end", "exited block", "ClusterSmem::values[5] of block (1, 0, 0)", TWINS(flag_before_end)},
      {"flag_behind_store", "exited block", "ClusterSmem::values[5] of block (1, 0, 0)", TWINS(flag_behind_store)},
      {"flag_behind_atomic", "exited block", "ClusterSmem::more of block (1, 0, 0)", TWINS(flag_behind_atomic)},
      {"given_too_early", "block not begun", "which may not have begun", TWINS(given_too_early)},
      {"arrived_twice", "cluster misuse", "barrier.cluster.arrive.relaxed: the thread has arrived before",
       TWINS(arrived_twice)},
      {"waited_without_arrival", "cluster misuse", "barrier.cluster.wait: the thread has not arrived",
       TWINS(waited_without_arrival)},
      {"block_that_never_comes", "deadlock", "block (1, 0, 0), warp 0 lanes 0-31 wait in bar.sync 1, 64",
       TWINS(block_that_never_comes)},
      {"half_a_warp_arrives", "deadlock", "warp 0 lanes 0-15 wait in barrier.cluster.arrive at ", TWINS(half_a_warp_arrives)},
      {"rank_outside", "cluster misuse", "there is no block 2 in a cluster of 2", TWINS(rank_outside)},
      {"mapped_device_memory", "cluster misuse", "the address is not in the shared memory of a block of the cluster",
       TWINS(mapped_device_memory)},
      {"memory_of_other_cluster", "wild read", "neither device memory nor shared memory", TWINS(memory_of_other_cluster, 4)},
      {"past_end_of_other", "out-of-bounds read", "0 bytes past the end of shared memory (512 bytes) of block (",
       TWINS(past_end_of_other)},
      {"others_not_written", "uninitialised read", "ClusterSmem::values[13] of block (", TWINS(others_not_written)},
      {"added_to_unwritten", "uninitialised read", "ClusterSmem::count of block (1, 0, 0)", TWINS(added_to_unwritten)},
      {"others_at_odd_place", "misaligned read", "not a multiple of 16", TWINS(others_at_odd_place)},
      {"copied_to_other", "wild write", "the destination is in the shared memory of another block", TWINS(copied_to_other)},
      {"matrix_of_other", "wild read", "ldmatrix reads the block's own shared memory, and this address lies in another block's",
       TWINS(matrix_of_other)},
      {"matrix_stored_to_other", "wild write", "stmatrix writes the block's own shared memory", TWINS(matrix_stored_to_other)},
  };
  return all;
}

const std::vector<Race>& cluster_races() {
  static const std::vector<Race> all = {
      {"read_before_barrier", "ClusterSmem::values[", TWINS(read_before_barrier)},
      {"barrier_of_one_block", "ClusterSmem::values[", TWINS(barrier_of_one_block)},
      {"relaxed_is_no_release", "ClusterSmem::values[", TWINS(relaxed_is_no_release)},
      {"stored_after_arrival", "ClusterSmem::values[", TWINS(stored_after_arrival)},
      {"stored_after_one_arrived", "ClusterSmem::values[", TWINS(stored_after_one_arrived)},
      {"given_under_bulk_copy", "ClusterSmem::values[", TWINS(given_under_bulk_copy)},
      {"waited_after_arrival", "CopySmem::values[", TWINS(waited_after_arrival)},
      {"stored_by_exited", "ClusterSmem::values[", TWINS(stored_by_exited)},
      {"given_under_reader", "ClusterSmem::values[", TWINS(given_under_reader)},
      {"given_by_two", "ClusterSmem::values[", TWINS(given_by_two)},
      {"vectors_before_barrier", "ClusterSmem::values[", TWINS(vectors_before_barrier)},
      {"row_given_under_matrix", "RowsSmem::rows[7][2]", TWINS(row_given_under_matrix)},
      {"plain_beside_others_atomic", "ClusterSmem::count", TWINS(plain_beside_others_atomic)},
      {"atomic_of_one_block", "ClusterSmem::count", TWINS(atomic_of_one_block)},
      {"flag_in_other_block", "ClusterSmem::values[0] of block (1, 0, 0)", TWINS(flag_in_other_block)},
      {"fence_before_cluster", "byte 0 of 'o'", TWINS(fence_before_cluster, 4)},
      {"others_copy", "ClusterSmem::values[", TWINS(others_copy)},
      {"device_memory_of_cluster", "of 'o'", TWINS(device_memory_of_cluster)},
  };
  return all;
}

#undef TWINS

void correct_clusters() {
  run<arrives_and_ends_kernel>();
  run<ends_behind_barrier_kernel>();
  run<comes_back_kernel>();
  run<from_other_cluster_kernel<true>, 4>();
  run<from_other_cluster_kernel<false>, 4>();
}

void count_in_clusters(unsigned blocks, unsigned cluster) {
  const runtime::Buffer o("o", std::size_t{threads} * blocks * sizeof(float));
  launch(counted_cluster_kernel, {.grid = blocks, .block = threads, .shared_bytes = sizeof(ClusterSmem), .cluster = cluster},
         o.as<float>());
}

}  // namespace faulty
