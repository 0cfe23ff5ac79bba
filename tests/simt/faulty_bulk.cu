// Of the faulty kernels those with bulk copies.
#include "common/device/dialect.h"
#include "common/device/ptx/bulk.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"
#include "tests/simt/faulty_kernels.h"

namespace faulty {
namespace {

using runtime::launch;

struct BulkSmem {
  ptx::Mbarrier full;
  ptx::Mbarrier empty;
  ptx::Mbarrier next;
  alignas(16) float values[2][64];
};

struct LargeSmem {
  alignas(16) float values[4096];
};

constexpr int bytes = 256;  // of a row of values

// By one thread, and seen by all, and by their copies.
__device__ void make(ptx::Mbarrier& barrier, int arrivals) {
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, arrivals);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
}

__device__ void end_groups() {
  ptx::bulk_commit_group();
  ptx::bulk_wait_group<0>();
}

// Every kernel is two: with `mended`, it is right. They have 64 threads.

template <bool mended>
__global__ void bulk_of_odd_size(const float* q, float*) {
  auto& smem = device::shared_storage<BulkSmem>();
  make(smem.full, 1);
  if (threadIdx.x != 0) return;
  ptx::mbarrier_arrive_expect_tx(smem.full, mended ? 32 : 24);
  ptx::bulk_load(smem.values[0], q, mended ? 32 : 24, smem.full);  // fault: bulk_of_odd_size
  ptx::mbarrier_wait(smem.full, 0);
}

template <bool mended>
__global__ void bulk_from_odd_place(const float* q, float*) {
  auto& smem = device::shared_storage<BulkSmem>();
  make(smem.full, 1);
  if (threadIdx.x != 0) return;
  ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
  ptx::bulk_load(smem.values[0], mended ? q : q + 2, bytes, smem.full);  // fault: bulk_from_odd_place
  ptx::mbarrier_wait(smem.full, 0);
}

template <bool mended>
__global__ void bulk_to_odd_place(const float* q, float*) {
  auto& smem = device::shared_storage<BulkSmem>();
  make(smem.full, 1);
  if (threadIdx.x != 0) return;
  ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
  ptx::bulk_load(&smem.values[0][mended ? 4 : 1], q, bytes, smem.full);  // fault: bulk_to_odd_place
  ptx::mbarrier_wait(smem.full, 0);
}

template <bool mended>
__global__ void bulk_past_end(const float* q, float*) {
  auto& smem = device::shared_storage<BulkSmem>();
  make(smem.full, 1);
  if (threadIdx.x != 0) return;
  ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
  ptx::bulk_load(smem.values[0], q + (mended ? 192 : 196), bytes, smem.full);  // fault: bulk_past_end
  ptx::mbarrier_wait(smem.full, 0);
}

template <bool mended>
__global__ void bulk_past_shared(const float* q, float*) {
  auto& smem = device::shared_storage<BulkSmem>();
  make(smem.full, 1);
  if (threadIdx.x != 0) return;
  ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
  ptx::bulk_load(&smem.values[1][mended ? 0 : 4], q, bytes, smem.full);  // fault: bulk_past_shared
  ptx::mbarrier_wait(smem.full, 0);
}

template <bool mended>
__global__ void bulk_to_shared(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  smem.values[0][threadIdx.x] = 1.0f;
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  ptx::bulk_store(mended ? o : smem.values[1], smem.values[0], bytes);  // fault: bulk_to_shared
  end_groups();
}

// A cp.async is no bulk copy: who has waited for it must fence.
template <bool mended>
__global__ void bulk_of_copies_unfenced(const float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  make(smem.full, 64);
  ptx::cp_async_4(&smem.values[0][t], &q[t]);
  ptx::cp_async_mbarrier_arrive(smem.full);
  if (t == 32) {
    ptx::mbarrier_wait(smem.full, 0);
    if (mended) ptx::fence_proxy_async();
  }
  __syncthreads();
  if (t == 0) ptx::bulk_store(o, smem.values[0], bytes);  // fault: bulk_of_copies_unfenced
  if (t == 0) end_groups();
}

// Far past the end: what lies there stays as it is.
template <bool mended>
__global__ void bulk_past_other_end(const float*, float* o) {
  auto& smem = device::shared_storage<LargeSmem>();
  const int t = threadIdx.x;
  for (int i = t; i < 4096; i += 64) smem.values[i] = t;
  ptx::fence_proxy_async();
  __syncthreads();
  if (t == 0) ptx::bulk_store(o, smem.values, mended ? 1024 : 16384);  // fault: bulk_past_other_end
  if (t == 0) end_groups();
}

template <bool mended>
__global__ void bulk_of_nothing(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  if (mended || threadIdx.x != 41) smem.values[0][threadIdx.x] = 1.0f;
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  ptx::bulk_store(o, smem.values[0], bytes);  // fault: bulk_of_nothing
  end_groups();
}

template <bool mended>
__global__ void bulk_expects_too_little(const float* q, float*) {
  auto& smem = device::shared_storage<BulkSmem>();
  make(smem.full, 1);
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(smem.full, mended ? bytes : bytes - 64);
    ptx::bulk_load(smem.values[0], q, bytes, smem.full);
  }
  ptx::mbarrier_wait(smem.full, 0);  // fault: bulk_expects_too_little
}

