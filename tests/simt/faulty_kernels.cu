#include <atomic>
#include <cstdio>
#include <cstring>

#include "common/device/dialect.h"
#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/barrier.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/red.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"
#include "tests/simt/faulty_kernels.h"

namespace faulty {
namespace {

using runtime::launch;

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

struct CopySmem {
  alignas(16) float stage[2][64];
};

struct MatrixSmem {
  alignas(16) float rows[32][4];  // of four matrices
};

// Operands that belong into registers.
struct SumsSmem {
  float sums[32][4];
};

struct FragmentSmem {
  alignas(16) float rows[8][4];
  std::uint32_t fragment[32][1];
};

// Every kernel is two: with `mended`, it is right.

template <bool mended>
__global__ void read_past_end(const float* q,  // [32]
                              float* o) {      // [32]
  const int t = threadIdx.x;
  o[t] = q[mended ? t : t + 1];  // fault: read_past_end
}

template <bool mended>
__global__ void write_before_start(float* o) {  // [32]
  const int t = threadIdx.x;
  o[mended ? t : t - 1] = 1.0f;  // fault: write_before_start
}

template <bool mended>
__global__ void vector_over_end(const float4* q,  // [7] and half a one
                                float4* o) {      // [8]
  const int t = threadIdx.x;
  if (t < (mended ? 7 : 8)) device::store(&o[t], device::load(&q[t]));  // fault: vector_over_end
}

template <bool mended>
__global__ void division_by_zero(float* o) {  // [32]
  const int t = threadIdx.x;
  const int width = blockDim.x - (mended ? 0 : 32);
  o[t] = t % width;  // fault: division_by_zero
}

template <bool mended>
__global__ void shared_past_end(float* o) {  // [32]
  auto& smem = device::shared_storage<Smem>();
  float* tile = &smem.k_tile[0][0];
  const int t = threadIdx.x;
  tile[t] = 1.0f;
  __syncthreads();                            // the tile is written
  o[t] = tile[(t + 1) % (mended ? 32 : 33)];  // fault: shared_past_end
}

template <bool mended>
__global__ void shared_not_written(float* o) {  // [32]
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  if (mended || t != 13) smem.k_tile[t / 4][t % 4] = 1.0f;
  __syncthreads();                   // the tile is written, but perhaps for one element
  o[t] = smem.k_tile[t / 4][t % 4];  // fault: shared_not_written
}

template <bool mended>
__global__ void global_not_written(float* scratch,  // [32], not written before
                                   float* o) {      // [32]
  const int t = threadIdx.x;
  if (mended) scratch[t] = 1.0f;
  o[t] = scratch[t];  // fault: global_not_written
}

template <bool mended>
__global__ void misaligned(const float* q,  // [32]
                           float4* o) {     // [8]
  const int t = threadIdx.x;
  if (t < 7) device::store(&o[t], device::load(reinterpret_cast<const float4*>(q + 4 * t + !mended)));  // fault: misaligned
}

template <bool mended>
__global__ void host_pointer(const float* q,  // [32], in host memory unless mended
                             float* o) {      // [32]
  const int t = threadIdx.x;
  o[t] = q[t];  // fault: host_pointer
}

template <bool mended>
__global__ void null_pointer(float* o) {  // [32], or null
  o[threadIdx.x] = 1.0f;                  // fault: null_pointer
}

template <bool mended>
__global__ void divergent_barrier(float* o) {  // [64]
  if (!mended && threadIdx.x < 32) {
    __syncthreads();  // warp 0 waits here
  } else {
    __syncthreads();  // fault: divergent_barrier
  }
  o[threadIdx.x] = 1.0f;
}

// One line, and two places in the code: the compiler puts this function into both branches.
template <bool first>
__device__ void wait_for_block() {
  __syncthreads();  // fault: barrier_in_two_instances
}
template <bool mended>
__global__ void barrier_in_two_instances(float* o) {  // [64]
  const int t = threadIdx.x;
  if (mended || t % 32 < 16) {
    o[t] = 1.0f;
    wait_for_block<true>();
  } else {
    wait_for_block<false>();
    o[t] = 2.0f;
  }
}

template <bool mended>
__global__ void skipped_barrier(float* o) {  // [64]
  const int t = threadIdx.x;
  if (!mended && t >= 40) return;
  __syncthreads();  // fault: skipped_barrier
  o[t] = 1.0f;
}

template <bool mended>
__global__ void vote_without_all(float* o) {  // [32]
  const int t = threadIdx.x;
  if (mended) {
    o[t] = __any_sync(0xffffffffu, t == 3);
  } else if (t < 16) {
    o[t] = __any_sync(0xffffffffu, t == 3);
  } else {
    __syncthreads();  // fault: vote_without_all
  }
}

template <bool mended>
__global__ void exited_lane(float* o) {  // [32]
  const int t = threadIdx.x;
  if (!mended && t == 31) return;
  o[t] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);  // fault: exited_lane
}

template <bool mended>
__global__ void caller_outside_mask(float* o) {  // [32]
  const int t = threadIdx.x;
  o[t] = __shfl_xor_sync(mended ? 0xffffffffu : 0x0000ffffu, 1.0f, 1);  // fault: caller_outside_mask
}

template <bool mended>
__global__ void shuffle_from_outside(float* o) {  // [32]
  const int t = threadIdx.x;
  if (t < 16) o[t] = __shfl_xor_sync(0x0000ffffu, 1.0f, mended ? 8 : 16);  // fault: shuffle_from_outside
}

template <bool mended>
__global__ void shuffle_of_two_sizes(float* o) {  // [32]
  const int t = threadIdx.x;
  float other;
  if (t % 2 == 0) {
    other = __shfl_xor_sync(mended ? 0x55555555u : 0xffffffffu, 1.0, 2);
  } else {
    other = __shfl_xor_sync(mended ? 0xaaaaaaaau : 0xffffffffu, 1.0f, 2);  // fault: shuffle_of_two_sizes
  }
  o[t] = other;
}

template <bool mended>
__global__ void shuffle_width(float* o) {  // [32]
  const int t = threadIdx.x;
  o[t] = __shfl_up_sync(0xffffffffu, 1.0f, 1, mended ? 8 : 12);  // fault: shuffle_width
}

template <bool mended>
__global__ void small_launch(float* o) {        // [32]
  auto& smem = device::shared_storage<Smem>();  // fault: small_launch
  smem.k_tile[threadIdx.x / 4][threadIdx.x % 4] = 1.0f;
  o[threadIdx.x] = smem.k_tile[threadIdx.x / 4][threadIdx.x % 4];
}

template <bool mended>
__global__ void endless_spin(volatile int* flag) {
  if (mended) *flag = 1;
  while (*flag == 0) {  // fault: endless_spin
  }
}

// Each block waits for the next one; the last one waits for nobody.
__global__ void chain_kernel(int* flags) {  // [blocks + 1], the last is 1
  if (threadIdx.x != 0) return;
  volatile int* flag = flags;
  while (flag[blockIdx.x + 1] == 0) {  // fault: chain_kernel
  }
  flag[blockIdx.x] = 1;
}

__global__ void spin_with_stores_kernel(int* flag,   // [1]
                                        float* o) {  // [1]
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    while (atomicAdd(flag, 0) == 0) o[0] += 1.0f;  // fault: spin_with_stores_kernel
  } else {
    atomicExch(flag, 1);
  }
}

// The flag is asked for in a loop that draws tickets, so that each round finds something new.
__global__ void spin_with_tickets_kernel(int* flag,      // [1]
                                         int* ticket) {  // [1]
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    while (atomicAdd(flag, 0) == 0) atomicAdd(ticket, 1);
  } else {
    atomicExch(flag, 1);
  }
}

__global__ void all_spin_kernel(volatile int* flag) {
  while (*flag == 0) {  // fault: all_spin_kernel
  }
}

template <bool mended>
__global__ void unseen_write(float* o,  // [32]
                             std::size_t bytes) {
  const float one = 1.0f;
  if (mended) {
    o[threadIdx.x] = one;
  } else if (threadIdx.x == 0) {
    std::memcpy(o, &one, bytes);  // a library call: no hook sees what it writes
  }
}

template <bool mended>
__global__ void barrier_count(float* o) {  // [64]
  ptx::bar_sync(1, mended ? 64 : 48);      // fault: barrier_count
  o[threadIdx.x] = 1.0f;
}

template <bool mended>
__global__ void barrier_of_nobody(float* o) {      // [64]
  ptx::bar_sync(mended ? 1 : 0, mended ? 64 : 0);  // fault: barrier_of_nobody
  o[threadIdx.x] = 1.0f;
}

template <bool mended>
__global__ void barrier_mismatch(float* o) {  // [96]
  const int t = threadIdx.x;
  if (mended || t < 64) ptx::bar_sync(1, mended || t < 32 ? 96 : 64);  // fault: barrier_mismatch
  o[t] = 1.0f;
}

// Two roles, which wait for each other at two places: the compiler puts this function in both.
template <bool mended>
__device__ void wait_for_both() {
  if (mended) ptx::barrier_sync(1, 64);
  if (!mended) ptx::bar_sync(1, 64);  // fault: barrier_of_roles
}
template <bool mended>
__global__ void barrier_of_roles(float* o) {  // [64]
  if (threadIdx.x < 32) {
    o[threadIdx.x] = 1.0f;
    wait_for_both<mended>();
  } else {
    wait_for_both<mended>();
    o[threadIdx.x] = 2.0f;
  }
}

// The other lanes of the warp have ended: each call of the one that is left counts for 32 threads.
template <bool mended>
__global__ void arrive_twice(float* o) {  // [64]
  const int t = threadIdx.x;
  if (t < (mended ? 32 : 1)) {
    for (int i = 0; i < (mended ? 1 : 32); ++i) ptx::bar_arrive(1, 64);  // fault: arrive_twice
  }
  if (t >= 32) ptx::bar_sync(1, 64);
  o[t] = 1.0f;
}

template <bool mended>
__global__ void arrive_missing(float* o) {  // [64]
  if (threadIdx.x < 32) {
    ptx::bar_sync(1, 64);  // fault: arrive_missing
  } else if (mended) {
    ptx::bar_arrive(1, 64);
  }
  o[threadIdx.x] = 1.0f;
}

// ---- asynchronous copies and matrices ----

template <bool mended>
__global__ void copy_past_end(const float* q,  // [32]
                              float* o) {      // [32]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &q[mended ? t : t + 1]);  // fault: copy_past_end
  ptx::cp_async_wait_all();
  o[t] = smem.stage[0][t];
}

template <bool mended>
__global__ void copy_over_end(const float4* q,  // [7] and half a one
                              float4* o) {      // [8]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  if (t < 8) {
    float* const to = &smem.stage[0][4 * t];
    ptx::cp_async_16(to, &q[t], mended && t == 7 ? 8 : 16);  // fault: copy_over_end
    ptx::cp_async_wait_all();
    device::store(&o[t], device::load(reinterpret_cast<const float4*>(to)));
  }
}

template <bool mended>
__global__ void copy_past_shared(const float* q,  // [32]
                                 float* o) {      // [32]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][0] + t + (mended ? 96 : 97), &q[t]);  // fault: copy_past_shared
  ptx::cp_async_wait_all();
  o[t] = 1.0f;
}

