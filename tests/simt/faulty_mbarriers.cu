// Of the faulty kernels those with mbarriers and with copies that arrive there.
#include "common/device/dialect.h"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/mbarrier_tx.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"
#include "tests/simt/faulty_kernels.h"

namespace faulty {
namespace {

using runtime::launch;

struct PhaseSmem {
  ptx::Mbarrier full;
  ptx::Mbarrier empty;
  alignas(16) float values[2][64];
};

// By one thread, and seen by all.
__device__ void make(ptx::Mbarrier& barrier, int arrivals) {
  if (threadIdx.x == 0) ptx::mbarrier_init(barrier, arrivals);
  __syncthreads();
}

// Every kernel is two: with `mended`, it is right. They have 64 threads.

template <bool mended>
__global__ void mbarrier_not_made(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  if (mended) make(smem.full, 64);
  if (mended || threadIdx.x == 5) ptx::mbarrier_arrive(smem.full);  // fault: mbarrier_not_made
}

template <bool mended>
__global__ void mbarrier_made_twice(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 64);
  if (threadIdx.x != 0) return;
  if (mended) ptx::mbarrier_inval(smem.full);
  ptx::mbarrier_init(smem.full, 32);  // fault: mbarrier_made_twice
}

template <bool mended>
__global__ void mbarrier_read(const float*, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  if (threadIdx.x == 0) smem.empty.opaque = 1;
  make(smem.full, 64);
  const auto bits = static_cast<std::uint32_t>((mended ? smem.empty : smem.full).opaque);  // fault: mbarrier_read
  o[threadIdx.x] = bits;
}

template <bool mended>
__global__ void mbarrier_written(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 64);
  if (threadIdx.x == 0 && mended) ptx::mbarrier_inval(smem.full);
  if (threadIdx.x == 0) smem.full.opaque = 0;  // fault: mbarrier_written
}

template <bool mended>
__global__ void mbarrier_under_copy(const float* q, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 64);
  if (threadIdx.x != 0) return;
  ptx::cp_async_8(mended ? &smem.empty : &smem.full, q);  // fault: mbarrier_under_copy
  ptx::cp_async_wait_all();
}

template <bool mended>
__global__ void mbarrier_of_nobody(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  if (threadIdx.x == 0) ptx::mbarrier_init(smem.full, mended ? 1 : 0);  // fault: mbarrier_of_nobody
}

template <bool mended>
__global__ void mbarrier_at_odd_place(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  auto& barrier = *reinterpret_cast<ptx::Mbarrier*>(&smem.values[0][mended ? 2 : 1]);
  if (threadIdx.x == 0) ptx::mbarrier_init(barrier, 1);  // fault: mbarrier_at_odd_place
}

template <bool mended>
__global__ void mbarrier_in_device_memory(const float*, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  auto& barrier = mended ? smem.full : *reinterpret_cast<ptx::Mbarrier*>(o);
  if (threadIdx.x == 0) ptx::mbarrier_init(barrier, 1);  // fault: mbarrier_in_device_memory
}

template <bool mended>
__global__ void mbarrier_parity_of_phase(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 64);
  for (int phase = 0; phase < 3; ++phase) {
    ptx::mbarrier_arrive(smem.full);
    ptx::mbarrier_wait(smem.full, mended ? phase % 2 : phase);  // fault: mbarrier_parity_of_phase
  }
}

template <bool mended>
__global__ void mbarrier_wrong_parity(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 64);
  ptx::mbarrier_arrive(smem.full);
  ptx::mbarrier_wait(smem.full, 0);
  ptx::mbarrier_wait(smem.full, mended ? 0 : 1);  // fault: mbarrier_wrong_parity
}

template <bool mended>
__global__ void mbarrier_arrival_missing(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 64);
  if (mended || threadIdx.x < 61) ptx::mbarrier_arrive(smem.full);
  ptx::mbarrier_wait(smem.full, 0);  // fault: mbarrier_arrival_missing
}