template <bool mended>
__global__ void bulk_expects_too_much(const float* q, float*) {
  auto& smem = device::shared_storage<BulkSmem>();
  make(smem.full, 1);
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(smem.full, mended ? bytes : bytes + 64);
    ptx::bulk_load(smem.values[0], q, bytes, smem.full);
  }
  ptx::mbarrier_wait(smem.full, 0);  // fault: bulk_expects_too_much
}

template <bool mended>
__global__ void bulk_barrier_unfenced(const float* q, float*) {
  auto& smem = device::shared_storage<BulkSmem>();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(smem.full, 1);
    if (mended) ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x != 32) return;
  ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
  ptx::bulk_load(smem.values[0], q, bytes, smem.full);  // fault: bulk_barrier_unfenced
  ptx::mbarrier_wait(smem.full, 0);
}

template <bool mended>
__global__ void bulk_over_stores(const float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  smem.values[0][t] = t;
  o[t] = smem.values[0][t];
  if (mended) ptx::fence_proxy_async();
  make(smem.full, 1);
  if (t != 0) return;
  ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
  ptx::bulk_load(smem.values[0], q, bytes, smem.full);  // fault: bulk_over_stores
  ptx::mbarrier_wait(smem.full, 0);
}

template <bool mended>
__global__ void bulk_store_unfenced(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  smem.values[0][threadIdx.x] = threadIdx.x;
  if (mended) ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  ptx::bulk_store(o, smem.values[0], bytes);  // fault: bulk_store_unfenced
  end_groups();
}

template <bool mended>
__global__ void bulk_store_fenced_late(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  for (int i = 0; t == 40 && i < 64; ++i) smem.values[0][i] = i;
  if (mended) ptx::fence_proxy_async();
  __syncthreads();
  if (!mended) ptx::fence_proxy_async();
  if (t != 0) return;
  ptx::bulk_store(o, smem.values[0], bytes);  // fault: bulk_store_fenced_late
  end_groups();
}

template <bool mended>
__global__ void bulk_store_fenced_by_one(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  smem.values[0][threadIdx.x] = threadIdx.x;
  if (mended || threadIdx.x == 0) ptx::fence_proxy_async();
  make(smem.full, 64);
  if (threadIdx.x != 0) return;
  ptx::bulk_store(o, smem.values[0], bytes);  // fault: bulk_store_fenced_by_one
  end_groups();
}

// Stored through stmatrix, and handed on at an mbarrier. A barrier before the fence is no fence.
template <bool mended>
__global__ void bulk_matrix_unfenced(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  make(smem.full, 32);
  if (t < 32) {
    const std::uint32_t r[4] = {1, 2, 3, 4};
    if (!mended) ptx::fence_proxy_async();
    ptx::stmatrix_x4(&smem.values[0][0] + 4 * t, r);
    if (mended) ptx::fence_proxy_async();
    ptx::mbarrier_arrive(smem.full);
  }
  if (t != 32) return;
  ptx::mbarrier_wait(smem.full, 0);
  ptx::bulk_store(o, smem.values[0], bytes);  // fault: bulk_matrix_unfenced
  end_groups();
}