template <bool mended>
__global__ void copy_to_odd_place(const float4* q,  // [7] and half a one
                                  float4* o) {      // [8]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  if (t < 7) {
    float* const to = &smem.stage[0][4 * t + !mended];
    ptx::cp_async_16(to, &q[t]);  // fault: copy_to_odd_place
    ptx::cp_async_wait_all();
    device::store(&o[t], make_float4(to[0], to[1], to[2], to[3]));
  }
}

template <bool mended>
__global__ void copy_from_odd_place(const float* q,  // [32]
                                    float* o) {      // [32]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  if (t < 15) {
    ptx::cp_async_8(&smem.stage[0][2 * t], &q[2 * t + !mended]);  // fault: copy_from_odd_place
    ptx::cp_async_wait_all();
    o[t] = smem.stage[0][2 * t];
  }
}

template <bool mended>
__global__ void copy_of_nothing(float* scratch,  // [32], not written before
                                float* o) {      // [32]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  if (mended) scratch[t] = 1.0f;
  ptx::cp_async_4(&smem.stage[0][t], &scratch[t]);  // fault: copy_of_nothing
  ptx::cp_async_wait_all();
  o[t] = smem.stage[0][t];
}

template <bool mended>
__global__ void copy_to_device_memory(const float* q,  // [32]
                                      float* o) {      // [32]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(mended ? &smem.stage[0][t] : &o[t], &q[t]);  // fault: copy_to_device_memory
  ptx::cp_async_wait_all();
}

template <bool mended>
__global__ void copy_from_shared(const float* q,  // [32]
                                 float* o) {      // [32]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  smem.stage[1][t] = 1.0f;
  ptx::cp_async_4(&smem.stage[0][t], mended ? &q[t] : &smem.stage[1][t]);  // fault: copy_from_shared
  ptx::cp_async_wait_all();
  o[t] = smem.stage[0][t];
}

template <bool mended>
__global__ void copy_of_too_much(const float* q,  // [32]
                                 float* o) {      // [32]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &q[t], mended ? 4 : 8);  // fault: copy_of_too_much
  ptx::cp_async_wait_all();
  o[t] = 1.0f;
}

// Each lane writes its row of four matrices.
__device__ void write_rows(MatrixSmem& smem, int rows) {
  const int t = threadIdx.x;
  if (t < rows) device::store(reinterpret_cast<float4*>(smem.rows[t]), make_float4(t, t, t, t));
  __syncwarp();  // the rows are written
}

// A helper, and one that calls it: reports name the line and who called.
__device__ void swap_with(float* values, float* o, int other) {
  values[threadIdx.x] = threadIdx.x;  // one: race_in_helpers
  o[threadIdx.x] = values[other];     // other: race_in_helpers
}

__device__ void swap_all(float* values, float* o, bool with_itself) {
  const int t = threadIdx.x;
  swap_with(values, o, with_itself ? t : t ^ 1);  // caller: race_in_helpers
}

template <bool mended>
__global__ void race_in_helpers(float* values,  // [64]
                                float* o) {     // [64]
  swap_all(values, o, mended);                  // kernel: race_in_helpers
}

__device__ float sum_of(const std::uint32_t (&r)[4]) { return static_cast<float>(r[0] + r[1] + r[2] + r[3]); }

// A lane's registers of four matrices.
__device__ void set_fragment(std::uint32_t (&r)[4], float value) {
  for (std::uint32_t m = 0; m < 4; ++m) r[m] = m + static_cast<std::uint32_t>(value);
}

template <bool mended>
__global__ void stored_at_odd_place(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  std::uint32_t r[4];
  set_fragment(r, t);
  ptx::stmatrix_x4(&smem.rows[t][mended || t < 31 ? 0 : 1], r);  // fault: stored_at_odd_place
  o[t] = 1.0f;
}

template <bool mended>
__global__ void stored_past_shared(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  std::uint32_t r[4];
  set_fragment(r, t);
  ptx::stmatrix_x4_trans(smem.rows[mended ? t : t + 1], r);  // fault: stored_past_shared
  o[t] = 1.0f;
}

template <bool mended>
__global__ void stored_in_device_memory(float* o) {  // [128]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  std::uint32_t r[4];
  set_fragment(r, t);
  ptx::stmatrix_x4(mended ? smem.rows[t] : &o[4 * t], r);  // fault: stored_in_device_memory
  o[t] = 1.0f;
}

template <bool mended>
__global__ void stored_at_two_places(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  std::uint32_t r[4];
  set_fragment(r, t);
  if (mended || t < 16) {
    ptx::stmatrix_x4(smem.rows[t], r);
  } else {
    ptx::stmatrix_x4(smem.rows[t], r);  // fault: stored_at_two_places
  }
  o[t] = 1.0f;
}

// The last row is stored behind its place, in shared memory that the struct does not use.
template <bool mended>
__global__ void row_not_stored(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  std::uint32_t r[4];
  set_fragment(r, t);
  ptx::stmatrix_x4(smem.rows[mended || t < 31 ? t : 32], r);
  __syncwarp();                        // the rows are stored
  if (t < 32) o[t] = smem.rows[t][0];  // fault: row_not_stored
}

template <bool mended>
__global__ void sum_at_odd_place(float* o) {  // [128]
  const int t = threadIdx.x;
  if (t < 31) ptx::red_add_v4_f32(&o[4 * t + (mended ? 0 : 2)], 1.0f, 2.0f, 3.0f, 4.0f);  // fault: sum_at_odd_place
}

template <bool mended>
__global__ void sum_over_end(float* o) {  // [128]
  const int t = threadIdx.x;
  ptx::red_add_v2_f32(&o[2 * (mended ? t : t + 33)], 1.0f, 2.0f);  // fault: sum_over_end
}

template <bool mended>
__global__ void sum_in_shared(float* o) {  // [128]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  smem.rows[t][0] = 0.0f;
  ptx::red_add_f32(mended ? &o[t] : &smem.rows[t][0], 1.0f);  // fault: sum_in_shared
}

template <bool mended>
__global__ void sum_not_cleared(float* scratch,  // [32], not written before
                                float* o) {      // [32]
  const int t = threadIdx.x;
  if (mended || t != 6) scratch[t] = 0.0f;
  __syncwarp();                                                             // the sums are 0
  if (t < 8) ptx::red_add_v4_f32(&scratch[4 * t], 1.0f, 1.0f, 1.0f, 1.0f);  // fault: sum_not_cleared
  __syncwarp();                                                             // the sums are there
  o[t] = mended ? scratch[t] : 1.0f;
}

template <bool mended>
__global__ void matrix_at_odd_place(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  write_rows(smem, 32);
  std::uint32_t r[4];
  ptx::ldmatrix_x4(r, &smem.rows[t % 31][mended ? 0 : 2]);  // fault: matrix_at_odd_place
  o[t] = sum_of(r);
}

template <bool mended>
__global__ void matrix_past_shared(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  write_rows(smem, 32);
  std::uint32_t r[4];
  ptx::ldmatrix_x4_trans(r, smem.rows[mended ? t : t + 1]);  // fault: matrix_past_shared
  o[t] = sum_of(r);
}

template <bool mended>
__global__ void matrix_not_written(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  write_rows(smem, mended ? 32 : 31);
  std::uint32_t r[4];
  ptx::ldmatrix_x4(r, smem.rows[t]);  // fault: matrix_not_written
  o[t] = sum_of(r);
}

template <bool mended>
__global__ void matrix_in_device_memory(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  write_rows(smem, 32);
  std::uint32_t r[1];
  ptx::ldmatrix_x1(r, mended ? smem.rows[t] : &o[4 * (t % 8)]);  // fault: matrix_in_device_memory
  o[t] = r[0];
}

template <bool mended>
__global__ void matrix_in_branch(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  write_rows(smem, 32);
  std::uint32_t r[2] = {};
  if (mended || t < 16) {
    ptx::ldmatrix_x2(r, smem.rows[t]);
  } else {
    __syncthreads();  // fault: matrix_in_branch
  }
  o[t] = r[0];
}

template <bool mended>
__global__ void matrix_at_two_places(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  write_rows(smem, 32);
  std::uint32_t r[2];
  if (mended || t < 16) {
    ptx::ldmatrix_x2_trans(r, smem.rows[t]);
  } else {
    ptx::ldmatrix_x2_trans(r, smem.rows[t]);  // fault: matrix_at_two_places
  }
  o[t] = r[0];
}

template <bool mended>
__global__ void matrix_without_a_lane(float* o) {  // [32]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  write_rows(smem, 32);
  if (!mended && t == 31) return;
  std::uint32_t r[1];
  ptx::ldmatrix_x1_trans(r, smem.rows[t]);  // fault: matrix_without_a_lane
  o[t] = r[0];
}

// The other lanes have stores before a call of their own.
template <bool mended>
__global__ void shuffle_without_a_lane(float* o) {  // [32]
  const int t = threadIdx.x;
  if (t == 31) return;
  o[t] = 0.0f;
  if (t < 16) o[t] = __shfl_sync(mended ? 0xffffu : 0x8000ffffu, 1.0f, 0);  // fault: shuffle_without_a_lane
  if (t >= 16) {
    o[t] = 1.0f;
    __syncwarp(0x7fff0000u);
  }
}

template <bool mended>
__global__ void multiply_in_branch(float* o) {  // [32]
  const int t = threadIdx.x;
  const std::uint32_t a[4] = {}, b[2] = {};
  float c[4] = {};
  if (mended || t < 16) {
    ptx::mma_m16n8k16<__half>(c, a, b);
  } else {
    __syncthreads();  // fault: multiply_in_branch
  }
  o[t] = c[0];
}

template <bool mended>
__global__ void multiply_at_two_places(float* o) {  // [32]
  const int t = threadIdx.x;
  const std::uint32_t a[4] = {}, b[2] = {};
  float c[4] = {};
  if (mended || t < 16) {
    ptx::mma_m16n8k16<__nv_bfloat16>(c, a, b);
  } else {
    ptx::mma_m16n8k16<__nv_bfloat16>(c, a, b);  // fault: multiply_at_two_places
  }
  o[t] = c[0];
}

template <bool scaled>
__device__ float product(std::uint32_t element) {
  const std::uint32_t a[2] = {element, scaled ? element : 0}, b[1] = {element};
  float c[4] = {};
  ptx::mma_m16n8k8<__half>(c, a, b);  // fault: multiply_in_two_instances
  return c[0];
}

template <bool mended>
__global__ void multiply_in_two_instances(float* o) {  // [32]
  const int t = threadIdx.x;
  if (mended || t < 16) {
    o[t] = product<false>(t);
  } else {
    o[t] = product<true>(t);
  }
}

template <bool mended>
__global__ void multiply_without_a_lane(float* o) {  // [32]
  const int t = threadIdx.x;
  if (!mended && t == 31) return;
  const std::uint32_t a[2] = {}, b[1] = {};
  float c[4] = {};
  ptx::mma_m16n8k8<__half>(c, a, b);  // fault: multiply_without_a_lane
  o[t] = c[0];
}

template <bool mended>
__global__ void sums_not_written(float* o) {  // [32]
  auto& smem = device::shared_storage<SumsSmem>();
  const int t = threadIdx.x;
  const std::uint32_t a[2] = {}, b[1] = {};
  for (int i = 0; i < (mended || t != 7 ? 4 : 3); ++i) smem.sums[t][i] = 0.0f;
  ptx::mma_m16n8k8<__nv_bfloat16>(smem.sums[t], a, b);  // fault: sums_not_written
  o[t] = smem.sums[t][3];
}

// ---- races on shared memory ----

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