template <bool mended>
__global__ void mbarrier_asked_for_ever(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, mended ? 63 : 64);
  if (threadIdx.x != 0) ptx::mbarrier_arrive(smem.full);
  if (threadIdx.x != 0) return;
  while (!ptx::mbarrier_test_wait(smem.full, 0)) {  // fault: mbarrier_asked_for_ever
  }
}

// Two phases end before a thread that waits for the first one has looked, or could have.
template <bool mended>
__global__ void mbarrier_phase_missed(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 1);
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive(smem.full);
    if (!mended) ptx::mbarrier_arrive(smem.full);
  }
  if (threadIdx.x == 40) ptx::mbarrier_wait(smem.full, 0);  // fault: mbarrier_phase_missed
}

template <bool mended>
__global__ void mbarrier_arrival_too_many(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 2);
  if (threadIdx.x != 0) return;
  ptx::mbarrier_arrive_expect_tx(smem.full, 16);
  ptx::mbarrier_arrive(smem.full);
  if (!mended) ptx::mbarrier_arrive(smem.full);  // fault: mbarrier_arrival_too_many
}

template <bool mended>
__global__ void mbarrier_expects_too_much(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 1);
  if (threadIdx.x != 0) return;
  ptx::mbarrier_expect_tx(smem.full, 1000000);
  ptx::mbarrier_expect_tx(smem.full, mended ? 1000 : 100000);  // fault: mbarrier_expects_too_much
}

template <bool mended>
__global__ void mbarrier_expects_bytes(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 64);
  if (threadIdx.x == 0 && !mended) ptx::mbarrier_expect_tx(smem.full, 128);
  __syncthreads();  // or a phase could end before
  ptx::mbarrier_arrive(smem.full);
  ptx::mbarrier_wait(smem.full, 0);  // fault: mbarrier_expects_bytes
}

template <bool mended>
__global__ void mbarrier_used_after_inval(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 1);
  if (threadIdx.x != 0) return;
  if (!mended) ptx::mbarrier_inval(smem.full);
  ptx::mbarrier_arrive(smem.full);  // fault: mbarrier_used_after_inval
}

// All threads are counted, and half of them copy.
template <bool mended>
__global__ void mbarrier_copies_missing(const float* q, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, 64);
  if (t < 32) ptx::cp_async_8(&smem.values[0][2 * t], &q[2 * t]);
  if (mended || t < 32) ptx::cp_async_mbarrier_arrive(smem.full);
  ptx::mbarrier_wait(smem.full, 0);  // fault: mbarrier_copies_missing
  o[t] = smem.values[0][63 - t];
}

template <bool mended>
__global__ void mbarrier_copies_too_many(const float* q, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, mended ? 2 : 1);
  if (threadIdx.x != 0) return;
  ptx::mbarrier_arrive_expect_tx(smem.full, 16);
  ptx::cp_async_4(smem.values[0], q);
  ptx::cp_async_mbarrier_arrive(smem.full);  // fault: mbarrier_copies_too_many
  ptx::cp_async_wait_all();
}

template <bool mended>
__global__ void mbarrier_ended_under_copies(const float* q, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 1);
  if (threadIdx.x != 0) return;
  ptx::cp_async_4(smem.values[0], q);
  ptx::cp_async_mbarrier_arrive(smem.full);
  if (mended) ptx::mbarrier_wait(smem.full, 0);
  ptx::mbarrier_inval(smem.full);  // fault: mbarrier_ended_under_copies
}

// ---- races ----

template <bool mended>
__global__ void mbarrier_made_unseen(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  if (threadIdx.x == 0) ptx::mbarrier_init(smem.full, 64);  // one: mbarrier_made_unseen
  if (mended) __syncthreads();
  ptx::mbarrier_arrive(smem.full);  // other: mbarrier_made_unseen
}