template <bool mended>
__global__ void bulk_store_left(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  smem.values[0][threadIdx.x] = threadIdx.x;
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  ptx::bulk_store(o, smem.values[0], bytes);  // fault: bulk_store_left
  ptx::bulk_commit_group();
  if (mended) ptx::bulk_wait_group_read<0>();
}

template <bool mended>
__global__ void bulk_load_left(const float* q, float*) {
  auto& smem = device::shared_storage<BulkSmem>();
  make(smem.full, 1);
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
    ptx::bulk_load(smem.values[0], q, bytes, smem.full);  // fault: bulk_load_left
  }
  if (mended && threadIdx.x == 40) ptx::mbarrier_wait(smem.full, 0);
}

// ---- races ----

template <bool mended>
__global__ void bulk_read_before_wait(const float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  make(smem.full, 1);
  if (t == 0) {
    ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
    ptx::bulk_load(smem.values[0], q, bytes, smem.full);  // one: bulk_read_before_wait
  }
  __syncthreads();
  if (mended) ptx::mbarrier_wait(smem.full, 0);
  o[t] = smem.values[0][t];  // other: bulk_read_before_wait
  ptx::mbarrier_wait(smem.full, 0);
}

template <bool mended>
__global__ void bulk_asked_once(const float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  make(smem.full, 1);
  if (t == 0) {
    ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
    ptx::bulk_load(smem.values[0], q, bytes, smem.full);  // one: bulk_asked_once
    ptx::mbarrier_try_wait(smem.full, 0);
    if (mended) {
      while (!ptx::mbarrier_try_wait(smem.full, 0)) {
      }
    }
    o[t] = smem.values[0][5];  // other: bulk_asked_once
  }
  ptx::mbarrier_wait(smem.full, 0);
}

// A barrier behind the copy tells nobody of it; and one thread's wait is no other's.
template <bool mended>
__global__ void bulk_seen_by_one(const float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  make(smem.full, 1);
  if (t == 0) {
    ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
    ptx::bulk_load(smem.values[0], q, bytes, smem.full);  // one: bulk_seen_by_one
  }
  __syncthreads();
  if (t == 40) ptx::mbarrier_wait(smem.full, 0);
  if (mended) __syncthreads();
  o[t] = smem.values[0][t];  // other: bulk_seen_by_one
}

// A whole row, by one thread.
template <bool mended>
__global__ void bulk_row_not_waited_for(const float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  make(smem.full, 1);
  if (t == 32) {
    ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
    ptx::bulk_load(smem.values[0], q, bytes, smem.full);  // one: bulk_row_not_waited_for
    ptx::mbarrier_wait(smem.full, 0);
  }
  if (t != 0) return;
  if (mended) ptx::mbarrier_wait(smem.full, 0);
  auto* const row = reinterpret_cast<const float4*>(smem.values[0]);
  device::store(reinterpret_cast<float4*>(o), device::load(row));  // other: bulk_row_not_waited_for
}

template <bool mended>
__global__ void bulk_refilled_early(const float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  make(smem.next, 1);
  make(smem.empty, mended ? 63 : 31);
  make(smem.full, 1);
  if (t == 0) {
    ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
    ptx::bulk_load(smem.values[0], q, bytes, smem.full);
    ptx::mbarrier_wait(smem.empty, 0);
    ptx::mbarrier_arrive_expect_tx(smem.next, bytes);
    ptx::bulk_load(smem.values[0], q, bytes, smem.next);  // one: bulk_refilled_early
    ptx::mbarrier_wait(smem.next, 0);
  } else {
    ptx::mbarrier_wait(smem.full, 0);
    o[t] = smem.values[0][t];  // other: bulk_refilled_early
    if (mended || t < 32) ptx::mbarrier_arrive(smem.empty);
  }
}

template <bool mended>
__global__ void bulk_source_stored(float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  make(smem.full, 1);
  if (t == 0) {
    ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
    ptx::bulk_load(smem.values[0], q, bytes, smem.full);  // one: bulk_source_stored
  }
  __syncthreads();
  if (mended) ptx::mbarrier_wait(smem.full, 0);
  q[t] = 1.0f;  // other: bulk_source_stored
  ptx::mbarrier_wait(smem.full, 0);
  o[t] = smem.values[0][t];
}