// Lanes 0 and 1 read, and lane 0 again after the clock has ticked. Lane 2 has met lane 0 alone.
template <bool mended>
__global__ void read_again_by_one(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; t < 2 && i < 2 - t; ++i) {
    sum += smem.values[5];  // one: read_again_by_one
    if (t == 0) __syncwarp(1);
  }
  if (t == 0 || t == 2 || (mended && t == 1)) __syncwarp(mended ? 7 : 5);  // read before it is written
  if (t == 2) smem.values[5] = 2.0f;                                       // other: read_again_by_one
  o[t] = sum;
}

// The same, three times.
template <bool mended>
__global__ void read_thrice_by_one(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; t < 2 && i < 3 - 2 * t; ++i) {
    sum += smem.values[5];  // one: read_thrice_by_one
    if (t == 0) __syncwarp(1);
  }
  if (t == 0 || t == 2 || (mended && t == 1)) __syncwarp(mended ? 7 : 5);  // read before it is written
  if (t == 2) smem.values[5] = 2.0f;                                       // other: read_thrice_by_one
  o[t] = sum;
}

template <bool mended>
__global__ void read_at_another_line(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;
  __syncthreads();
  float sum = 0.0f;
  if (t == 1) sum = smem.values[5];  // one: read_at_another_line
  if (t == 0) sum = 2.0f * smem.values[5];
  if (t == 0 || t == 2 || (mended && t == 1)) __syncwarp(mended ? 7 : 5);  // read before it is written
  if (t == 2) smem.values[5] = 2.0f;                                       // other: read_at_another_line
  o[t] = sum;
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

// A maximum that is not larger changes nothing, and is a store all the same.
template <bool mended>
__global__ void atomic_without_effect(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  if (t == 0) smem.count = 5;
  __syncthreads();                        // the count is 5
  if (t == 0) atomicMax(&smem.count, 1);  // one: atomic_without_effect
  if (mended) __syncthreads();
  o[t] = t == 0 ? 0.0f : smem.count;  // other: atomic_without_effect
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

// The first warp fills, the second reads: a barrier at which the first need not wait.
template <bool mended>
__global__ void arrive_too_early(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  if (t < 32) {
    if (!mended) ptx::bar_arrive(1, 64);
    smem.values[t] = t;  // one: arrive_too_early
    if (mended) ptx::bar_arrive(1, 64);
    o[t] = t;
  } else {
    ptx::bar_sync(1, 64);
    o[t] = smem.values[63 - t];  // other: arrive_too_early
  }
}

// Who only arrives has waited for nobody.
template <bool mended>
__global__ void arrive_is_no_wait(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  smem.values[t] = t;  // one: arrive_is_no_wait
  if (mended || t >= 32) {
    ptx::bar_sync(1, 64);
  } else {
    ptx::bar_arrive(1, 64);
  }
  o[t] = smem.values[t ^ 32];  // other: arrive_is_no_wait
}

// Barriers count warps: the half of a warp that comes is 32 threads, and each warp meets nobody but itself.
template <bool mended>
__global__ void half_warps_meet(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  if (t % 32 >= 16) return;
  smem.values[t] = t;  // one: half_warps_meet
  ptx::barrier_sync(1, mended ? 64 : 32);
  o[t] = smem.values[t ^ 32];  // other: half_warps_meet
}

// ---- races of asynchronous copies and matrices ----

template <bool mended>
__global__ void wait_too_weak(const float* q,  // [128]
                              float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &q[t]);
  ptx::cp_async_commit_group();
  ptx::cp_async_4(&smem.stage[1][t], &q[64 + t]);  // one: wait_too_weak
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<mended ? 0 : 1>();
  __syncthreads();  // all have waited
  o[t] = smem.stage[0][63 - t];
  o[t] += smem.stage[1][63 - t];  // other: wait_too_weak
}

template <bool mended>
__global__ void copy_without_wait(const float* q,  // [128]
                                  float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &q[t]);  // one: copy_without_wait
  ptx::cp_async_commit_group();
  if (mended) ptx::cp_async_wait_group<0>();
  o[t] = smem.stage[0][t];  // other: copy_without_wait
}

template <bool mended>
__global__ void copy_without_barrier(const float* q,  // [128]
                                     float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &q[t]);  // one: copy_without_barrier
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  if (mended) __syncthreads();
  o[t] = smem.stage[0][63 - t];  // other: copy_without_barrier
}

template <bool mended>
__global__ void barrier_before_wait(const float* q,  // [128]
                                    float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_8(&smem.stage[0][2 * t], &q[2 * t]);  // one: barrier_before_wait
  ptx::cp_async_commit_group();
  if (!mended) __syncthreads();
  ptx::cp_async_wait_group<0>();
  if (mended) __syncthreads();
  o[t] = smem.stage[0][127 - t];  // other: barrier_before_wait
}

template <bool mended>
__global__ void barrier_before_all_wait(const float* q,  // [128]
                                        float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &q[t]);  // one: barrier_before_all_wait
  ptx::cp_async_commit_group();
  __syncthreads();
  ptx::cp_async_wait_group<0>();
  const int any = __any_sync(0xffffffffu, t == 0);  // the whole warp has waited, but a vote orders nothing
  if (mended) __syncwarp();
  o[t] = any + smem.stage[0][t ^ 1];  // other: barrier_before_all_wait
}

template <bool mended>
__global__ void copy_not_committed(const float* q,  // [128]
                                   float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &q[t]);  // one: copy_not_committed
  if (mended) ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncthreads();               // all have waited, if there was something to wait for
  o[t] = smem.stage[0][63 - t];  // other: copy_not_committed
}

template <bool mended>
__global__ void fence_is_no_wait(const float* q,  // [128]
                                 float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  if (t < 16) ptx::cp_async_16(&smem.stage[0][4 * t], &q[4 * t]);  // one: fence_is_no_wait
  ptx::cp_async_commit_group();
  if (mended) ptx::cp_async_wait_group<0>();
  __threadfence_block();
  __syncthreads();               // all have waited, or not
  o[t] = smem.stage[0][63 - t];  // other: fence_is_no_wait
}

template <bool mended>
__global__ void copy_over_readers(const float* q,  // [128]
                                  float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < 3; ++i) {
    ptx::cp_async_4(&smem.stage[0][t], &q[t + i]);  // one: copy_over_readers
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    __syncthreads();               // the stage is full
    sum += smem.stage[0][63 - t];  // other: copy_over_readers
    if (mended) __syncthreads();
  }
  o[t] = sum;
}

template <bool mended>
__global__ void two_copies(const float* q,  // [128]
                           float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][mended ? t : t % 32], &q[t]);  // one: two_copies  // other: two_copies
  ptx::cp_async_wait_all();
  o[t] = 1.0f;
}

template <bool mended>
__global__ void copied_again(const float* q,  // [128]
                             float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &q[t]);  // one: copied_again
  ptx::cp_async_commit_group();
  if (mended) ptx::cp_async_wait_group<0>();
  ptx::cp_async_4(&smem.stage[0][t], &q[64 + t]);  // other: copied_again
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  o[t] = smem.stage[0][t];
}

template <bool mended>
__global__ void store_under_copy(const float* q,  // [128]
                                 float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_8(&smem.stage[0][2 * t], &q[2 * t]);  // one: store_under_copy
  ptx::cp_async_commit_group();
  if (mended) ptx::cp_async_wait_group<0>();
  smem.stage[0][2 * t + 1] = 0.0f;  // other: store_under_copy
  ptx::cp_async_wait_group<0>();
  o[t] = 1.0f;
}

// What the store leaves beside the copy is there.
template <bool mended>
__global__ void store_over_copy(const float* q,  // [128]
                                float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  float* const mine = &smem.stage[0][0] + 4 * (t % 32);
  if (t < 32) ptx::cp_async_4(mine, &q[t]);  // one: store_over_copy
  if (mended) ptx::cp_async_wait_all();
  const float4 ones = make_float4(1, 1, 1, 1);
  if (t < 32) device::store(reinterpret_cast<float4*>(mine), ones);  // other: store_over_copy
  ptx::cp_async_wait_all();
  if (t < 32) o[t] = mine[1];
}

template <bool mended>
__global__ void matrix_without_barrier(const float* q,  // [128]
                                       float* o) {      // [64]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  const float4 row = make_float4(q[t], q[t + 1], q[t + 2], q[t + 3]);
  if (t < 32) device::store(reinterpret_cast<float4*>(smem.rows[t]), row);  // one: matrix_without_barrier
  if (mended) __syncthreads();
  std::uint32_t r[4] = {};
  if (t >= 32) ptx::ldmatrix_x4(r, smem.rows[t - 32]);  // other: matrix_without_barrier
  o[t] = sum_of(r);
}

// Each lane gives the address of the row that it wrote. What it gets is of other rows.
template <bool mended>
__global__ void matrix_of_own_rows(const float* q,  // [128]
                                   float* o) {      // [64]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  if (t >= 32) return;
  const float4 row = make_float4(q[t], q[t + 1], q[t + 2], q[t + 3]);
  device::store(reinterpret_cast<float4*>(smem.rows[t]), row);  // one: matrix_of_own_rows
  if (mended) __syncwarp();
  std::uint32_t r[1];
  ptx::ldmatrix_x1(r, smem.rows[t]);  // other: matrix_of_own_rows
  o[t] = r[0];
}

template <bool mended>
__global__ void matrix_under_copy(const float* q,  // [128]
                                  float* o) {      // [64]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  if (t < 32) ptx::cp_async_16(smem.rows[t], &q[4 * t]);  // one: matrix_under_copy
  ptx::cp_async_commit_group();
  if (mended) ptx::cp_async_wait_group<0>();
  __syncthreads();  // all have waited, or not
  std::uint32_t r[2];
  ptx::ldmatrix_x2(r, smem.rows[t % 32]);  // other: matrix_under_copy
  o[t] = r[0];
}

template <bool mended>
__global__ void matrix_before_reuse(const float* q,  // [128]
                                    float* o) {      // [64]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  for (int i = t; i < 128; i += 64) smem.rows[i / 4][i % 4] = q[i];
  __syncthreads();  // the rows are written
  std::uint32_t r[4];
  ptx::ldmatrix_x4_trans(r, smem.rows[t % 32]);  // one: matrix_before_reuse
  if (mended) __syncthreads();
  smem.rows[t / 4][t % 4] = 0.0f;  // other: matrix_before_reuse
  o[t] = sum_of(r);
}

template <bool mended>
__global__ void matrix_to_one_place(const float* q,  // [128]
                                    float* o) {      // [64]
  auto& smem = device::shared_storage<FragmentSmem>();
  const int t = threadIdx.x;
  if (t < 32) smem.rows[t / 4][t % 4] = q[t];
  __syncthreads();  // the rows are written
  if (t >= 32) return;
  std::uint32_t(&r)[1] = smem.fragment[mended ? t : t / 2];
  ptx::ldmatrix_x1(r, smem.rows[t % 8]);  // one: matrix_to_one_place  // other: matrix_to_one_place
  o[t] = 1.0f;
}

template <bool mended>
__global__ void stored_without_barrier(const float* q,  // [128]
                                       float* o) {      // [64]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  std::uint32_t r[4];
  set_fragment(r, q[t]);
  if (t < 32) ptx::stmatrix_x4(smem.rows[t], r);  // one: stored_without_barrier
  if (mended) __syncthreads();
  if (t >= 32) ptx::ldmatrix_x4(r, smem.rows[t - 32]);  // other: stored_without_barrier
  o[t] = sum_of(r);
}