template <bool mended>
__global__ void mbarrier_ended_unseen(const float*, float*) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 64);
  if (threadIdx.x == 40) ptx::mbarrier_arrive(smem.full);  // other: mbarrier_ended_unseen
  if (mended) __syncthreads();
  if (threadIdx.x == 0) ptx::mbarrier_inval(smem.full);  // one: mbarrier_ended_unseen
}

// The phase before the first one counts as over. (Here the first one is not, as long as thread 0 comes only once.)
template <bool mended>
__global__ void mbarrier_early_parity(const float*, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, 65);
  smem.values[0][t] = t;  // one: mbarrier_early_parity
  ptx::mbarrier_arrive(smem.full);
  if (t == 0 && mended) ptx::mbarrier_arrive(smem.full);
  ptx::mbarrier_wait(smem.full, mended ? 0 : 1);
  o[t] = smem.values[0][63 - t];  // other: mbarrier_early_parity
}

template <bool mended>
__global__ void mbarrier_store_behind_arrival(const float*, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, 64);
  if (!mended) ptx::mbarrier_arrive(smem.full);
  smem.values[0][t] = t;  // one: mbarrier_store_behind_arrival
  if (mended) ptx::mbarrier_arrive(smem.full);
  ptx::mbarrier_wait(smem.full, 0);
  o[t] = smem.values[0][63 - t];  // other: mbarrier_store_behind_arrival
}

// Nor are they seen if another thread arrives later.
template <bool mended>
__global__ void mbarrier_store_between_arrivals(const float*, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, 2);
  if (t == 0) {
    if (!mended) ptx::mbarrier_arrive(smem.full);
    smem.values[0][0] = 1.0f;  // one: mbarrier_store_between_arrivals
    if (mended) ptx::mbarrier_arrive(smem.full);
  }
  if (t == 32) {
    ptx::mbarrier_arrive(smem.full);
    ptx::mbarrier_wait(smem.full, 0);
    o[t] = smem.values[0][0];  // other: mbarrier_store_between_arrivals
  }
}

template <bool mended>
__global__ void mbarrier_asked_once(const float*, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, 64);
  smem.values[0][t] = t;  // one: mbarrier_asked_once
  ptx::mbarrier_arrive(smem.full);
  if (mended) ptx::mbarrier_wait(smem.full, 0);
  if (!mended) ptx::mbarrier_try_wait(smem.full, 0);
  o[t] = smem.values[0][63 - t];  // other: mbarrier_asked_once
}

// One thread of the warp has waited, and tells the others by a vote.
template <bool mended>
__global__ void mbarrier_waited_for_others(const float*, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, 64);
  smem.values[0][t] = t;  // one: mbarrier_waited_for_others
  ptx::mbarrier_arrive(smem.full);
  if (t % 32 == 0) ptx::mbarrier_wait(smem.full, 0);
  const int any = __any_sync(0xffffffffu, 1);
  if (mended) __syncwarp();
  o[t] = any + smem.values[0][63 - t];  // other: mbarrier_waited_for_others
}

// A stage that is filled again when half of those who read it have arrived.
template <bool mended>
__global__ void mbarrier_refilled_early(const float* q, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  if (t == 0) ptx::mbarrier_init(smem.empty, mended ? 63 : 31);
  make(smem.full, 1);
  if (t == 0) {
    for (int round = 0; round < 2; ++round) {
      if (round > 0) ptx::mbarrier_wait(smem.empty, 0);
      for (int i = 0; i < 64; i += 4) ptx::cp_async_16(&smem.values[0][i], &q[i]);  // one: mbarrier_refilled_early
      if (round == 0) ptx::cp_async_mbarrier_arrive(smem.full);
    }
    ptx::cp_async_wait_all();
  } else {
    ptx::mbarrier_wait(smem.full, 0);
    o[t] = smem.values[0][t];  // other: mbarrier_refilled_early
    if (mended || t < 32) ptx::mbarrier_arrive(smem.empty);
  }
}

