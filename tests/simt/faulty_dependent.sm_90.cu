// Of the kernels with a race those in a chain of launches: the first launch is plain, the others may begin before the one
// before them has ended. Two blocks of 64 threads, unless something else is said.
#include <utility>

#include "common/device/dialect.h"
#include "common/device/ptx/bulk.cuh"
#include "common/device/ptx/cluster.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"
#include "tests/simt/faulty_kernels.h"

namespace faulty {
namespace {

using runtime::launch;

constexpr int threads = 64;

struct ChainSmem {
  ptx::Mbarrier barrier;
  alignas(16) float values[64];
};

__device__ int index() { return threads * blockIdx.x + threadIdx.x; }

// Every kernel takes q, which nobody writes, x, o, and a count; [128] each, but for the count. Of a chain's kernels one is two:
// with `mended`, it is right.

// ---- before the wait ----

__global__ void read_before_wait_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: read_before_wait
}
template <bool mended>
__global__ void read_before_wait(const float*, float* x, float* o, int*) {
  if (mended) ptx::griddepcontrol_wait();
  const float value = x[index()];  // other: read_before_wait
  if (!mended) ptx::griddepcontrol_wait();
  o[index()] = value;
}

__global__ void stored_under_reader_first(const float*, float* x, float* o, int*) {
  o[index()] = x[index() ^ 1];  // one: stored_under_reader
}
template <bool mended>
__global__ void stored_under_reader(const float*, float* x, float*, int*) {
  if (mended) ptx::griddepcontrol_wait();
  x[index()] = 1.0f;  // other: stored_under_reader
  if (!mended) ptx::griddepcontrol_wait();
}

__global__ void stored_by_both_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: stored_by_both
}
template <bool mended>
__global__ void stored_by_both(const float*, float* x, float*, int*) {
  if (mended) ptx::griddepcontrol_wait();
  x[127 - index()] = 1.0f;  // other: stored_by_both
  if (!mended) ptx::griddepcontrol_wait();
}

// A dependent launch in which nobody waits.
__global__ void nobody_waits_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: nobody_waits
}
template <bool mended>
__global__ void nobody_waits(const float*, float* x, float* o, int*) {
  if (mended) ptx::griddepcontrol_wait();
  o[index()] = x[index()];  // other: nobody_waits
}

// Only its last word was written.
__global__ void vector_before_wait_first(const float* q, float* x, float*, int*) {
  if (index() == 127) x[127] = q[127];  // one: vector_before_wait
}
template <bool mended>
__global__ void vector_before_wait(const float*, float* x, float* o, int*) {
  if (mended) ptx::griddepcontrol_wait();
  if (index() < 32) o[index()] = device::load(reinterpret_cast<const float4*>(&x[4 * index()])).w;  // other: vector_before_wait
}

// An atomic beside a plain store.
__global__ void counted_before_wait_first(const float*, float*, float*, int* count) {
  if (index() == 0) *count = 7;  // one: counted_before_wait
}
template <bool mended>
__global__ void counted_before_wait(const float*, float*, float*, int* count) {
  if (mended) ptx::griddepcontrol_wait();
  atomicAdd(count, 1);  // other: counted_before_wait
}

// The launch before is an ordered one: its blocks draw tickets.
__global__ void tickets_first(const float* q, float* x, float*, int* count) {
  const int ticket = atomicAdd(count, 1);
  x[ticket % 128] = q[index()];  // one: read_behind_tickets
}
template <bool mended>
__global__ void read_behind_tickets(const float*, float* x, float* o, int*) {
  if (mended) ptx::griddepcontrol_wait();
  o[index()] = x[index()];  // other: read_behind_tickets
}

// So is this one.
__global__ void tickets_before_wait_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: tickets_before_wait
}
template <bool mended>
__global__ void tickets_before_wait(const float*, float* x, float* o, int* count) {
  const int ticket = atomicAdd(count, 1);
  if (mended) ptx::griddepcontrol_wait();
  o[ticket % 128] = x[index()];  // other: tickets_before_wait
}

// ---- copies count from their instruction on ----