// Within a warp, too: what a lane loads transposed others have stored.
template <bool mended>
__global__ void stored_and_transposed(const float* q,  // [128]
                                      float* o) {      // [64]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  if (t >= 32) return;
  std::uint32_t r[4];
  set_fragment(r, q[t]);
  ptx::stmatrix_x4(smem.rows[t], r);  // one: stored_and_transposed
  if (mended) __syncwarp();
  ptx::ldmatrix_x4_trans(r, smem.rows[t]);  // other: stored_and_transposed
  o[t] = sum_of(r);
}

template <bool mended>
__global__ void stored_before_read(const float* q,  // [128]
                                   float* o) {      // [64]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  for (int i = t; i < 128; i += 64) smem.rows[i / 4][i % 4] = q[i];
  __syncthreads();  // the rows are written
  std::uint32_t r[4] = {};
  if (t < 32) ptx::ldmatrix_x4(r, smem.rows[t]);  // one: stored_before_read
  if (mended) __syncthreads();
  if (t >= 32) ptx::stmatrix_x4_trans(smem.rows[t - 32], r);  // other: stored_before_read
  o[t] = sum_of(r);
}

template <bool mended>
__global__ void stored_by_two_warps(const float* q,  // [128]
                                    float* o) {      // [64]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  std::uint32_t r[4];
  set_fragment(r, q[t]);
  if (t < 32) ptx::stmatrix_x4(smem.rows[t], r);  // one: stored_by_two_warps
  if (mended) __syncthreads();
  if (t >= 32) ptx::stmatrix_x4(smem.rows[t % 32], r);  // other: stored_by_two_warps
  o[t] = 1.0f;
}

// Two lanes of one instruction give the same row.
template <bool mended>
__global__ void stored_to_one_row(const float* q,  // [128]
                                  float* o) {      // [64]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  if (t >= 32) return;
  std::uint32_t r[4];
  set_fragment(r, q[t]);
  ptx::stmatrix_x4(smem.rows[mended || t != 5 ? t : 4], r);  // one: stored_to_one_row  // other: stored_to_one_row
  o[t] = 1.0f;
}

template <bool mended>
__global__ void stored_under_copy(const float* q,  // [128]
                                  float* o) {      // [64]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int t = threadIdx.x;
  if (t < 32) ptx::cp_async_16(smem.rows[t], &q[4 * t]);  // one: stored_under_copy
  if (mended) ptx::cp_async_wait_all();
  __syncthreads();  // all have waited, or not
  std::uint32_t r[4];
  set_fragment(r, q[t]);
  if (t < 32) ptx::stmatrix_x4(smem.rows[t], r);  // other: stored_under_copy
  ptx::cp_async_wait_all();
  o[t] = 1.0f;
}

// ---- races between blocks, on device memory ----

template <bool mended>
__global__ void copy_of_next_block(float* o) {  // [96]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  const int next = mended ? blockIdx.x : (blockIdx.x + 1) % gridDim.x;
  ptx::cp_async_4(&smem.stage[0][t], &o[32 * next + t]);  // one: copy_of_next_block
  ptx::cp_async_wait_all();
  o[32 * blockIdx.x + t] = smem.stage[0][t] + 1.0f;  // other: copy_of_next_block
}

// Block 0 tells block 1 that it may overwrite what block 0 has asked for, but perhaps not yet read.
template <bool mended>
__global__ void flag_before_wait(float* o,       // [96]
                                 int* counter,   // [1]
                                 float* last) {  // [3]
  auto& smem = device::shared_storage<CopySmem>();
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    ptx::cp_async_4(&smem.stage[0][0], &o[0]);  // one: flag_before_wait
    if (mended) ptx::cp_async_wait_all();
    __threadfence();
    atomicExch(counter, 1);
    ptx::cp_async_wait_all();
    last[0] = smem.stage[0][0];
  } else if (blockIdx.x == 1) {
    while (atomicAdd(counter, 0) == 0) {
    }
    __threadfence();
    o[0] = 5.0f;  // other: flag_before_wait
  }
}

template <bool mended>
__global__ void blocks_share_output(float* o) {  // [96]
  const int t = threadIdx.x;
  o[(mended ? 32 : 31) * blockIdx.x + t] = t;  // one: blocks_share_output  // other: blocks_share_output
}

template <bool mended>
__global__ void next_block_reads(float* o) {  // [96]
  const int t = threadIdx.x;
  const int next = mended ? blockIdx.x : (blockIdx.x + 1) % gridDim.x;
  o[32 * blockIdx.x + t] += 1.0f;                              // one: next_block_reads
  if (o[32 * next + t] < 0.0f) o[32 * blockIdx.x + t] = 0.0f;  // other: next_block_reads
}

// The last block to count itself reads what all have stored: the block's threads are seen by the one that fences and counts,
// and the last block's count is seen by its threads, through two barriers. Or, as often: everyone fences on the other side of
// these barriers, and the one that counts does nothing else.
enum class Last { mended, no_barrier, no_fence, fence_by_another, reader_without_fence, all_fence, all_fence_too_early };
template <Last how>
__global__ void last_block(float* o,       // [96]
                           int* counter,   // [1]
                           float* sums) {  // [3]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  constexpr bool counter_fences = how == Last::mended || how == Last::no_barrier || how == Last::reader_without_fence;
  constexpr bool all_fence = how == Last::all_fence || how == Last::all_fence_too_early;
  if (how == Last::all_fence_too_early) __threadfence();
  o[32 * blockIdx.x + t] = 1.0f;  // one: last_block
  if (how == Last::all_fence) __threadfence();
  if (how != Last::no_barrier) __syncthreads();
  if (how == Last::fence_by_another && t == 1) __threadfence();
  if (t == 0) {
    if (counter_fences) __threadfence();
    smem.count = atomicAdd(counter, 1);
    if (how != Last::reader_without_fence && !all_fence) __threadfence();
  }
  __syncthreads();  // the count is known to all
  if (all_fence) __threadfence();
  if (smem.count != static_cast<int>(gridDim.x) - 1) return;
  const int other = (t + 1) % 96;
  if (t < 3) sums[t] = o[other] + o[32 + other] + o[64 + other];  // other: last_block
}

template <bool mended>
__global__ void plain_beside_global_atomic(float*,         // unused
                                           int* counter,   // [1]
                                           float* last) {  // [blocks]
  if (threadIdx.x != 0) return;
  atomicAdd(counter, 1);                                         // one: plain_beside_global_atomic
  last[blockIdx.x] = mended ? atomicAdd(counter, 0) : *counter;  // other: plain_beside_global_atomic
}

// Block 0 stores and tells thread 0 of block 1, which tells thread 1, which tells block 2, which reads. Each by a
// flag of its own: an atomic passes on what it finds in one.
template <bool mended>
__global__ void passed_on(float* o,         // [96]
                          int* counter,     // [1]
                          float* result) {  // [3]
  const int t = threadIdx.x;
  int* const second = reinterpret_cast<int*>(&result[1]);
  int* const third = reinterpret_cast<int*>(&result[2]);
  if (blockIdx.x == 0 && t == 7) {
    o[0] = 5.0f;  // one: passed_on
    __threadfence();
    atomicExch(counter, 1);
  }
  if (blockIdx.x == 1 && t == 0) {
    while (atomicAdd(counter, 0) != 1) {
    }
    if (mended) __threadfence();
    atomicExch(second, 1);
  }
  if (blockIdx.x == 1 && t == 1) {
    while (atomicAdd(second, 0) != 1) {
    }
    __threadfence();
    atomicExch(third, 1);
  }
  if (blockIdx.x == 2 && t == 9) {
    while (atomicAdd(third, 0) != 1) {
    }
    __threadfence();
    result[0] = o[0];  // other: passed_on
  }
}

// ---- scopes ----

enum class Fences { of_device, first_of_block, second_of_block };
template <Fences fences>
__global__ void fence_of_block(float* o,         // [96]
                               int* counter,     // [1]
                               float* result) {  // [3]
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    o[0] = 5.0f;  // one: fence_of_block
    fences == Fences::first_of_block ? __threadfence_block() : __threadfence();
    atomicExch(counter, 1);
  } else if (blockIdx.x == 1) {
    while (atomicAdd(counter, 0) == 0) {
    }
    fences == Fences::second_of_block ? __threadfence_block() : __threadfence_system();
    result[0] = o[0];  // other: fence_of_block
  }
}

template <bool mended>
__global__ void atomic_of_block(float*,                                 // unused
                                int* counter,                           // [1]
                                float*) {                               // unused
  mended ? atomicAdd_system(counter, 1) : atomicAdd_block(counter, 1);  // one: atomic_of_block  // other: atomic_of_block
}

// ---- races between threads of one block, on device memory ----

template <bool mended>
__global__ void device_read_after_write(float* values,  // [64]
                                        float* o) {     // [64]
  const int t = threadIdx.x;
  values[t] = t;  // one: device_read_after_write
  if (mended) __syncthreads();
  o[t] = values[63 - t];  // other: device_read_after_write
}

template <bool mended>
__global__ void device_write_after_read(float* values,  // [64]
                                        float* o) {     // [64]
  const int t = threadIdx.x;
  const float first = values[63 - t];  // one: device_write_after_read
  if (mended) __syncthreads();
  values[t] = first;  // other: device_write_after_read
  o[t] = first;
}

template <bool mended>
__global__ void device_write_after_write(float* values,  // [64]
                                         float* o) {     // [64]
  const int t = threadIdx.x;
  values[t] = t;  // one: device_write_after_write
  if (mended) __syncthreads();
  values[63 - t] = t;  // other: device_write_after_write
  o[t] = t;
}

template <bool mended>
__global__ void device_syncwarp_missing(float* values,  // [64]
                                        float* o) {     // [64]
  const int t = threadIdx.x;
  values[t] = t;  // one: device_syncwarp_missing
  if (mended) __syncwarp();
  o[t] = values[t ^ 1];  // other: device_syncwarp_missing
}

template <bool mended>
__global__ void device_syncwarp_before_reuse(float* values,  // [64]
                                             float* o) {     // [64]
  const int t = threadIdx.x;
  const float first = values[t ^ 1];  // one: device_syncwarp_before_reuse
  if (mended) __syncwarp();
  values[t] = first;  // other: device_syncwarp_before_reuse
  o[t] = first;
}

template <bool mended>
__global__ void device_syncwarp_across_warps(float* values,  // [64]
                                             float* o) {     // [64]
  const int t = threadIdx.x;
  values[t] = t;  // one: device_syncwarp_across_warps
  __syncwarp();   // orders this warp only
  if (mended) __syncthreads();
  o[t] = values[t ^ 32];  // other: device_syncwarp_across_warps
}

template <bool mended>
__global__ void device_mask_too_small(float* values,  // [64]
                                      float* o) {     // [64]
  const int t = threadIdx.x;
  const int half = t % 32 / 16;  // each half of a warp waits for itself
  values[t] = t;                 // one: device_mask_too_small
  __syncwarp(mended ? 0xffffffffu : half == 0 ? 0x0000ffffu : 0xffff0000u);
  o[t] = values[t ^ 16];  // other: device_mask_too_small
}

template <bool mended>
__global__ void device_arrive_is_no_wait(float* values,  // [64]
                                         float* o) {     // [64]
  const int t = threadIdx.x;
  values[t] = t;  // one: device_arrive_is_no_wait
  if (mended || t >= 32) {
    ptx::bar_sync(1, 64);
  } else {
    ptx::bar_arrive(1, 64);
  }
  o[t] = values[t ^ 32];  // other: device_arrive_is_no_wait
}