// The copy writes where a thread may still be reading.
template <bool mended>
__global__ void bulk_over_readers(const float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  smem.values[0][t] = t;
  ptx::fence_proxy_async();
  make(smem.full, 1);
  o[t] = smem.values[0][63 - t];  // one: bulk_over_readers
  if (mended) __syncthreads();
  if (t != 0) return;
  ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
  ptx::bulk_load(smem.values[0], q, bytes, smem.full);  // other: bulk_over_readers
  ptx::mbarrier_wait(smem.full, 0);
}

template <bool mended>
__global__ void bulk_stored_unordered(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  smem.values[0][threadIdx.x] = threadIdx.x;  // one: bulk_stored_unordered
  ptx::fence_proxy_async();
  if (mended) __syncthreads();
  if (threadIdx.x != 0) return;
  ptx::bulk_store(o, smem.values[0], bytes);  // other: bulk_stored_unordered
  end_groups();
}

template <bool mended>
__global__ void bulk_source_overwritten(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  smem.values[0][t] = t;
  ptx::fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    ptx::bulk_store(o, smem.values[0], bytes);  // one: bulk_source_overwritten
    ptx::bulk_commit_group();
    if (mended) ptx::bulk_wait_group_read<0>();
  }
  __syncthreads();
  smem.values[0][t] = 0.0f;  // other: bulk_source_overwritten
  if (t == 0) ptx::bulk_wait_group<0>();
}

template <bool mended>
__global__ void bulk_source_under_matrix(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  const std::uint32_t r[4] = {1, 2, 3, 4};
  for (int i = 0; i < 3; ++i) {
    if (t < 32) ptx::stmatrix_x4(&smem.values[0][0] + 4 * t, r);  // other: bulk_source_under_matrix
    ptx::fence_proxy_async();
    __syncthreads();
    if (t == 0) {
      ptx::bulk_store(o + 64 * i, smem.values[0], bytes);  // one: bulk_source_under_matrix
      ptx::bulk_commit_group();
      if (mended) ptx::bulk_wait_group<0>();
    }
    __syncthreads();
  }
  if (t == 0) ptx::bulk_wait_group<0>();
}

// Groups are the thread's own.
template <bool mended>
__global__ void bulk_waited_by_another(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  smem.values[0][t] = t;
  ptx::fence_proxy_async();
  __syncthreads();
  if (t == 0) ptx::bulk_store(o, smem.values[0], bytes);  // one: bulk_waited_by_another
  if (t == (mended ? 0 : 1)) {
    ptx::bulk_commit_group();
    ptx::bulk_wait_group<0>();
  }
  __syncthreads();
  smem.values[0][t] = 0.0f;  // other: bulk_waited_by_another
  if (t == 0) end_groups();
}

template <bool mended>
__global__ void bulk_wait_too_weak(const float*, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  smem.values[0][t] = smem.values[1][t] = t;
  ptx::fence_proxy_async();
  __syncthreads();
  if (t != 0) return;
  ptx::bulk_store(o, smem.values[0], bytes);
  ptx::bulk_commit_group();
  ptx::bulk_store(o + 64, smem.values[1], bytes);  // one: bulk_wait_too_weak
  ptx::bulk_commit_group();
  ptx::bulk_wait_group_read<mended ? 0 : 1>();
  smem.values[0][3] = 0.0f;
  smem.values[1][3] = 0.0f;  // other: bulk_wait_too_weak
  ptx::bulk_wait_group<0>();
}

// That the source was read does not say that the bytes have come.
template <bool mended>
__global__ void bulk_read_back(float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  smem.values[0][t] = t;
  ptx::fence_proxy_async();
  __syncthreads();
  if (t != 0) return;
  ptx::bulk_store(q, smem.values[0], bytes);  // one: bulk_read_back
  ptx::bulk_commit_group();
  ptx::bulk_wait_group_read<0>();
  if (mended) ptx::bulk_wait_group<0>();
  o[t] = q[7];  // other: bulk_read_back
}

// The other threads need a barrier behind the wait.
template <bool mended>
__global__ void bulk_read_by_others(float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  smem.values[0][t] = t;
  ptx::fence_proxy_async();
  __syncthreads();
  if (t == 0) {
    ptx::bulk_store(q, smem.values[0], bytes);  // one: bulk_read_by_others
    end_groups();
  }
  if (mended) __syncthreads();
  if (t == 33) o[t] = q[7];  // other: bulk_read_by_others
}