__global__ void copied_before_wait_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: copied_before_wait
}
template <bool mended>
__global__ void copied_before_wait(const float*, float* x, float* o, int*) {
  auto& smem = device::shared_storage<ChainSmem>();
  const int t = threadIdx.x;
  if (mended) ptx::griddepcontrol_wait();
  ptx::cp_async_4(&smem.values[t], &x[index()]);  // other: copied_before_wait
  if (!mended) ptx::griddepcontrol_wait();
  ptx::cp_async_wait_all();
  o[index()] = smem.values[t];
}

__global__ void bulk_before_wait_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: bulk_before_wait
}
template <bool mended>
__global__ void bulk_before_wait(const float*, float* x, float* o, int*) {
  auto& smem = device::shared_storage<ChainSmem>();
  const int t = threadIdx.x;
  if (t == 0) {
    ptx::mbarrier_init(smem.barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(smem.barrier, sizeof(smem.values));
    if (mended) ptx::griddepcontrol_wait();
    ptx::bulk_load(smem.values, &x[index()], sizeof(smem.values), smem.barrier);  // other: bulk_before_wait
  }
  ptx::griddepcontrol_wait();
  __syncthreads();  // the mbarrier is made
  ptx::mbarrier_wait(smem.barrier, 0);
  o[index()] = smem.values[t];
}

__global__ void bulk_stored_before_wait_first(const float*, float* x, float* o, int*) {
  o[index()] = x[index()];  // one: bulk_stored_before_wait
}
template <bool mended>
__global__ void bulk_stored_before_wait(const float* q, float* x, float*, int*) {
  auto& smem = device::shared_storage<ChainSmem>();
  const int t = threadIdx.x;
  smem.values[t] = q[index()];
  ptx::fence_proxy_async();
  __syncthreads();  // the values are there
  if (mended) ptx::griddepcontrol_wait();
  if (t == 0) {
    ptx::bulk_store(&x[index()], smem.values, sizeof(smem.values));  // other: bulk_stored_before_wait
    ptx::bulk_commit_group();
    ptx::griddepcontrol_wait();
    ptx::bulk_wait_group<0>();
  }
}

// ---- who has waited? ----

__global__ void other_warp_waits_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: other_warp_waits
}
template <bool mended>
__global__ void other_warp_waits(const float*, float* x, float* o, int*) {
  const int t = threadIdx.x;
  if (t < 32) ptx::griddepcontrol_wait();
  if (mended) __syncthreads();           // the first warp has waited
  if (t >= 32) o[index()] = x[index()];  // other: other_warp_waits
}

__global__ void other_block_waits_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: other_block_waits
}
template <bool mended>
__global__ void other_block_waits(const float*, float* x, float* o, int*) {
  if (mended || blockIdx.x == 0) ptx::griddepcontrol_wait();
  o[index()] = x[index()];  // other: other_block_waits
}

// The other warp has arrived before it waits.
__global__ void waited_behind_arrival_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: waited_behind_arrival
}
template <bool mended>
__global__ void waited_behind_arrival(const float*, float* x, float* o, int*) {
  auto& smem = device::shared_storage<ChainSmem>();
  const int t = threadIdx.x;
  if (t == 0) ptx::mbarrier_init(smem.barrier, 1);
  __syncthreads();  // the mbarrier is made
  if (t == 0) {
    if (mended) ptx::griddepcontrol_wait();
    ptx::mbarrier_arrive(smem.barrier);
    if (!mended) ptx::griddepcontrol_wait();
  }
  if (t >= 32) {
    ptx::mbarrier_wait(smem.barrier, 0);
    o[index()] = x[index()];  // other: waited_behind_arrival
  }
}

// From one block to the other by a flag. Without the first fence it says nothing.
__global__ void flag_behind_wait_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: flag_behind_wait
}
template <bool mended>
__global__ void flag_behind_wait(const float*, float* x, float* o, int* flag) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    ptx::griddepcontrol_wait();
    if (mended) __threadfence();
    atomicExch(flag, 1);
  } else {
    while (atomicAdd(flag, 0) == 0) {
    }
    __threadfence();
    o[index()] = x[index()];  // other: flag_behind_wait
  }
}

// The two blocks are a cluster.
__global__ void relaxed_behind_wait_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: relaxed_behind_wait
}
template <bool mended>
__global__ void relaxed_behind_wait(const float*, float* x, float* o, int*) {
  if (ptx::cluster_rank() == 0) ptx::griddepcontrol_wait();
  if (mended) {
    ptx::cluster_arrive();
  } else {
    ptx::cluster_arrive_relaxed();
  }
  ptx::cluster_wait();
  if (ptx::cluster_rank() == 1) o[index()] = x[index()];  // other: relaxed_behind_wait
}