template <bool mended>
__global__ void device_half_words(float* values,  // [64]
                                  float* o) {     // [64]
  const int t = threadIdx.x;
  __half* const halves = reinterpret_cast<__half*>(values);
  // Two halves of one word by two threads are no race; the same half is one.
  device::store(&halves[mended ? t : t / 2 * 2], __float2half(1.0f));  // one: device_half_words  // other: device_half_words
  o[t] = t;
}

// A flag in shared memory orders what lies in device memory, if fences stand around it.
template <bool mended>
__global__ void device_flag_without_fence(float* values,  // [64]
                                          float* o) {     // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  volatile int* flag = &smem.count;
  if (t == 0) *flag = 0;
  __syncthreads();  // the flag is down
  if (t == 40) {
    values[0] = 5.0f;  // one: device_flag_without_fence
    if (mended) __threadfence_block();
    *flag = 1;
  }
  if (t == 3) {
    while (*flag == 0) {
    }
    if (mended) __threadfence_block();
    o[0] = values[0];  // other: device_flag_without_fence
  }
}

// And the other way round.
template <bool mended>
__global__ void shared_flag_without_fence(float* values,  // [64]
                                          float* o) {     // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  int* const flag = reinterpret_cast<int*>(values);
  if (t == 40) {
    smem.values[0] = 5.0f;  // one: shared_flag_without_fence
    __threadfence();
    atomicAdd_block(flag, 1);
  }
  if (t == 3) {
    while (atomicAdd_block(flag, 0) == 0) {
    }
    if (mended) __threadfence_block();
    o[0] = smem.values[0];  // other: shared_flag_without_fence
  }
}

// The copy reads its source at some time before the wait.
template <bool mended>
__global__ void device_copy_before_wait(float* values,  // [64]
                                        float* o) {     // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &values[t]);  // one: device_copy_before_wait
  ptx::cp_async_commit_group();
  if (mended) ptx::cp_async_wait_group<0>();
  __syncthreads();        // all have waited, or not
  values[63 - t] = 1.0f;  // other: device_copy_before_wait
  ptx::cp_async_wait_group<0>();
  o[t] = smem.stage[0][t];
}

// No barrier says that a copy is over.
template <bool mended>
__global__ void copy_source_behind_barriers(float* values,  // [64]
                                            float* o) {     // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &values[t]);  // one: copy_source_behind_barriers
  ptx::cp_async_commit_group();
  if (mended) ptx::cp_async_wait_group<0>();
  __syncthreads();
  values[63 - t] = 7.0f;  // other: copy_source_behind_barriers
  __syncthreads();
  ptx::cp_async_wait_group<0>();
  o[t] = smem.stage[0][t];
}

// Nor is the thread's own store behind its copy.
template <bool mended>
__global__ void copy_source_overwritten(float* values,  // [64]
                                        float* o) {     // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  ptx::cp_async_4(&smem.stage[0][t], &values[t]);  // one: copy_source_overwritten
  if (mended) ptx::cp_async_wait_all();
  values[t] = 7.0f;  // other: copy_source_overwritten
  ptx::cp_async_wait_all();
  o[t] = smem.stage[0][t];
}

template <bool mended>
__global__ void atomics_of_two_sizes(float* values,  // [64]
                                     float* o) {     // [64]
  const int t = threadIdx.x;
  if (t == 0) atomicAdd(reinterpret_cast<unsigned long long*>(&values[2]), 1ull << 33);  // one: atomics_of_two_sizes
  if (mended) __syncthreads();
  if (t == 40) atomicAdd(reinterpret_cast<unsigned*>(&values[3]), 1u);  // other: atomics_of_two_sizes
  o[t] = t;
}

struct [[gnu::packed]] OddHalf {
  std::uint16_t value;
};

// Two bytes of two words, and a byte of the second.
template <bool mended>
__global__ void device_odd_half(float* values,  // [64]
                                float* o) {     // [64]
  auto* const bytes = reinterpret_cast<unsigned char*>(values);
  const int t = threadIdx.x;
  if (t == 0) o[0] = reinterpret_cast<OddHalf*>(bytes + 3)->value;  // one: device_odd_half
  if (mended) __syncthreads();
  if (t == 33) bytes[4] = 1;  // other: device_odd_half
}

template <bool mended>
__global__ void read_beside_red(float* values,  // [64]
                                float* o) {     // [64]
  const int t = threadIdx.x;
  atomicAdd(&values[t % 2], 1.0f);  // one: read_beside_red
  if (mended) __syncthreads();
  o[t] = values[t % 2];  // other: read_beside_red
}

template <bool mended>
__global__ void read_beside_vector_red(float* values,  // [64]
                                       float* o) {     // [64]
  const int t = threadIdx.x;
  ptx::red_add_v4_f32(&values[4 * (t % 2)], 1.0f, 2.0f, 3.0f, 4.0f);  // one: read_beside_vector_red
  if (mended) __syncthreads();
  o[t] = values[7];  // other: read_beside_vector_red
}

template <bool mended>
__global__ void write_beside_vector_red(float* values,  // [64]
                                        float* o) {     // [64]
  const int t = threadIdx.x;
  if (t == 33) values[3] = 0.0f;  // one: write_beside_vector_red
  if (mended) __syncthreads();
  ptx::red_add_v2_f32(&values[2], 0.0f, 0.0f);  // other: write_beside_vector_red
  ptx::red_add_f32(&values[2], 1.0f);
  o[t] = t;
}

// Each adds, and one of them reads its own sum, which the other's may not be in.
template <bool mended>
__global__ void own_red(float* values,  // [64]
                        float* o) {     // [2]
  if (mended || threadIdx.x == 0) __syncwarp(mended ? 3u : 1u);
  atomicAdd(&values[0], 1.0f);  // one: own_red
  if (mended) __syncwarp(3u);
  if (threadIdx.x == 0) o[0] = values[0];  // other: own_red
}

template <bool mended>
__global__ void write_beside_red(float* values,  // [64]
                                 float* o) {     // [64]
  const int t = threadIdx.x;
  if (t == 33) values[0] = 0.0f;  // one: write_beside_red
  if (mended) __syncthreads();
  atomicMax(reinterpret_cast<int*>(&values[0]), t + 1);  // other: write_beside_red
  o[t] = t;
}

// How many threads began: not part of the kernel, so nothing observes it.
std::atomic<int> beginnings = 0;
[[gnu::noinline, gnu::no_sanitize_thread]] void note_beginning() { ++beginnings; }

// Each thread adds its number to one of three sums; `found`, if it is given, is told what the additions found.
__global__ void reds_kernel(unsigned* sums,           // [3]
                            unsigned long long* all,  // [1]
                            float* floats,            // [1]
                            unsigned* found) {        // [threads], or null
  const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
  note_beginning();
  const auto old = atomicAdd(&sums[t % 3], t);
  if (found != nullptr) found[t] = old;
  atomicAdd(all, 1ull << 33);
  atomicMax(&sums[0], 0u);  // changes nothing, and is no access that a sum would race with
  atomicAdd(floats, 1.0f);
}

__device__ int twice(int value) { return 2 * value; }

// Every way to use what an atomic found.
__global__ void found_kernel(int* values,  // [1]
                             int* seen) {  // [8]
  const auto kept = atomicAdd(values, 1);
  seen[0] = kept;
  seen[1] = atomicAdd(values, 1) + 1;
  if (atomicAdd(values, 1) == 2) seen[2] = 1;
  seen[3] = twice(atomicAdd(values, 1));
  seen[4] = static_cast<int>(static_cast<float>(atomicExch(values, 10)) * 0.5f);
  seen[5] = !atomicCAS(values, 10, 11);
  seen[6] = seen[0] == 0 ? atomicMin(values, 5) : 0;
  seen[7] = min(atomicMax(values, 7), 6) + kept;
}

// Neighbouring halves of one word, stored by two blocks: no race.
__global__ void halves_by_blocks_kernel(__half* o) {  // [blocks]
  if (threadIdx.x == 0) device::store(&o[blockIdx.x], __float2half(1.0f));
}

__global__ void two_faults_kernel(const float* q,  // [32]
                                  float* o) {      // [32]
  const int t = threadIdx.x;
  float sum = q[t + 32];
  sum += q[t - 32];
  o[t] = sum;
}

__global__ void correct_kernel(const float4* q,  // [8]
                               float4* o) {      // [blocks * 8]
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
  if (t < 8) device::store(&o[8 * blockIdx.x + t], make_float4(mine, other, static_cast<float>(smem.flags[31 - t]), 0.0f));
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

// Ends while copies are under way, committed or not: the next block must find nothing of them.
__global__ void copies_left_behind_kernel(const float* q,  // [128]
                                          float* o) {      // [blocks]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  if (blockIdx.x % 2 == 0) {
    ptx::cp_async_4(&smem.stage[0][t], &q[t]);
    ptx::cp_async_commit_group();
    ptx::cp_async_4(&smem.stage[1][t], &q[64 + t]);
    if (t == 0) o[blockIdx.x] = 1.0f;
  } else {
    smem.stage[0][t] = 1.0f;
    smem.stage[1][t] = 1.0f;
    ptx::cp_async_wait_all();
    __syncthreads();  // written before it is read
    if (t == 0) o[blockIdx.x] = smem.stage[0][63] + smem.stage[1][63];
  }
}

// Half words beside a copy, idle lanes' empty groups, and waits for more groups than there are: all of it legal.
__global__ void copies_beside_stores_kernel(const float* q,  // [128]
                                            float* o) {      // [64]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  float* const mine = &smem.stage[0][2 * t];
  ptx::cp_async_wait_group<3>();
  ptx::cp_async_4(mine, &q[t]);
  ptx::cp_async_commit_group();
  device::store(reinterpret_cast<__half*>(mine + 1), __float2half(1.0f));  // the word behind it
  device::store(reinterpret_cast<__half*>(mine + 1) + 1, __float2half(1.0f));
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<1>();  // the copy has come, the empty group need not
  mine[0] += 1.0f;
  __syncthreads();  // all have their sums
  o[t] = smem.stage[0][126 - 2 * t];
}

// A copy that reads nothing leaves its source alone, also where another one has read it. The atomic's result asks for an order.
__global__ void copies_of_no_bytes_kernel(float* values,  // [128]
                                          int* count,     // [1]
                                          float* o) {     // [32]
  auto& smem = device::shared_storage<CopySmem>();
  const int t = threadIdx.x;
  if (atomicAdd(count, 1) < 0) return;
  float *const mine = &values[4 * t], *const copy = &smem.stage[0][0] + 4 * t;
  ptx::cp_async_16(copy, mine);
  ptx::cp_async_wait_all();
  ptx::cp_async_4(copy, mine + 1, 0);
  device::store(reinterpret_cast<float4*>(mine), make_float4(1, 1, 1, 1));
  ptx::cp_async_wait_all();
  o[t] = copy[0];
}

// Lanes that have ended are not waited for: neither in a warp, nor by its warp at a barrier of two.
__global__ void exited_lanes_kernel(float* o) {  // [64]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  if (t % 32 == 31) return;
  smem.values[t] = t;
  __syncwarp();  // the lanes that are left have stored
  const float first = smem.values[t / 2 * 2];
  ptx::barrier_sync(1, 64);  // and those of both warps
  o[t] = first + smem.values[62 - t];
}

// ---- what is counted ----

