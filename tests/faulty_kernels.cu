#include <cstring>

#include "common/device/launch.h"
#include "common/device/memory.cuh"
#include "tests/faulty_kernels.h"

namespace faulty {
namespace {

using device::launch;

struct Smem {
  float row_max[4];
  union {
    float k_tile[8][4];
    int flags[32];
  };
};

struct RaceSmem {
  union {
    float values[64];
    __half halves[64];
  };
  int count;
};

__global__ void read_past_end(const float* q,  // [32]
                              float* o) {      // [32]
  const int t = threadIdx.x;
  o[t] = q[t + 1];  // fault: read_past_end
}

__global__ void write_before_start(float* o) {  // [32]
  const int t = threadIdx.x;
  o[t - 1] = 1.0f;  // fault: write_before_start
}

__global__ void vector_over_end(const float4* q,  // [7] and half a one
                                float4* o) {      // [8]
  const int t = threadIdx.x;
  if (t < 8) device::store(&o[t], device::load(&q[t]));  // fault: vector_over_end
}

__global__ void shared_past_end(float* o) {  // [32]
  auto& smem = device::shared_storage<Smem>();
  float* tile = &smem.k_tile[0][0];
  const int t = threadIdx.x;
  tile[t] = 1.0f;
  __syncthreads();     // the tile is written
  o[t] = tile[t + 1];  // fault: shared_past_end
}

__global__ void shared_not_written(float* o) {  // [32]
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  if (t != 13) smem.k_tile[t / 4][t % 4] = 1.0f;
  __syncthreads();                   // the tile is written, but for one element
  o[t] = smem.k_tile[t / 4][t % 4];  // fault: shared_not_written
}

__global__ void global_not_written(const float* scratch,  // [32], never written
                                   float* o) {            // [32]
  const int t = threadIdx.x;
  o[t] = scratch[t];  // fault: global_not_written
}

__global__ void misaligned(const float* q,  // [32]
                           float4* o) {     // [8]
  const int t = threadIdx.x;
  if (t < 7) device::store(&o[t], device::load(reinterpret_cast<const float4*>(q + 4 * t + 1)));  // fault: misaligned
}

__global__ void host_pointer(const float* q,  // [32], in host memory
                             float* o) {      // [32]
  const int t = threadIdx.x;
  o[t] = q[t];  // fault: host_pointer
}

__global__ void null_pointer(float* o) {
  o[threadIdx.x] = 1.0f;  // fault: null_pointer
}

__global__ void divergent_barrier(float* o) {  // [64]
  if (threadIdx.x < 32) {
    __syncthreads();  // warp 0 waits here
  } else {
    __syncthreads();  // fault: divergent_barrier
  }
  o[threadIdx.x] = 1.0f;
}

__global__ void vote_without_all(float* o) {  // [32]
  const int t = threadIdx.x;
  if (t < 16) {
    o[t] = __any_sync(0xffffffffu, t == 3);
  } else {
    __syncthreads();  // fault: vote_without_all
  }
}

__global__ void exited_lane(float* o) {  // [32]
  const int t = threadIdx.x;
  if (t == 31) return;
  o[t] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);  // fault: exited_lane
}

__global__ void caller_outside_mask(float* o) {  // [32]
  const int t = threadIdx.x;
  o[t] = __shfl_xor_sync(0x0000ffffu, 1.0f, 1);  // fault: caller_outside_mask
}

__global__ void shuffle_from_outside(float* o) {  // [32]
  const int t = threadIdx.x;
  if (t < 16) o[t] = __shfl_xor_sync(0x0000ffffu, 1.0f, 16);  // fault: shuffle_from_outside
}

__global__ void small_launch(float* o) {        // [32]
  auto& smem = device::shared_storage<Smem>();  // fault: small_launch
  smem.row_max[0] = 1.0f;
  o[threadIdx.x] = smem.row_max[0];
}

__global__ void endless_spin(volatile int* flag) {
  while (*flag == 0) {
  }
}

__global__ void unseen_write(float* o,  // [32]
                             std::size_t bytes) {
  const float one = 1.0f;
  if (threadIdx.x == 0) std::memcpy(o, &one, bytes);  // a library call: no hook sees what it writes
}

// The twins of a race are one kernel: with `mended`, what is missing is there.

template <bool mended>
__global__ void barrier_after_store(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;  // one: barrier_after_store
  if (mended) __syncthreads();
  o[t] = smem.values[63 - t];  // other: barrier_after_store
}

template <bool mended>
__global__ void barrier_before_reuse(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  __syncthreads();                          // written before it is read
  const float first = smem.values[63 - t];  // one: barrier_before_reuse
  if (mended) __syncthreads();
  smem.values[t] = 2 * t;  // other: barrier_before_reuse
  o[t] = first;
}

template <bool mended>
__global__ void barrier_in_loop(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < 3; ++i) {
    smem.values[t] = t + i;      // one: barrier_in_loop
    __syncthreads();             // written before it is read
    sum += smem.values[63 - t];  // other: barrier_in_loop
    if (mended) __syncthreads();
  }
  o[t] = sum;
}