// ---- launch_dependents is no wait ----

__global__ void launched_early_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: launched_early
  __threadfence();
  ptx::griddepcontrol_launch_dependents();  // the next launch may begin: that is all
}
template <bool mended>
__global__ void launched_early(const float*, float* x, float* o, int*) {
  ptx::griddepcontrol_launch_dependents();
  if (mended) ptx::griddepcontrol_wait();
  o[index()] = x[index()];  // other: launched_early
}

__global__ void stored_behind_launch_first(const float* q, float* x, float*, int*) {
  ptx::griddepcontrol_launch_dependents();
  x[index()] = q[index()];  // one: stored_behind_launch
}
template <bool mended>
__global__ void stored_behind_launch(const float*, float* x, float* o, int*) {
  if (mended) ptx::griddepcontrol_wait();
  o[index()] = x[index()];  // other: stored_behind_launch
}

// ---- chains of three and more ----

__global__ void middle_does_not_wait_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: middle_does_not_wait
}
template <bool waits>
__global__ void middle(const float* q, float*, float* o, int*) {
  if (waits) ptx::griddepcontrol_wait();
  o[index()] = q[index()];
}
__global__ void middle_does_not_wait(const float*, float* x, float* o, int*) {
  ptx::griddepcontrol_wait();
  o[index()] = x[index()];  // other: middle_does_not_wait
}

// Those that come later and wait do not mend it.
__global__ void lost_for_good_first(const float*, float* x, float* o, int*) {
  o[index()] = x[index()];  // one: lost_for_good
}
template <bool waits>
__global__ void lost_for_good_second(const float* q, float*, float*, int* count) {
  if (waits) ptx::griddepcontrol_wait();
  if (index() == 0) *count = static_cast<int>(q[0]);
}
__global__ void waits_and_reads(const float*, float* x, float*, int* count) {
  ptx::griddepcontrol_wait();
  if (index() == 0) *count = static_cast<int>(x[0]);
}
__global__ void lost_for_good(const float*, float* x, float*, int*) {
  ptx::griddepcontrol_wait();
  x[index()] = 1.0f;  // other: lost_for_good
}

// Before its wait a thread does not know that the launch before the last has ended, though that one has waited for it.
__global__ void two_launches_ago_first(const float* q, float* x, float*, int*) {
  x[index()] = q[index()];  // one: two_launches_ago
}
template <bool mended>
__global__ void two_launches_ago(const float*, float* x, float* o, int*) {
  if (mended) ptx::griddepcontrol_wait();
  const float value = x[index()];  // other: two_launches_ago
  ptx::griddepcontrol_wait();
  o[index()] = value;
}

// ---- without a fault ----

__global__ void first_of_right_chain(const float* q, float* x, float* o, int* count) {
  ptx::griddepcontrol_wait();  // in a plain launch it does nothing
  atomicAdd(count, 1);
  device::store(&reinterpret_cast<std::uint16_t*>(x)[2 * index()], std::uint16_t{1});
  ptx::griddepcontrol_launch_dependents();
  o[index()] = q[index()];
}
__global__ void next_of_right_chain(const float* q, float* x, float* o, int* count) {
  auto& smem = device::shared_storage<ChainSmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.values[t], &q[index()]);                                           // all read this
  atomicAdd(count, 1);                                                                     // in any order
  device::store(&reinterpret_cast<std::uint16_t*>(x)[2 * index() + 1], std::uint16_t{2});  // the other half of the word
  ptx::griddepcontrol_launch_dependents();
  ptx::cp_async_wait_all();
  if (t == 0) ptx::griddepcontrol_wait();
  __syncthreads();  // a thread has waited
  o[index()] += smem.values[t];
}
__global__ void last_of_right_chain(const float*, float* x, float* o, int*) {
  ptx::griddepcontrol_wait();
  o[index()] += x[index()];
}

// ---- launches ----