// Whoever has not waited for the copies has not seen them, whatever barriers there are.
template <bool mended>
__global__ void mbarrier_copies_seen_by_one(const float* q, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, 32);
  if (t < 32) ptx::cp_async_8(&smem.values[0][2 * t], &q[2 * t]);  // one: mbarrier_copies_seen_by_one
  if (t < 32) ptx::cp_async_mbarrier_arrive(smem.full);
  __syncthreads();
  if (mended || t == 50) ptx::mbarrier_wait(smem.full, 0);
  o[t] = smem.values[0][63 - t];  // other: mbarrier_copies_seen_by_one
}

// Nor has the thread that issued them.
template <bool mended>
__global__ void mbarrier_own_copies(const float* q, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, 64);
  ptx::cp_async_4(&smem.values[0][t], &q[t]);  // one: mbarrier_own_copies
  ptx::cp_async_mbarrier_arrive(smem.full);
  if (mended || t >= 32) ptx::mbarrier_wait(smem.full, 0);
  o[t] = smem.values[0][t];  // other: mbarrier_own_copies
}

// The arrival of copies says nothing of what their thread stored itself.
template <bool mended>
__global__ void mbarrier_store_beside_copies(const float* q, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, mended ? 128 : 64);
  ptx::cp_async_4(&smem.values[0][t], &q[t]);
  smem.values[1][t] = t;  // one: mbarrier_store_beside_copies
  ptx::cp_async_mbarrier_arrive(smem.full);
  if (mended) ptx::mbarrier_arrive(smem.full);
  ptx::mbarrier_wait(smem.full, 0);
  o[t] = smem.values[0][63 - t];
  o[t] += smem.values[1][63 - t];  // other: mbarrier_store_beside_copies
}

template <bool mended>
__global__ void mbarrier_copy_behind_arrival(const float* q, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, 64);
  if (!mended) ptx::cp_async_mbarrier_arrive(smem.full);
  ptx::cp_async_4(&smem.values[0][t], &q[t]);  // one: mbarrier_copy_behind_arrival
  if (mended) ptx::cp_async_mbarrier_arrive(smem.full);
  ptx::mbarrier_wait(smem.full, 0);
  o[t] = smem.values[0][63 - t];  // other: mbarrier_copy_behind_arrival
}

// What the copies read may be stored to when they have been waited for.
template <bool mended>
__global__ void mbarrier_source_stored(float* q, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  make(smem.full, 64);
  ptx::cp_async_4(&smem.values[0][t], &q[t]);  // one: mbarrier_source_stored
  ptx::cp_async_mbarrier_arrive(smem.full);
  if (mended) ptx::mbarrier_wait(smem.full, 0);
  q[63 - t] = 1.0f;  // other: mbarrier_source_stored
  ptx::mbarrier_wait(smem.full, 0);
  o[t] = smem.values[0][t];
}

// Each mbarrier tells of the copies before its arrival only, though another thread has seen those behind it. (The flag says
// when to look, and orders nothing.)
template <bool mended>
__global__ void mbarrier_of_earlier_copies(const float* q, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  const int t = threadIdx.x;
  int& flag = *reinterpret_cast<int*>(&smem.values[0][63]);
  if (t == 0) flag = 0;
  make(smem.full, 1);
  make(smem.empty, 1);
  if (t == 0) {
    ptx::cp_async_4(&smem.values[0][0], &q[0]);
    ptx::cp_async_mbarrier_arrive(smem.full);
    ptx::cp_async_4(&smem.values[1][0], &q[1]);  // one: mbarrier_of_earlier_copies
    ptx::cp_async_mbarrier_arrive(smem.empty);
  } else if (t == 1) {
    ptx::mbarrier_wait(smem.empty, 0);
    atomicExch(&flag, 1);
  } else if (t == 32) {
    while (atomicAdd(&flag, 0) == 0) {
    }
    ptx::mbarrier_wait(smem.full, 0);
    if (mended) ptx::mbarrier_wait(smem.empty, 0);
    o[t] = smem.values[0][0] + smem.values[1][0];  // other: mbarrier_of_earlier_copies
  }
}