// Another copy reads it, too.
template <bool mended>
__global__ void bulk_copied_back(float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  make(smem.full, 1);
  smem.values[0][t] = t;
  ptx::fence_proxy_async();
  __syncthreads();
  if (t != 0) return;
  ptx::bulk_store(q, smem.values[0], bytes);  // one: bulk_copied_back
  ptx::bulk_commit_group();
  ptx::bulk_wait_group_read<0>();
  if (mended) ptx::bulk_wait_group<0>();
  ptx::mbarrier_arrive_expect_tx(smem.full, bytes);
  ptx::bulk_load(smem.values[1], q, bytes, smem.full);  // other: bulk_copied_back
  ptx::mbarrier_wait(smem.full, 0);
  o[t] = smem.values[1][7];
}

template <bool mended>
__global__ void bulk_read_by_next_block(float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  if (blockIdx.x == 0) {
    smem.values[0][t] = t;
    ptx::fence_proxy_async();
    __syncthreads();
    if (t != 0) return;
    ptx::bulk_store(q, smem.values[0], bytes);  // one: bulk_read_by_next_block
    ptx::bulk_commit_group();
    ptx::bulk_wait_group_read<0>();
  } else if (t == 33) {
    o[t] = q[mended ? 70 : 7];  // other: bulk_read_by_next_block
  }
}

// A fence and a flag say nothing of a copy for which nobody has waited.
template <bool mended>
__global__ void bulk_flag_before_wait(float* q, float* o) {
  auto& smem = device::shared_storage<BulkSmem>();
  const int t = threadIdx.x;
  int* const flag = reinterpret_cast<int*>(&q[200]);
  if (blockIdx.x == 0) {
    smem.values[0][t] = t;
    ptx::fence_proxy_async();
    __syncthreads();
    if (t != 0) return;
    ptx::bulk_store(q, smem.values[0], bytes);  // one: bulk_flag_before_wait
    ptx::bulk_commit_group();
    ptx::bulk_wait_group_read<0>();
    if (mended) ptx::bulk_wait_group<0>();
    __threadfence();
    atomicExch(flag, 1);
  } else if (t == 33) {
    while (atomicAdd(flag, 0) == 0) {
    }
    __threadfence();
    o[t] = q[7];  // other: bulk_flag_before_wait
  }
}

template <auto kernel, int blocks = 1, std::size_t shared = sizeof(BulkSmem)>
void run() {
  runtime::Buffer q("q", 256 * sizeof(float)), o("o", 256 * sizeof(float)), v("v", 256 * sizeof(float));
  const std::vector<float> zeros(256);
  q.upload(zeros.data(), q.bytes());
  o.upload(zeros.data(), o.bytes());
  v.upload(zeros.data(), v.bytes());
  launch(kernel, {blocks, 64, shared}, q.as<float>(), o.as<float>());
}

}  // namespace

#define TWINS(kernel, ...) run<kernel<false> __VA_OPT__(, ) __VA_ARGS__>, run<kernel<true> __VA_OPT__(, ) __VA_ARGS__>