template <bool mended>
__global__ void two_writers(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  if (t < 33) smem.values[t] = 1.0f;  // one: two_writers
  if (mended) __syncthreads();
  if (t >= 32) smem.values[64 - t] = 2.0f;  // other: two_writers
  o[t] = t;
}

template <bool mended>
__global__ void syncwarp_missing(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;  // one: syncwarp_missing
  if (mended) __syncwarp();
  o[t] = smem.values[t ^ 1];  // other: syncwarp_missing
}

template <bool mended>
__global__ void shuffle_is_no_barrier(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;  // one: shuffle_is_no_barrier
  const float other = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  if (mended) __syncwarp();
  o[t] = other + smem.values[t ^ 1];  // other: shuffle_is_no_barrier
}

template <bool mended>
__global__ void syncwarp_across_warps(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;  // one: syncwarp_across_warps
  __syncwarp();        // orders this warp only
  if (mended) __syncthreads();
  o[t] = smem.values[t ^ 32];  // other: syncwarp_across_warps
}

template <bool mended>
__global__ void mask_too_small(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  const int half = t % 32 / 16;  // each half of a warp waits for itself
  smem.values[t] = t;            // one: mask_too_small
  __syncwarp(mended ? 0xffffffffu : half == 0 ? 0x0000ffffu : 0xffff0000u);
  o[t] = smem.values[t ^ 16];  // other: mask_too_small
}

template <bool mended>
__global__ void half_words(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  // Two halves of one word by two threads are no race; the same half is one.
  device::store(&smem.halves[mended ? t : t / 2 * 2], __float2half(1.0f));  // one: half_words  // other: half_words
  o[t] = t;
}

template <bool mended>
__global__ void plain_beside_atomic(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  if (t == 0) smem.count = 0;
  __syncthreads();            // the count is zero
  atomicAdd(&smem.count, 1);  // one: plain_beside_atomic
  if (mended) __syncthreads();
  o[t] = smem.count;  // other: plain_beside_atomic
}

template <bool mended>
__global__ void store_before_own_atomic(float* o) {  // [threads]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  if (t == 0) smem.count = 0;  // one: store_before_own_atomic
  if (mended) __syncthreads();
  atomicAdd(&smem.count, 1);  // other: store_before_own_atomic
  o[t] = t;
}

template <bool mended>
__global__ void flag_without_fence(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  if (t == 0) smem.count = 0;
  __syncthreads();  // the flag is down
  if (t == 40) {
    smem.values[0] = 5.0f;  // one: flag_without_fence
    if (mended) __threadfence_block();
    atomicExch(&smem.count, 1);
  }
  if (t == 3) {
    while (atomicAdd(&smem.count, 0) == 0) {
    }
    if (mended) __threadfence_block();
    o[0] = smem.values[0];  // other: flag_without_fence
  }
}

__global__ void two_faults_kernel(const float* q,  // [32]
                                  float* o) {      // [32]
  const int t = threadIdx.x;
  float sum = q[t + 32];
  sum += q[t - 32];
  o[t] = sum;
}