// Thread 1 counts, and finds a new number each time, until thread 0 has seen its copy.
__global__ void restless_kernel(const float* q, float* o) {
  auto& smem = device::shared_storage<PhaseSmem>();
  make(smem.full, 1);
  int& count = *reinterpret_cast<int*>(smem.values[1]);
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  constexpr int end = 1 << 20;
  if (threadIdx.x == 0) {
    ptx::cp_async_4(smem.values[0], q);
    ptx::cp_async_mbarrier_arrive(smem.full);
    ptx::mbarrier_wait(smem.full, 0);
    atomicAdd(&count, end);
  } else if (threadIdx.x == 1) {
    int rounds = 0;
    while (atomicAdd(&count, 1) < end) ++rounds;
    o[0] = rounds;
  }
}

template <auto kernel>
void run() {
  runtime::Buffer q("q", 256 * sizeof(float)), o("o", 256 * sizeof(float));
  const std::vector<float> zeros(256);
  q.upload(zeros.data(), q.bytes());
  o.upload(zeros.data(), o.bytes());
  launch(kernel, {1, 64, sizeof(PhaseSmem)}, q.as<float>(), o.as<float>());
}

}  // namespace

std::vector<float> seen_before_phase() {
  runtime::Buffer q("q", 256 * sizeof(float)), o("o", 256 * sizeof(float));
  const std::vector<float> ones(256, 1.0f);
  q.upload(ones.data(), q.bytes());
  launch(mbarrier_own_copies<false>, {1, 64, sizeof(PhaseSmem)}, q.as<const float>(), o.as<float>());
  std::vector<float> seen(256);
  o.download(seen.data(), o.bytes());
  return {seen.begin(), seen.begin() + 32};
}

float restless() {
  float rounds = 0.0f;
  runtime::Buffer in("in", sizeof(float)), out("out", sizeof(float));
  in.upload(&rounds, sizeof(float));
  launch(restless_kernel, {1, 64, sizeof(PhaseSmem)}, in.as<const float>(), out.as<float>());
  out.download(&rounds, sizeof(float));
  return rounds;
}

#define TWINS(kernel) run<kernel<false>>, run<kernel<true>>