// Its last store ends the launch: there is no such memory.
__global__ void stopped_kernel(float* o) {  // [32]
  const int t = threadIdx.x;
  for (int i = 0; i < 5; ++i) o[(t + i) % 32] = 1.0f;
  *reinterpret_cast<float*>(std::uintptr_t{64}) = 1.0f;
}

__global__ void exited_warp_kernel(float* o) {  // [128]
  if (threadIdx.x >= 96) return;
  __syncthreads();
  o[threadIdx.x] = 1.0f;
}

__global__ void arrival_left_kernel(float* o) {  // [64]
  if (threadIdx.x < 32) ptx::bar_arrive(1, 64);
  o[threadIdx.x] = 1.0f;
}

__global__ void wide_shuffle_kernel(float* o) {  // [32]
  o[threadIdx.x] = __shfl_xor_sync(0xffffffffu, threadIdx.x + 0.5, 1);
}

__global__ void shuffle_from_two_lines_kernel(float* o) {  // [32]
  const int t = threadIdx.x;
  float other;
  if (t < 16) {
    other = __shfl_xor_sync(0xffffffffu, 1.0f, 16) * 2.0f;
  } else {
    other = __shfl_xor_sync(0xffffffffu, 2.0f, 16) + 1.0f;
  }
  o[t] = other;
}

__global__ void store_behind_atomic_kernel(float* o) {  // [32]
  auto& smem = device::shared_storage<RaceSmem>();
  const int t = threadIdx.x;
  if (t == 0) smem.count = 0;
  __syncthreads();  // the count is 0
  if (t < 16) atomicAdd(&smem.count, 1);
  o[t] = 1.0f;
}

__global__ void volatile_kernel(float* o) {  // [64]
  volatile float* const shared = device::shared_storage<RaceSmem>().values;
  volatile float* const global = o;
  const int t = threadIdx.x;
  shared[t] = global[t];
  o[32 + t] = shared[t];
}

struct Large {
  float values[24];
};
struct LargeSmem {
  Large items[32];
};
__global__ void large_copy_kernel(float* o) {  // [32]
  auto& smem = device::shared_storage<LargeSmem>();
  const int t = threadIdx.x;
  for (int i = 0; i < 24; ++i) smem.items[t].values[i] = i + t;
  __syncwarp();  // written before it is read
  const Large mine = smem.items[t ^ 1];
  float sum = 0.0f;
#pragma GCC unroll 1
  for (int i = 0; i < 24; ++i) sum += reinterpret_cast<const volatile float*>(mine.values)[i];
  o[t] = sum;
}

__global__ void named_rounds_kernel(float* values,  // [256]
                                    int rounds,
                                    float* o) {  // [256]
  const int t = threadIdx.x;
  note_beginning();
  for (int i = 0; i < rounds; ++i) ptx::barrier_sync(1, 256);
  for (int i = 0; i < 2; ++i) {
    values[t] = t + i;
    __syncthreads();  // written before it is read
    o[t] = values[255 - t];
    __syncthreads();  // read before it is written again
  }
}

struct RoundsSmem {
  ptx::Mbarrier all;
};

__global__ void mbarrier_rounds_kernel(float* values,  // [256]
                                       int rounds,
                                       float* o) {  // [256]
  auto& smem = device::shared_storage<RoundsSmem>();
  const int t = threadIdx.x;
  note_beginning();
  if (t == 0) ptx::mbarrier_init(smem.all, 256);
  __syncthreads();  // it is made before the others come to it
  for (int i = 0; i < rounds; ++i) {
    ptx::mbarrier_arrive(smem.all);
    ptx::mbarrier_wait(smem.all, i & 1);
  }
  for (int i = 0; i < 2; ++i) {
    values[t] = t + i;
    __syncthreads();  // written before it is read
    o[t] = values[255 - t];
    __syncthreads();  // read before it is written again
  }
}