__global__ void correct_kernel(const float4* q,  // [8]
                               float4* o) {      // [8]
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  if (t < 8) {
    const float4 value = device::load(&q[t]);
    smem.k_tile[t][0] = value.x;
    smem.k_tile[t][1] = value.y;
    smem.k_tile[t][2] = value.z;
    smem.k_tile[t][3] = value.w;
  }
  __syncthreads();  // the tile is written
  const float mine = smem.k_tile[t / 4][t % 4];
  const float other = __shfl_xor_sync(0xffffffffu, mine, 1);
  __syncthreads();  // the tile is read
  smem.flags[t] = __any_sync(0xffffffffu, mine > other);
  __syncthreads();  // the flags are written
  if (t < 8) device::store(&o[t], make_float4(mine, other, static_cast<float>(smem.flags[31 - t]), 0.0f));
}

// Reads enough to make the simulator forget some of them, and must not make it forget when they were.
__global__ void many_reads_kernel(float* o) {  // [32]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  if (t < 2) device::store(&smem.halves[t], __float2half(1.0f));
  __syncwarp();  // both halves are written
  float sum = 0.0f;
  for (int i = 0; t == 0 && i < 200; ++i) sum += __half2float(device::load(&smem.halves[i % 2]));
  __syncwarp();  // lane 0 has read before lane 1 writes the first half; the second may still be read
  if (t == 1) device::store(&smem.halves[0], __float2half(2.0f));
  if (t != 1) sum += __half2float(device::load(&smem.halves[1]));
  o[t] = sum;
}

__global__ void schedule_kernel(int* counter,  // [1]
                                int* order) {  // [blocks * threads]
  order[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(counter, 1);
}

struct ScheduleSmem {
  int counter;
};

__global__ void block_schedule_kernel(int* order) {  // [threads]
  auto& smem = device::shared_storage<ScheduleSmem>();
  if (threadIdx.x == 0) smem.counter = 0;
  __syncthreads();  // the counter is zero
  order[threadIdx.x] = atomicAdd(&smem.counter, 1);
}

device::Buffer zeros(const std::string& name, std::size_t floats) {
  device::Buffer buffer(name, floats * sizeof(float));
  const std::vector<float> values(floats);
  buffer.upload(values.data(), buffer.bytes());
  return buffer;
}

template <auto kernel, int threads = 32, std::size_t shared_bytes = sizeof(Smem)>
void run_on_output() {
  const device::Buffer o = zeros("o", threads);
  launch(kernel, 1, threads, shared_bytes, o.as<float>());
}

template <auto kernel, class In, class Out>
void run_on_input_and_output() {
  const device::Buffer q = zeros("q", std::is_same_v<In, float4> ? 30 : 32);
  const device::Buffer o = zeros("o", 32);
  launch(kernel, 1, 32, 0, q.as<const In>(), o.as<Out>());
}

}  // namespace

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"read_past_end", "out-of-bounds read", "0 bytes past the end of 'q' (128 bytes)",
       run_on_input_and_output<read_past_end, float, float>},
      {"write_before_start", "out-of-bounds write", "4 bytes before the start of 'o' (128 bytes)",
       run_on_output<write_before_start>},
      {"vector_over_end", "out-of-bounds read", "read of 16 bytes, 0 bytes past the end of 'q' (120 bytes)",
       run_on_input_and_output<vector_over_end, float4, float4>},
      {"shared_past_end", "out-of-bounds read", "0 bytes past the end of shared memory (144 bytes)",
       run_on_output<shared_past_end>},
      {"shared_not_written", "uninitialised read", "Smem::k_tile[3][1]", run_on_output<shared_not_written>},
      {"global_not_written", "uninitialised read", "of 'scratch' (128 bytes)",
       [] {
         device::Buffer scratch("scratch", 128);
         scratch.poison();
         const device::Buffer o = zeros("o", 32);
         launch(global_not_written, 1, 32, 0, scratch.as<const float>(), o.as<float>());
       }},
      {"misaligned", "misaligned read", "not a multiple of 16", run_on_input_and_output<misaligned, float, float4>},
      {"host_pointer", "wild read", "neither device memory nor shared memory",
       [] {
         const std::vector<float> host(32);
         const device::Buffer o = zeros("o", 32);
         launch(host_pointer, 1, 32, 0, host.data(), o.as<float>());
       }},
      {"null_pointer", "wild write", "neither device memory nor shared memory",
       [] { launch(null_pointer, 1, 32, 0, nullptr); }},
      {"divergent_barrier", "divergent barrier", "reached at two places", run_on_output<divergent_barrier, 64>},
      {"vote_without_all", "deadlock", "warp 0 lanes 0-15 wait in __any_sync(0xffffffff)", run_on_output<vote_without_all>},
      {"exited_lane", "exited lane in mask", "names lanes 31 of warp 0", run_on_output<exited_lane>},
      {"caller_outside_mask", "caller not in mask", "__shfl_xor_sync(0xffff)", run_on_output<caller_outside_mask>},
      {"shuffle_from_outside", "shuffle from absent lane", "which is not in the mask", run_on_output<shuffle_from_outside>},
      {"small_launch", "shared memory", "takes 144 bytes, the launch asked for 16", run_on_output<small_launch, 32, 16>},
      {"endless_spin", "endless spin", "nobody writes it",
       [] {
         const device::Buffer flag = zeros("flag", 1);
         launch(endless_spin, 1, 1, 0, flag.as<int>());
       }},
      {"unseen_write", "unseen write", "byte 2 of 'o' (128 bytes) changed",  // the first byte of 1.0f that is not zero
       [] {
         const device::Buffer o = zeros("o", 32);
         launch(unseen_write, 1, 32, 0, o.as<float>(), sizeof(float));
       }},
  };
  return all;
}