struct Arrays {
  runtime::Buffer q{"q", 128 * sizeof(float)}, x{"x", 128 * sizeof(float)}, o{"o", 128 * sizeof(float)},
      count{"count", sizeof(int)};
  Arrays() {
    const std::vector<float> zeros(128);
    for (runtime::Buffer* const buffer : {&q, &x, &o, &count}) buffer->upload(zeros.data(), buffer->bytes());
  }
  template <class Kernel>
  void launch(Kernel* kernel, bool dependent, unsigned cluster = 1) const {
    runtime::launch(
        kernel, {.grid = 2, .block = threads, .shared_bytes = sizeof(ChainSmem), .cluster = cluster, .dependent = dependent},
        q.as<const float>(), x.as<float>(), o.as<float>(), count.as<int>());
  }
};

template <unsigned cluster, auto... kernels>
void in_clusters() {
  const Arrays arrays;
  bool dependent = false;
  (arrays.launch(kernels, std::exchange(dependent, true), cluster), ...);
}

template <auto... kernels>
void chain() {
  in_clusters<1, kernels...>();
}

}  // namespace

#define TWINS(kernel) chain<kernel##_first, kernel<false>>, chain<kernel##_first, kernel<true>>

const std::vector<Race>& dependent_races() {
  static const std::vector<Race> all = {
      {"read_before_wait", "of 'x'", TWINS(read_before_wait)},
      {"stored_under_reader", "of 'x'", TWINS(stored_under_reader)},
      {"stored_by_both", "of 'x'", TWINS(stored_by_both)},
      {"nobody_waits", "of 'x'", TWINS(nobody_waits)},
      {"vector_before_wait", "byte 508 of 'x'", TWINS(vector_before_wait)},
      {"counted_before_wait", "byte 0 of 'count'", TWINS(counted_before_wait)},
      {"read_behind_tickets", "of 'x'", chain<tickets_first, read_behind_tickets<false>>,
       chain<tickets_first, read_behind_tickets<true>>},
      {"tickets_before_wait", "of 'x'", TWINS(tickets_before_wait)},
      {"copied_before_wait", "of 'x'", TWINS(copied_before_wait)},
      {"bulk_before_wait", "of 'x'", TWINS(bulk_before_wait)},
      {"bulk_stored_before_wait", "of 'x'", TWINS(bulk_stored_before_wait)},
      {"other_warp_waits", "of 'x'", TWINS(other_warp_waits)},
      {"other_block_waits", "of 'x'", TWINS(other_block_waits)},
      {"waited_behind_arrival", "of 'x'", TWINS(waited_behind_arrival)},
      {"flag_behind_wait", "byte 256 of 'x'", TWINS(flag_behind_wait)},
      {"relaxed_behind_wait", "of 'x'", in_clusters<2, relaxed_behind_wait_first, relaxed_behind_wait<false>>,
       in_clusters<2, relaxed_behind_wait_first, relaxed_behind_wait<true>>},
      {"launched_early", "of 'x'", TWINS(launched_early)},
      {"stored_behind_launch", "of 'x'", TWINS(stored_behind_launch)},
      {"middle_does_not_wait", "of 'x'", chain<middle_does_not_wait_first, middle<false>, middle_does_not_wait>,
       chain<middle_does_not_wait_first, middle<true>, middle_does_not_wait>},
      {"lost_for_good", "of 'x'", chain<lost_for_good_first, lost_for_good_second<false>, waits_and_reads, lost_for_good>,
       chain<lost_for_good_first, lost_for_good_second<true>, waits_and_reads, lost_for_good>},
      {"two_launches_ago", "of 'x'", chain<two_launches_ago_first, middle<true>, two_launches_ago<false>>,
       chain<two_launches_ago_first, middle<true>, two_launches_ago<true>>},
  };
  return all;
}

#undef TWINS

void correct_dependents() {
  chain<first_of_right_chain, next_of_right_chain, last_of_right_chain>();
  const Arrays arrays;
  arrays.launch(nobody_waits<false>, true);           // nothing came before it but the host
  arrays.launch(nobody_waits_first, false);           // plain
  arrays.launch(lost_for_good_second<false>, false);  // plain, too: the one before has ended
  arrays.launch(nobody_waits<false>, true);
}

void launches_that_have_ended(void (*between)()) {
  const Arrays arrays;
  arrays.launch(nobody_waits_first, false);
  between();
  arrays.launch(nobody_waits<false>, true);
}

}  // namespace faulty