std::vector<Fault> faults_of_mbarriers() {
  const std::string misuse = "mbarrier misuse", wait = "mbarrier_wait of PhaseSmem::full.opaque for the phase of parity ";
  return {
      {"mbarrier_not_made", "uninitialised read", "mbarrier.arrive at PhaseSmem::full.opaque: nobody has made it an mbarrier",
       TWINS(mbarrier_not_made)},
      {"mbarrier_made_twice", misuse, "PhaseSmem::full.opaque: it is an mbarrier already", TWINS(mbarrier_made_twice)},
      {"mbarrier_read", misuse, "read of 8 bytes at PhaseSmem::full.opaque, which is an mbarrier", TWINS(mbarrier_read)},
      {"mbarrier_written", misuse, "write of 8 bytes at PhaseSmem::full.opaque, which is an mbarrier", TWINS(mbarrier_written)},
      {"mbarrier_under_copy", misuse, "write of 8 bytes at PhaseSmem::full.opaque, which is an mbarrier",
       TWINS(mbarrier_under_copy)},
      {"mbarrier_of_nobody", misuse, "0 arrivals; a phase has 1 to 1048575", TWINS(mbarrier_of_nobody)},
      {"mbarrier_at_odd_place", misuse, "PhaseSmem::values[0][1]: its address is not a multiple of 8",
       TWINS(mbarrier_at_odd_place)},
      {"mbarrier_in_device_memory", misuse, "'o' (1024 bytes): it does not lie in shared memory",
       TWINS(mbarrier_in_device_memory)},
      {"mbarrier_parity_of_phase", misuse, "parity 2; it is 0 or 1", TWINS(mbarrier_parity_of_phase)},
      {"mbarrier_wrong_parity", "deadlock", wait + "1 (it is in phase 1, of parity 1, which lacks 64 arrivals)",
       TWINS(mbarrier_wrong_parity)},
      {"mbarrier_arrival_missing", "deadlock", wait + "0 (it is in phase 0, of parity 0, which lacks 3 arrivals)",
       TWINS(mbarrier_arrival_missing)},
      {"mbarrier_asked_for_ever", "endless spin", "warp 0, lanes 0: PhaseSmem::full.opaque", TWINS(mbarrier_asked_for_ever)},
      {"mbarrier_phase_missed", misuse, "the thread has not seen the end of phase 0: it has missed one",
       TWINS(mbarrier_phase_missed)},
      {"mbarrier_arrival_too_many", misuse, "all 2 arrivals of this phase have come, and it waits for bytes",
       TWINS(mbarrier_arrival_too_many)},
      {"mbarrier_expects_too_much", misuse, "1100000 bytes would then be expected; at most 1048575",
       TWINS(mbarrier_expects_too_much)},
      {"mbarrier_expects_bytes", "deadlock", wait + "0 (it is in phase 0, of parity 0, which lacks 128 bytes)",
       TWINS(mbarrier_expects_bytes)},
      {"mbarrier_used_after_inval", "uninitialised read", "it is an mbarrier no longer", TWINS(mbarrier_used_after_inval)},
      {"mbarrier_copies_too_many", misuse, "copies arrive at PhaseSmem::full.opaque, all arrivals of whose phase have come",
       TWINS(mbarrier_copies_too_many)},
      {"mbarrier_ended_under_copies", misuse, "copies that arrive there are under way", TWINS(mbarrier_ended_under_copies)},
      {"mbarrier_copies_missing", "deadlock", wait + "0 (it is in phase 0, of parity 0, which lacks 32 arrivals)",
       TWINS(mbarrier_copies_missing)},
  };
}

std::vector<Race> races_of_mbarriers() {
  return {
      {"mbarrier_made_unseen", "PhaseSmem::full", TWINS(mbarrier_made_unseen)},
      {"mbarrier_ended_unseen", "PhaseSmem::full", TWINS(mbarrier_ended_unseen)},
      {"mbarrier_early_parity", "PhaseSmem::values[0][", TWINS(mbarrier_early_parity)},
      {"mbarrier_store_behind_arrival", "PhaseSmem::values[0][", TWINS(mbarrier_store_behind_arrival)},
      {"mbarrier_store_between_arrivals", "PhaseSmem::values[0][0]", TWINS(mbarrier_store_between_arrivals)},
      {"mbarrier_asked_once", "PhaseSmem::values[0][", TWINS(mbarrier_asked_once)},
      {"mbarrier_waited_for_others", "PhaseSmem::values[0][", TWINS(mbarrier_waited_for_others)},
      {"mbarrier_refilled_early", "PhaseSmem::values[0][", TWINS(mbarrier_refilled_early)},
      {"mbarrier_copies_seen_by_one", "PhaseSmem::values[0][", TWINS(mbarrier_copies_seen_by_one)},
      {"mbarrier_own_copies", "PhaseSmem::values[0][", TWINS(mbarrier_own_copies)},
      {"mbarrier_store_beside_copies", "PhaseSmem::values[1][", TWINS(mbarrier_store_beside_copies)},
      {"mbarrier_copy_behind_arrival", "PhaseSmem::values[0][", TWINS(mbarrier_copy_behind_arrival)},
      {"mbarrier_of_earlier_copies", "PhaseSmem::values[1][0]", TWINS(mbarrier_of_earlier_copies)},
      {"mbarrier_source_stored", "of 'q' (1024 bytes)", TWINS(mbarrier_source_stored)},
  };
}

#undef TWINS

}  // namespace faulty