const std::vector<Race>& races() {
  constexpr std::size_t bytes = sizeof(RaceSmem);
  static const std::vector<Race> all = {
#define RACE(kernel, member) {#kernel, member, run_on_output<kernel<false>, 64, bytes>, run_on_output<kernel<true>, 64, bytes>}
      RACE(barrier_after_store, "RaceSmem::values["),
      RACE(barrier_before_reuse, "RaceSmem::values["),
      RACE(barrier_in_loop, "RaceSmem::values["),
      RACE(two_writers, "RaceSmem::values["),
      RACE(syncwarp_missing, "RaceSmem::values["),
      RACE(shuffle_is_no_barrier, "RaceSmem::values["),
      RACE(syncwarp_across_warps, "RaceSmem::values["),
      RACE(mask_too_small, "RaceSmem::values["),
      RACE(half_words, "RaceSmem::"),
      RACE(plain_beside_atomic, "RaceSmem::count"),
      RACE(flag_without_fence, "RaceSmem::values[0]"),
#undef RACE
      {"store_before_own_atomic", "RaceSmem::count", run_on_output<store_before_own_atomic<false>, 2, bytes>,
       run_on_output<store_before_own_atomic<true>, 2, bytes>},
  };
  return all;
}

void correct() {
  const device::Buffer q = zeros("q", 32);
  const device::Buffer o = zeros("o", 32);
  launch(correct_kernel, 3, 32, sizeof(Smem), q.as<const float4>(), o.as<float4>());
  launch(many_reads_kernel, 1, 32, sizeof(RaceSmem), o.as<float>());
}

void two_faults() {
  const device::Buffer q = zeros("q", 32);
  const device::Buffer o = zeros("o", 32);
  launch(two_faults_kernel, 1, 32, 0, q.as<const float>(), o.as<float>());
}

void too_many_threads() { launch(null_pointer, 1, 2048, 0, nullptr); }
void too_much_shared() { launch(null_pointer, 1, 32, 300000, nullptr); }

std::vector<int> schedule(int blocks, int threads) {
  const std::size_t count = static_cast<std::size_t>(blocks) * static_cast<std::size_t>(threads);
  const device::Buffer counter = zeros("counter", 1);
  const device::Buffer order = zeros("order", count);
  launch(schedule_kernel, blocks, threads, 0, counter.as<int>(), order.as<int>());
  std::vector<int> result(count);
  order.download(result.data(), order.bytes());
  return result;
}

std::vector<int> block_schedule(int threads) {
  const device::Buffer order = zeros("order", static_cast<std::size_t>(threads));
  launch(block_schedule_kernel, 1, threads, sizeof(ScheduleSmem), order.as<int>());
  std::vector<int> result(static_cast<std::size_t>(threads));
  order.download(result.data(), order.bytes());
  return result;
}

}  // namespace faulty