std::vector<Fault> faults_of_bulk_copies() {
  const std::string misuse = "bulk copy misuse", fence = "missing proxy fence";
  const std::string wait = "mbarrier_wait of BulkSmem::full.opaque for the phase of parity 0 (it is in phase 0, of parity 0";
  return {
      {"bulk_of_odd_size", misuse, "cp.async.bulk of 24 bytes: the size is a multiple of 16", TWINS(bulk_of_odd_size)},
      {"bulk_from_odd_place", "misaligned read", "cp.async.bulk of 256 bytes: byte 8 of 'q'", TWINS(bulk_from_odd_place)},
      {"bulk_to_odd_place", "misaligned write", "BulkSmem::values[0][1] is not a multiple of 16", TWINS(bulk_to_odd_place)},
      {"bulk_past_end", "out-of-bounds read", "0 bytes past the end of 'q' (1024 bytes)", TWINS(bulk_past_end)},
      {"bulk_past_shared", "out-of-bounds write", "0 bytes past the end of shared memory", TWINS(bulk_past_shared)},
      {"bulk_to_shared", "wild write", "the destination is not in device memory", TWINS(bulk_to_shared)},
      {"bulk_of_copies_unfenced", fence, "reads what a thread has stored in BulkSmem::values[0][0]",
       TWINS(bulk_of_copies_unfenced)},
      {"bulk_past_other_end", "out-of-bounds write", "0 bytes past the end of 'o' (1024 bytes)",
       TWINS(bulk_past_other_end, 1, sizeof(LargeSmem))},
      {"bulk_of_nothing", "uninitialised read", "BulkSmem::values[0][41]", TWINS(bulk_of_nothing)},
      {"bulk_expects_too_little", "deadlock", wait + "; 64 bytes have come that nobody expects)",
       TWINS(bulk_expects_too_little)},
      {"bulk_expects_too_much", "deadlock", wait + ", which lacks 64 bytes)", TWINS(bulk_expects_too_much)},
      {"bulk_barrier_unfenced", fence, "its mbarrier BulkSmem::full.opaque was made without", TWINS(bulk_barrier_unfenced)},
      {"bulk_over_stores", fence, "writes over what a thread has stored in BulkSmem::values[0][0]", TWINS(bulk_over_stores)},
      {"bulk_store_unfenced", fence, "reads what a thread has stored in BulkSmem::values[0][0]", TWINS(bulk_store_unfenced)},
      {"bulk_store_fenced_late", fence, "reads what a thread has stored in BulkSmem::values[0][0]",
       TWINS(bulk_store_fenced_late)},
      {"bulk_store_fenced_by_one", fence, "by block (0, 0, 0), warp 0, lane 1 ", TWINS(bulk_store_fenced_by_one)},
      {"bulk_matrix_unfenced", fence, "reads what a thread has stored in BulkSmem::values[0][0]", TWINS(bulk_matrix_unfenced)},
      {"bulk_store_left", misuse, "the thread ends, and has not waited until it has read BulkSmem::values[0][0]",
       TWINS(bulk_store_left)},
      {"bulk_load_left", misuse, "the block ends, and nobody has waited for what it writes to BulkSmem::values[0][0]",
       TWINS(bulk_load_left)},
  };
}

std::vector<Race> races_of_bulk_copies() {
  return {
      {"bulk_read_before_wait", "BulkSmem::values[0][", TWINS(bulk_read_before_wait)},
      {"bulk_asked_once", "BulkSmem::values[0][5]", TWINS(bulk_asked_once)},
      {"bulk_seen_by_one", "BulkSmem::values[0][", TWINS(bulk_seen_by_one)},
      {"bulk_row_not_waited_for", "BulkSmem::values[0][", TWINS(bulk_row_not_waited_for)},
      {"bulk_refilled_early", "BulkSmem::values[0][", TWINS(bulk_refilled_early)},
      {"bulk_source_stored", "of 'q' (1024 bytes)", TWINS(bulk_source_stored)},
      {"bulk_over_readers", "BulkSmem::values[0][", TWINS(bulk_over_readers)},
      {"bulk_stored_unordered", "BulkSmem::values[0][", TWINS(bulk_stored_unordered)},
      {"bulk_source_overwritten", "BulkSmem::values[0][", TWINS(bulk_source_overwritten)},
      {"bulk_source_under_matrix", "BulkSmem::values[", TWINS(bulk_source_under_matrix)},
      {"bulk_waited_by_another", "BulkSmem::values[0][", TWINS(bulk_waited_by_another)},
      {"bulk_wait_too_weak", "BulkSmem::values[1][3]", TWINS(bulk_wait_too_weak)},
      {"bulk_read_back", "byte 28 of 'q' (1024 bytes)", TWINS(bulk_read_back)},
      {"bulk_copied_back", "byte 0 of 'q' (1024 bytes)", TWINS(bulk_copied_back)},
      {"bulk_read_by_others", "byte 28 of 'q' (1024 bytes)", TWINS(bulk_read_by_others)},
      {"bulk_flag_before_wait", "byte 28 of 'q' (1024 bytes)", TWINS(bulk_flag_before_wait, 2)},
      {"bulk_read_by_next_block", "byte 28 of 'q' (1024 bytes)", TWINS(bulk_read_by_next_block, 2)},
  };
}

#undef TWINS

}  // namespace faulty