__global__ void prints_kernel(int* count) {  // [1]
  std::printf("block %d\n", static_cast<int>(blockIdx.x));
  std::printf("and\n");
  std::printf("!");
  if (atomicAdd(count, 1) == 100) count[0] = 0;
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

runtime::Buffer zeros(const std::string& name, std::size_t floats) {
  runtime::Buffer buffer(name, floats * sizeof(float));
  const std::vector<float> values(floats);
  buffer.upload(values.data(), buffer.bytes());
  return buffer;
}

template <auto kernel, int threads = 32, std::size_t shared_bytes = sizeof(Smem)>
void run_on_output() {
  const runtime::Buffer o = zeros("o", threads);
  launch(kernel, {1, threads, shared_bytes}, o.as<float>());
}

template <auto kernel>
void run_warp_on_64() {
  const runtime::Buffer o = zeros("o", 64);
  launch(kernel, {1, 32, sizeof(RaceSmem)}, o.as<float>());
}

template <auto kernel, class In, class Out>
void run_on_input_and_output() {
  const runtime::Buffer q = zeros("q", std::is_same_v<In, float4> ? 30 : 32);
  const runtime::Buffer o = zeros("o", 32);
  launch(kernel, {1, 32, sizeof(CopySmem)}, q.as<const In>(), o.as<Out>());
}

template <auto kernel>
void run_two_warps() {
  const runtime::Buffer q = zeros("q", 128), o = zeros("o", 64);
  launch(kernel, {1, 64, sizeof(CopySmem)}, q.as<const float>(), o.as<float>());
}

template <auto kernel>
void run_on_larger_output() {
  const runtime::Buffer o = zeros("o", 128);
  launch(kernel, {1, 32, sizeof(MatrixSmem)}, o.as<float>());
}

template <auto kernel>
void run_on_scratch() {
  runtime::Buffer scratch("scratch", 128);
  scratch.poison();
  const runtime::Buffer o = zeros("o", 32);
  launch(kernel, {1, 32, sizeof(CopySmem)}, scratch.as<float>(), o.as<float>());
}

template <bool mended>
void run_on_host_pointer() {
  const std::vector<float> host(32);
  const runtime::Buffer q = zeros("q", 32), o = zeros("o", 32);
  launch(host_pointer<mended>, {1, 32}, mended ? q.as<const float>() : host.data(), o.as<float>());
}

template <bool mended>
void run_on_null() {
  const runtime::Buffer o = zeros("o", 32);
  launch(null_pointer<mended>, {1, 32}, mended ? o.as<float>() : nullptr);
}

template <bool mended>
void run_on_flag() {
  const runtime::Buffer flag = zeros("flag", 1);
  launch(endless_spin<mended>, {1, 1}, flag.as<int>());
}

template <bool mended>
void run_on_bytes() {
  const runtime::Buffer o = zeros("o", 32);
  launch(unseen_write<mended>, {1, 32}, o.as<float>(), sizeof(float));
}

template <auto kernel>
void run_three_blocks() {
  const runtime::Buffer o = zeros("o", 96);
  launch(kernel, {3, 32, sizeof(CopySmem)}, o.as<float>());
}

template <auto kernel>
void run_three_counting_blocks() {
  const runtime::Buffer o = zeros("o", 96), counter = zeros("counter", 1), sum = zeros("sum", 3);
  launch(kernel, {3, 32, sizeof(CopySmem)}, o.as<float>(), counter.as<int>(), sum.as<float>());
}

template <auto kernel, int threads = 64>
void run_one_block() {
  const runtime::Buffer values = zeros("values", 64), o = zeros("o", 64);
  launch(kernel, {1, threads, sizeof(CopySmem)}, values.as<float>(), o.as<float>());
}

// run<kernel<false>> and its mended twin
#define TWINS(run, kernel, ...) run<kernel<false> __VA_OPT__(, ) __VA_ARGS__>, run<kernel<true> __VA_OPT__(, ) __VA_ARGS__>

const std::vector<Fault>& own_faults() {
  constexpr std::size_t matrices = sizeof(MatrixSmem);
  static const std::vector<Fault> all = {
      {"read_past_end", "out-of-bounds read", "0 bytes past the end of 'q' (128 bytes)",
       TWINS(run_on_input_and_output, read_past_end, float, float)},
      {"write_before_start", "out-of-bounds write", "4 bytes before the start of 'o' (128 bytes)",
       TWINS(run_on_output, write_before_start)},
      {"vector_over_end", "out-of-bounds read", "read of 16 bytes, 0 bytes past the end of 'q' (120 bytes)",
       TWINS(run_on_input_and_output, vector_over_end, float4, float4)},
      {"shared_past_end", "out-of-bounds read", "0 bytes past the end of shared memory (144 bytes)",
       TWINS(run_on_output, shared_past_end)},
      {"shared_not_written", "uninitialised read", "Smem::k_tile[3][1]", TWINS(run_on_output, shared_not_written)},
      {"global_not_written", "uninitialised read", "of 'scratch' (128 bytes)", TWINS(run_on_scratch, global_not_written)},
      {"misaligned", "misaligned read", "not a multiple of 16", TWINS(run_on_input_and_output, misaligned, float, float4)},
      {"host_pointer", "wild read", "neither device memory nor shared memory", run_on_host_pointer<false>,
       run_on_host_pointer<true>},
      {"null_pointer", "wild write", "neither device memory nor shared memory", run_on_null<false>, run_on_null<true>},
      {"division_by_zero", "division by zero", "an integer division", TWINS(run_on_output, division_by_zero)},
      {"divergent_barrier", "divergent barrier", "reached at two places", TWINS(run_on_output, divergent_barrier, 64)},
      {"barrier_in_two_instances", "divergent barrier", "reached at two places that were made of one line",
       TWINS(run_on_output, barrier_in_two_instances, 64)},
      {"skipped_barrier", "skipped barrier", "without warp 1 lanes 8-31", TWINS(run_on_output, skipped_barrier, 64)},
      {"vote_without_all", "deadlock", "warp 0 lanes 0-15 wait in __any_sync(0xffffffff)",
       TWINS(run_on_output, vote_without_all)},
      {"exited_lane", "exited lane in mask", "names lanes 31 of warp 0", TWINS(run_on_output, exited_lane)},
      {"caller_outside_mask", "caller not in mask", "__shfl_xor_sync(0xffff)", TWINS(run_on_output, caller_outside_mask)},
      {"shuffle_from_outside", "shuffle from absent lane", "which is not in the mask",
       TWINS(run_on_output, shuffle_from_outside)},
      {"shuffle_of_two_sizes", "deadlock", "wait in __shfl_xor_sync of 8 bytes(0xffffffff)",
       TWINS(run_on_output, shuffle_of_two_sizes)},
      {"shuffle_width", "shuffle misuse", "__shfl_up_sync of width 12: it is 1, 2, 4, 8, 16 or 32",
       TWINS(run_on_output, shuffle_width)},
      {"small_launch", "shared memory", "takes 144 bytes, the launch asked for 16", run_on_output<small_launch<false>, 32, 16>,
       run_on_output<small_launch<true>>},
      {"barrier_count", "barrier misuse", "bar.sync 1, 48: the count of threads is a multiple of 32",
       TWINS(run_on_output, barrier_count, 64)},
      {"barrier_of_nobody", "barrier misuse", "bar.sync 0, 0: barriers are numbered 1 to 15",
       TWINS(run_on_output, barrier_of_nobody, 64)},
      {"barrier_mismatch", "barrier misuse", "others came to the same barrier for ",
       TWINS(run_on_output, barrier_mismatch, 96)},
      {"barrier_of_roles", "barrier misuse", "others wait in another instruction, bar.sync at ",
       TWINS(run_on_output, barrier_of_roles, 64)},
      {"arrive_twice", "barrier misuse", "warp 0 has come to this barrier before, and would count twice",
       TWINS(run_on_output, arrive_twice, 64)},
      {"arrive_missing", "deadlock", "warp 0 lanes 0-31 wait in bar.sync 1, 64", TWINS(run_on_output, arrive_missing, 64)},
      {"endless_spin", "endless spin", "nobody writes it", run_on_flag<false>, run_on_flag<true>},
      {"unseen_write", "unseen write", "byte 2 of 'o' (128 bytes) changed",  // the first byte of 1.0f that is not zero
       run_on_bytes<false>, run_on_bytes<true>},

      {"copy_past_end", "out-of-bounds read", "0 bytes past the end of 'q' (128 bytes)",
       TWINS(run_on_input_and_output, copy_past_end, float, float)},
      {"copy_over_end", "out-of-bounds read", "read of 16 bytes, 0 bytes past the end of 'q' (120 bytes)",
       TWINS(run_on_input_and_output, copy_over_end, float4, float4)},
      {"copy_past_shared", "out-of-bounds write", "cp.async of 4 bytes: 0 bytes past the end of shared memory (512 bytes)",
       TWINS(run_on_input_and_output, copy_past_shared, float, float)},
      {"copy_to_odd_place", "misaligned write", "cp.async of 16 bytes: CopySmem::stage[0][",
       TWINS(run_on_input_and_output, copy_to_odd_place, float4, float4)},
      {"copy_from_odd_place", "misaligned read", "cp.async of 8 bytes: byte ",
       TWINS(run_on_input_and_output, copy_from_odd_place, float, float)},
      {"copy_of_nothing", "uninitialised read", "of 'scratch' (128 bytes)", TWINS(run_on_scratch, copy_of_nothing)},
      {"copy_to_device_memory", "wild write", "the destination is not in shared memory",
       TWINS(run_on_input_and_output, copy_to_device_memory, float, float)},
      {"copy_from_shared", "wild read", "the source is not in device memory",
       TWINS(run_on_input_and_output, copy_from_shared, float, float)},
      {"copy_of_too_much", "cp.async misuse", "cp.async of 4 bytes: reads 8 of them",
       TWINS(run_on_input_and_output, copy_of_too_much, float, float)},
      {"stored_at_odd_place", "misaligned write", "MatrixSmem::rows[31][1], not a multiple of 16",
       TWINS(run_on_output, stored_at_odd_place, 32, matrices + 16)},
      {"stored_past_shared", "out-of-bounds write", "write of 16 bytes, 0 bytes past the end of shared memory (512 bytes)",
       TWINS(run_on_output, stored_past_shared, 32, matrices)},
      {"stored_in_device_memory", "wild write", "stmatrix writes shared memory, and this address lies elsewhere",
       TWINS(run_on_larger_output, stored_in_device_memory)},
      {"stored_at_two_places", "divergent instruction", "stmatrix.x4 is one instruction of the warp, reached at two places",
       TWINS(run_on_output, stored_at_two_places, 32, matrices)},
      {"row_not_stored", "uninitialised read", "MatrixSmem::rows[31][0]",
       TWINS(run_on_output, row_not_stored, 32, matrices + 16)},
      {"sum_at_odd_place", "misaligned write", "write of 16 bytes at byte ", TWINS(run_on_larger_output, sum_at_odd_place)},
      {"sum_over_end", "out-of-bounds write", "write of 8 bytes, 0 bytes past the end of 'o' (512 bytes)",
       TWINS(run_on_larger_output, sum_over_end)},
      {"sum_in_shared", "wild write", "red.global adds to device memory, and this address lies elsewhere",
       TWINS(run_on_larger_output, sum_in_shared)},
      {"sum_not_cleared", "uninitialised read", "read of 16 bytes from byte 24 of 'scratch' (128 bytes)",
       TWINS(run_on_scratch, sum_not_cleared)},
      {"matrix_at_odd_place", "misaligned read", "not a multiple of 16",
       TWINS(run_on_output, matrix_at_odd_place, 32, matrices)},
      {"matrix_past_shared", "out-of-bounds read", "0 bytes past the end of shared memory (512 bytes)",
       TWINS(run_on_output, matrix_past_shared, 32, matrices)},
      {"matrix_not_written", "uninitialised read", "MatrixSmem::rows[31][0]",
       TWINS(run_on_output, matrix_not_written, 32, matrices)},
      {"matrix_in_device_memory", "wild read", "ldmatrix reads shared memory, and this address lies elsewhere",
       TWINS(run_on_output, matrix_in_device_memory, 32, matrices)},
      {"matrix_in_branch", "deadlock", "warp 0 lanes 0-15 wait in ldmatrix.x2(0xffffffff)",
       TWINS(run_on_output, matrix_in_branch, 32, matrices)},
      {"matrix_at_two_places", "divergent instruction",
       "ldmatrix.x2.trans is one instruction of the warp, reached at two places",
       TWINS(run_on_output, matrix_at_two_places, 32, matrices)},
      {"matrix_without_a_lane", "exited lane in mask", "ldmatrix.x1.trans names lanes 31 of warp 0",
       TWINS(run_on_output, matrix_without_a_lane, 32, matrices)},
      {"shuffle_without_a_lane", "exited lane in mask", "__shfl_sync names lanes 31 of warp 0",
       TWINS(run_on_output, shuffle_without_a_lane)},
      {"multiply_in_branch", "deadlock", "warp 0 lanes 0-15 wait in mma.m16n8k16.f16(0xffffffff)",
       TWINS(run_on_output, multiply_in_branch)},
      {"multiply_at_two_places", "divergent instruction",
       "mma.m16n8k16.bf16 is one instruction of the warp, reached at two places", TWINS(run_on_output, multiply_at_two_places)},
      {"multiply_in_two_instances", "divergent instruction", "reached at two places that were made of one line",
       TWINS(run_on_output, multiply_in_two_instances)},
      {"multiply_without_a_lane", "exited lane in mask", "mma.m16n8k8.f16 names lanes 31 of warp 0",
       TWINS(run_on_output, multiply_without_a_lane)},
      {"sums_not_written", "uninitialised read", "SumsSmem::sums[7][3]",
       TWINS(run_on_output, sums_not_written, 32, sizeof(SumsSmem))},
  };
  return all;
}

#define LAST(how) run_three_counting_blocks<last_block<Last::how>>, run_three_counting_blocks<last_block<Last::mended>>
#define FENCES(how) \
  run_three_counting_blocks<fence_of_block<Fences::how>>, run_three_counting_blocks<fence_of_block<Fences::of_device>>

const std::vector<Race>& own_races() {
  constexpr std::size_t bytes = sizeof(RaceSmem);
  static const std::vector<Race> all = {
      {"barrier_after_store", "RaceSmem::values[", TWINS(run_on_output, barrier_after_store, 64, bytes)},
      {"barrier_before_reuse", "RaceSmem::values[", TWINS(run_on_output, barrier_before_reuse, 64, bytes)},
      {"barrier_in_loop", "RaceSmem::values[", TWINS(run_on_output, barrier_in_loop, 64, bytes)},
      {"two_writers", "RaceSmem::values[", TWINS(run_on_output, two_writers, 64, bytes)},
      {"syncwarp_missing", "RaceSmem::values[", TWINS(run_on_output, syncwarp_missing, 64, bytes)},
      {"shuffle_is_no_barrier", "RaceSmem::values[", TWINS(run_on_output, shuffle_is_no_barrier, 64, bytes)},
      {"syncwarp_across_warps", "RaceSmem::values[", TWINS(run_on_output, syncwarp_across_warps, 64, bytes)},
      {"mask_too_small", "RaceSmem::values[", TWINS(run_on_output, mask_too_small, 64, bytes)},
      {"read_again_by_one", "RaceSmem::values[5]", TWINS(run_on_output, read_again_by_one, 64, bytes)},
      {"read_thrice_by_one", "RaceSmem::values[5]", TWINS(run_on_output, read_thrice_by_one, 64, bytes)},
      {"read_at_another_line", "RaceSmem::values[5]", TWINS(run_on_output, read_at_another_line, 64, bytes)},
      {"half_words", "RaceSmem::", TWINS(run_on_output, half_words, 64, bytes)},
      {"plain_beside_atomic", "RaceSmem::count", TWINS(run_on_output, plain_beside_atomic, 64, bytes)},
      {"flag_without_fence", "RaceSmem::values[0]", TWINS(run_on_output, flag_without_fence, 64, bytes)},
      {"atomic_without_effect", "RaceSmem::count", TWINS(run_on_output, atomic_without_effect, 64, bytes)},
      {"store_before_own_atomic", "RaceSmem::count", TWINS(run_on_output, store_before_own_atomic, 2, bytes)},
      {"arrive_too_early", "RaceSmem::values[", TWINS(run_on_output, arrive_too_early, 64, bytes)},
      {"arrive_is_no_wait", "RaceSmem::values[", TWINS(run_on_output, arrive_is_no_wait, 64, bytes)},
      {"half_warps_meet", "RaceSmem::values[", TWINS(run_on_output, half_warps_meet, 64, bytes)},
      {"wait_too_weak", "CopySmem::stage[1][", TWINS(run_two_warps, wait_too_weak)},
      {"copy_without_wait", "CopySmem::stage[0][", TWINS(run_two_warps, copy_without_wait)},
      {"copy_without_barrier", "CopySmem::stage[0][", TWINS(run_two_warps, copy_without_barrier)},
      {"barrier_before_wait", "CopySmem::stage[", TWINS(run_two_warps, barrier_before_wait)},
      {"barrier_before_all_wait", "CopySmem::stage[0][", TWINS(run_two_warps, barrier_before_all_wait)},
      {"copy_not_committed", "CopySmem::stage[0][", TWINS(run_two_warps, copy_not_committed)},
      {"fence_is_no_wait", "CopySmem::stage[0][", TWINS(run_two_warps, fence_is_no_wait)},
      {"copy_over_readers", "CopySmem::stage[0][", TWINS(run_two_warps, copy_over_readers)},
      {"two_copies", "CopySmem::stage[0][", TWINS(run_two_warps, two_copies)},
      {"copied_again", "CopySmem::stage[0][", TWINS(run_two_warps, copied_again)},
      {"store_under_copy", "CopySmem::stage[", TWINS(run_two_warps, store_under_copy)},
      {"store_over_copy", "CopySmem::stage[", TWINS(run_two_warps, store_over_copy)},
      {"matrix_without_barrier", "MatrixSmem::rows[", TWINS(run_two_warps, matrix_without_barrier)},
      {"matrix_of_own_rows", "MatrixSmem::rows[", TWINS(run_two_warps, matrix_of_own_rows)},
      {"matrix_under_copy", "MatrixSmem::rows[", TWINS(run_two_warps, matrix_under_copy)},
      {"matrix_before_reuse", "MatrixSmem::rows[", TWINS(run_two_warps, matrix_before_reuse)},
      {"matrix_to_one_place", "FragmentSmem::fragment[", TWINS(run_two_warps, matrix_to_one_place)},
      {"stored_without_barrier", "MatrixSmem::rows[", TWINS(run_two_warps, stored_without_barrier)},
      {"stored_and_transposed", "MatrixSmem::rows[", TWINS(run_two_warps, stored_and_transposed)},
      {"stored_before_read", "MatrixSmem::rows[", TWINS(run_two_warps, stored_before_read)},
      {"stored_by_two_warps", "MatrixSmem::rows[", TWINS(run_two_warps, stored_by_two_warps)},
      {"stored_to_one_row", "MatrixSmem::rows[4]", TWINS(run_two_warps, stored_to_one_row)},
      {"stored_under_copy", "MatrixSmem::rows[", TWINS(run_two_warps, stored_under_copy)},
      {"copy_of_next_block", "of 'o' (384 bytes)", TWINS(run_three_blocks, copy_of_next_block)},
      {"flag_before_wait", "byte 0 of 'o' (384 bytes)", TWINS(run_three_counting_blocks, flag_before_wait)},
      {"blocks_share_output", "of 'o' (384 bytes)", TWINS(run_three_blocks, blocks_share_output)},
      {"next_block_reads", "of 'o' (384 bytes)", TWINS(run_three_blocks, next_block_reads)},
      {"passed_on", "byte 0 of 'o' (384 bytes)", TWINS(run_three_counting_blocks, passed_on)},
      {"last_block", "of 'o' (384 bytes)", LAST(no_barrier)},
      {"last_block", "of 'o' (384 bytes)", LAST(no_fence)},
      {"last_block", "of 'o' (384 bytes)", LAST(fence_by_another)},
      {"last_block", "of 'o' (384 bytes)", LAST(reader_without_fence)},
      {"last_block", "of 'o' (384 bytes)", run_three_counting_blocks<last_block<Last::all_fence_too_early>>,
       run_three_counting_blocks<last_block<Last::all_fence>>},
      {"fence_of_block", "of 'o' (384 bytes)", FENCES(first_of_block)},
      {"fence_of_block", "of 'o' (384 bytes)", FENCES(second_of_block)},
      {"atomic_of_block", "of 'counter' (4 bytes)", TWINS(run_three_counting_blocks, atomic_of_block)},
      {"device_read_after_write", "of 'values' (256 bytes)", TWINS(run_one_block, device_read_after_write)},
      {"device_write_after_read", "of 'values' (256 bytes)", TWINS(run_one_block, device_write_after_read)},
      {"device_write_after_write", "of 'values' (256 bytes)", TWINS(run_one_block, device_write_after_write)},
      {"device_syncwarp_missing", "of 'values' (256 bytes)", TWINS(run_one_block, device_syncwarp_missing)},
      {"device_syncwarp_before_reuse", "of 'values' (256 bytes)", TWINS(run_one_block, device_syncwarp_before_reuse)},
      {"device_syncwarp_across_warps", "of 'values' (256 bytes)", TWINS(run_one_block, device_syncwarp_across_warps)},
      {"device_mask_too_small", "of 'values' (256 bytes)", TWINS(run_one_block, device_mask_too_small)},
      {"device_arrive_is_no_wait", "of 'values' (256 bytes)", TWINS(run_one_block, device_arrive_is_no_wait)},
      {"device_half_words", "of 'values' (256 bytes)", TWINS(run_one_block, device_half_words)},
      {"device_flag_without_fence", "byte 0 of 'values' (256 bytes)", TWINS(run_one_block, device_flag_without_fence)},
      {"shared_flag_without_fence", "RaceSmem::values[0]", TWINS(run_one_block, shared_flag_without_fence)},
      {"device_copy_before_wait", "of 'values' (256 bytes)", TWINS(run_one_block, device_copy_before_wait)},
      {"copy_source_behind_barriers", "of 'values' (256 bytes)", TWINS(run_one_block, copy_source_behind_barriers)},
      {"copy_source_overwritten", "of 'values' (256 bytes)", TWINS(run_one_block, copy_source_overwritten)},
      {"atomics_of_two_sizes", "byte 12 of 'values' (256 bytes)", TWINS(run_one_block, atomics_of_two_sizes)},
      {"device_odd_half", "byte 4 of 'values' (256 bytes)", TWINS(run_one_block, device_odd_half)},
      {"race_in_helpers", "of 'values' (256 bytes)", TWINS(run_one_block, race_in_helpers)},
      {"read_beside_red", "of 'values' (256 bytes)", TWINS(run_one_block, read_beside_red)},
      {"read_beside_vector_red", "byte 28 of 'values' (256 bytes)", TWINS(run_one_block, read_beside_vector_red)},
      {"write_beside_vector_red", "byte 12 of 'values' (256 bytes)", TWINS(run_one_block, write_beside_vector_red)},
      {"own_red", "byte 0 of 'values' (256 bytes)", TWINS(run_one_block, own_red, 2)},
      {"write_beside_red", "byte 0 of 'values' (256 bytes)", TWINS(run_one_block, write_beside_red)},
      {"plain_beside_global_atomic", "of 'counter' (4 bytes)", TWINS(run_three_counting_blocks, plain_beside_global_atomic)},
  };
  return all;
}

template <class T>
std::vector<T> joined(std::vector<T> all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = joined(joined(own_faults(), faults_of_mbarriers()), faults_of_bulk_copies());
  return all;
}

const std::vector<Race>& races() {
  static const std::vector<Race> all = joined(joined(own_races(), races_of_mbarriers()), races_of_bulk_copies());
  return all;
}

#undef TWINS
#undef LAST
#undef FENCES

void correct() {
  const runtime::Buffer q = zeros("q", 32);
  const runtime::Buffer o = zeros("o", 96);
  launch(correct_kernel, {3, 32, sizeof(Smem)}, q.as<const float4>(), o.as<float4>());
  launch(halves_by_blocks_kernel, {64, 32}, o.as<__half>());
  launch(many_reads_kernel, {1, 32, sizeof(RaceSmem)}, o.as<float>());
  const runtime::Buffer many = zeros("many", 128);
  launch(copies_left_behind_kernel, {16, 64, sizeof(CopySmem)}, many.as<const float>(), o.as<float>());
  launch(copies_beside_stores_kernel, {1, 64, sizeof(CopySmem)}, many.as<const float>(), o.as<float>());
  launch(exited_lanes_kernel, {1, 64, sizeof(RaceSmem)}, o.as<float>());
  const runtime::Buffer count = zeros("count", 1);
  launch(copies_of_no_bytes_kernel, {1, 32, sizeof(CopySmem)}, many.as<float>(), count.as<int>(), o.as<float>());
}

const std::map<std::string, void (*)()>& counted_kernels() {
  static const std::map<std::string, void (*)()> all = {
      {"exited_warp", run_on_output<exited_warp_kernel, 128>},
      {"arrival_left", run_on_output<arrival_left_kernel, 64>},
      {"wide_shuffle", run_on_output<wide_shuffle_kernel>},
      {"shuffle_from_two_lines", run_on_output<shuffle_from_two_lines_kernel>},
      {"store_behind_atomic", run_on_output<store_behind_atomic_kernel, 32, sizeof(RaceSmem)>},
      {"volatile", run_warp_on_64<volatile_kernel>},
      {"large_copy", run_on_output<large_copy_kernel, 32, sizeof(LargeSmem)>},
      {"stopped", run_on_output<stopped_kernel>},
  };
  return all;
}

void chain(int blocks, int threads, std::size_t shared_bytes, std::size_t registers, unsigned cluster) {
  runtime::Buffer flags("flags", (static_cast<std::size_t>(blocks) + 1) * sizeof(int));
  std::vector<int> values(static_cast<std::size_t>(blocks) + 1);
  values.back() = 1;
  flags.upload(values.data(), flags.bytes());
  launch(chain_kernel, {blocks, threads, shared_bytes, registers, cluster}, flags.as<int>());
}

void spin_with_stores(int blocks) {
  const runtime::Buffer flag = zeros("flag", 1), o = zeros("o", 1);
  launch(spin_with_stores_kernel, {blocks, 32}, flag.as<int>(), o.as<float>());
}

void spin_with_tickets() {
  const runtime::Buffer flag = zeros("flag", 1), ticket = zeros("ticket", 1);
  launch(spin_with_tickets_kernel, {2, 32}, flag.as<int>(), ticket.as<int>());
}

void all_spin(int blocks, int threads) {
  const runtime::Buffer flag = zeros("flag", 1);
  launch(all_spin_kernel, {blocks, threads}, flag.as<int>());
}

int beginnings_of_named_rounds(int rounds) {
  const runtime::Buffer values = zeros("values", 256), o = zeros("o", 256);
  beginnings = 0;
  launch(named_rounds_kernel, {1, 256}, values.as<float>(), rounds, o.as<float>());
  return beginnings;
}

int beginnings_of_mbarrier_rounds(int rounds) {
  const runtime::Buffer values = zeros("values", 256), o = zeros("o", 256);
  beginnings = 0;
  launch(mbarrier_rounds_kernel, {1, 256, sizeof(RoundsSmem)}, values.as<float>(), rounds, o.as<float>());
  return beginnings;
}

void print_and_count() {
  const runtime::Buffer count = zeros("count", 1);
  launch(prints_kernel, {3, 1}, count.as<int>());
}

std::vector<float> seen_before_wait() {
  runtime::Buffer q("q", 128 * sizeof(float));
  const std::vector<float> ones(128, 1.0f);
  q.upload(ones.data(), q.bytes());
  const runtime::Buffer o = zeros("o", 64);
  launch(copy_without_wait<false>, {1, 64, sizeof(CopySmem)}, q.as<const float>(), o.as<float>());
  std::vector<float> seen(64);
  o.download(seen.data(), o.bytes());
  return seen;
}

void two_faults() {
  const runtime::Buffer q = zeros("q", 32);
  const runtime::Buffer o = zeros("o", 32);
  launch(two_faults_kernel, {1, 32}, q.as<const float>(), o.as<float>());
}

void too_many_threads() { launch(null_pointer<true>, {1, 2048}, nullptr); }
void too_much_shared() { launch(null_pointer<true>, {1, 32, 300000}, nullptr); }

Reds reds(int blocks, int threads, bool use_found) {
  const std::size_t count = static_cast<std::size_t>(blocks) * static_cast<std::size_t>(threads);
  const runtime::Buffer sums = zeros("sums", 3), all = zeros("all", 2), floats = zeros("floats", 1),
                        found = zeros("found", count);
  beginnings = 0;
  launch(reds_kernel, {blocks, threads}, sums.as<unsigned>(), all.as<unsigned long long>(), floats.as<float>(),
         use_found ? found.as<unsigned>() : nullptr);
  Reds result;
  sums.download(result.sums.data(), sums.bytes());
  all.download(&result.all, all.bytes());
  floats.download(&result.floats, floats.bytes());
  result.beginnings = beginnings;
  return result;
}

std::vector<int> found() {
  const runtime::Buffer values = zeros("values", 1), seen = zeros("seen", 8);
  launch(found_kernel, {1, 1}, values.as<int>(), seen.as<int>());
  std::vector<int> result(8);
  seen.download(result.data(), seen.bytes());
  return result;
}

std::vector<int> schedule(int blocks, int threads) {
  const std::size_t count = static_cast<std::size_t>(blocks) * static_cast<std::size_t>(threads);
  const runtime::Buffer counter = zeros("counter", 1);
  const runtime::Buffer order = zeros("order", count);
  launch(schedule_kernel, {blocks, threads}, counter.as<int>(), order.as<int>());
  std::vector<int> result(count);
  order.download(result.data(), order.bytes());
  return result;
}

std::vector<int> block_schedule(int threads) {
  const runtime::Buffer order = zeros("order", static_cast<std::size_t>(threads));
  launch(block_schedule_kernel, {1, threads, sizeof(ScheduleSmem)}, order.as<int>());
  std::vector<int> result(static_cast<std::size_t>(threads));
  order.download(result.data(), order.bytes());
  return result;
}

}  // namespace faulty
