#include <unistd.h>

#include <cstdio>

#include "common/device/dialect.h"
#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/barrier.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"
#include "tests/simt/conformance_buffers.h"
#include "tests/simt/conformance_kernels.h"

namespace conformance {
namespace {

using runtime::launch;

__global__ void builtins_kernel(unsigned* out) {  // [threads, 12]
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned* mine = out + (block * blockDim.x * blockDim.y * blockDim.z + thread) * 12;
  const unsigned values[12] = {threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z,
                               blockDim.x,  blockDim.y,  blockDim.z,  gridDim.x,  gridDim.y,  gridDim.z};
  for (int i = 0; i < 12; ++i) mine[i] = values[i];
}

__global__ void shuffle_kernel(Shuffle mode, unsigned mask, int operand, int width,
                               int* out) {  // [32]
  const int lane = threadIdx.x;
  if (!(mask >> lane & 1)) return;
  const int value = 1000 + lane;
  switch (mode) {
    case Shuffle::index:
      out[lane] = __shfl_sync(mask, value, operand, width);
      break;
    case Shuffle::up:
      out[lane] = __shfl_up_sync(mask, value, operand, width);
      break;
    case Shuffle::down:
      out[lane] = __shfl_down_sync(mask, value, operand, width);
      break;
    case Shuffle::butterfly:
      out[lane] = __shfl_xor_sync(mask, value, operand, width);
      break;
  }
}

__global__ void shuffle_doubles_kernel(unsigned mask, double* out) {  // [32]
  const int lane = threadIdx.x;
  if (mask >> lane & 1) out[lane] = __shfl_xor_sync(mask, lane + 0.25, 1);
}

__global__ void votes_kernel(unsigned mask, unsigned predicates,
                             unsigned* ballot,  // [32]
                             int* any,          // [32]
                             int* all) {        // [32]
  const int lane = threadIdx.x;
  if (!(mask >> lane & 1)) return;
  const int mine = predicates >> lane & 1;
  ballot[lane] = __ballot_sync(mask, mine);
  any[lane] = __any_sync(mask, mine);
  all[lane] = __all_sync(mask, mine);
}

struct BlockSumSmem {
  union {  // memory used twice
    float values[1024];
    int flags[1024];
  };
};

__global__ void block_sum_kernel(int count,
                                 const float* values,  // [count]
                                 float* out) {         // [threads]: everyone's view of the sum
  auto& smem = device::shared_storage<BlockSumSmem>();
  const int thread = threadIdx.x;
  float sum = 0.0f;
  for (int i = thread; i < count; i += blockDim.x) sum += values[i];
  smem.values[thread] = sum;
  __syncthreads();  // all partial sums are there
  for (int live = blockDim.x / 2; live > 0; live /= 2) {
    if (thread < live) smem.values[thread] += smem.values[thread + live];
    __syncthreads();  // one level after the other
  }
  const float result = smem.values[0];
  __syncthreads();  // read by all before the memory is used for flags
  smem.flags[thread] = thread;
  out[thread] = result + 0.0f * smem.flags[thread];
}

__global__ void block_votes_kernel(int rounds,
                                   const int* voters,  // [rounds]: a thread; any other number: nobody
                                   int* out) {         // [rounds, threads]
  for (int r = 0; r < rounds; ++r) {
    const int thread = threadIdx.x;
    out[r * static_cast<int>(blockDim.x) + thread] = __syncthreads_or(thread == voters[r]) != 0;
  }
}

struct TransposeSmem {
  int tile[32][33];
};

__global__ void warp_transpose_kernel(int* out) {  // [32, 32]
  auto& smem = device::shared_storage<TransposeSmem>();
  const int lane = threadIdx.x;
  for (int row = 0; row < 32; ++row) smem.tile[row][lane] = 32 * row + lane;
  __syncwarp();  // the tile is written before any lane reads another lane's column
  for (int row = 0; row < 32; ++row) out[32 * row + lane] = smem.tile[lane][row];
}

struct RingSmem {
  int stage[2][32];
};

// Warp 0 fills two stages, warp 1 adds them up: barrier 1 says that stage 0 is full, barrier 2 that stage 1 is.
__global__ void producer_consumer_kernel(int rounds, int* out) {  // [32]
  auto& smem = device::shared_storage<RingSmem>();
  const int lane = threadIdx.x % 32;
  int sum = 0;
  for (int i = 0; i < rounds; ++i) {
    for (int s = 0; s < 2; ++s) {
      if (threadIdx.x < 32) {
        smem.stage[s][lane] = 2 * i + s + lane;
        ptx::bar_arrive(1 + s, 64);  // full: the producer need not wait
      } else {
        ptx::bar_sync(1 + s, 64);  // the stage is full
        sum += smem.stage[s][31 - lane];
      }
    }
    __syncthreads();  // both stages are read before they are filled again
  }
  if (threadIdx.x >= 32) out[lane] = sum;
}

__global__ void divergent_loops_kernel(int* out) {  // [64]
  const int thread = threadIdx.x;
  int steps = 0;
  for (int i = 0; i < thread % 7; ++i) {
    for (int j = 0; j <= i; ++j) {
      if ((i + j + thread) % 3 == 0) continue;
      ++steps;
    }
  }
  const unsigned odd = __ballot_sync(0xffffffffu, steps % 2);  // all lanes are back together here
  out[thread] = 100 * steps + __popc(odd);
}

__global__ void histogram_kernel(int count,
                                 const unsigned* values,  // [count]
                                 unsigned* bins) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(&bins[values[i]], 1u);
}

struct HistogramSmem {
  unsigned bins[64];
};

__global__ void shared_histogram_kernel(int count, int bin_count,
                                        const unsigned* values,  // [count]
                                        unsigned* bins) {        // [bin_count]
  auto& smem = device::shared_storage<HistogramSmem>();
  for (int bin = threadIdx.x; bin < bin_count; bin += blockDim.x) smem.bins[bin] = 0;
  __syncthreads();  // zeroed before anyone counts
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(&smem.bins[values[i]], 1u);
  __syncthreads();  // counted before anyone adds up
  for (int bin = threadIdx.x; bin < bin_count; bin += blockDim.x) atomicAdd(&bins[bin], smem.bins[bin]);
}

__global__ void integer_atomics_kernel(int* out) {  // [6]
  const int thread = threadIdx.x;
  atomicMax(&out[0], thread * 37 % 101);
  atomicMin(&out[1], -(thread * 37 % 101));
  atomicOr(&out[2], 1 << thread % 20);
  atomicAnd(&out[3], ~(1 << thread % 20));
  atomicAdd(&out[4], atomicExch(&out[5], thread));  // each value but the last one left passes through exactly once
}

__global__ void atomic_float_kernel(float* sum) { atomicAdd(sum, 1.0f); }

__global__ void lock_kernel(int* lock, int* counter) {
  if (threadIdx.x != 0) return;
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  __threadfence();  // what the last owner wrote is seen before the counter is read
  volatile int* shared_counter = counter;
  *shared_counter = *shared_counter + 1;
  __threadfence();  // the counter is seen before the lock looks free
  atomicExch(lock, 0);
}

__global__ void last_block_kernel(int* partial,  // [blocks]
                                  unsigned* done, int* out) {
  if (threadIdx.x != 0) return;
  volatile int* values = partial;
  values[blockIdx.x] = blockIdx.x + 1;
  __threadfence();  // the value is seen before the count
  if (atomicAdd(done, 1u) + 1 < gridDim.x) return;
  int sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += values[b];
  *out = sum;
}

__global__ void flag_chain_kernel(int* flags,  // [blocks + 1]; the last is set
                                  int* order) {
  if (threadIdx.x != 0) return;
  volatile int* shared_flags = flags;
  while (shared_flags[blockIdx.x + 1] == 0) {
  }
  __threadfence();  // the flag is seen before what follows
  atomicAdd(order, 1);
  __threadfence();  // the count is seen before our flag
  shared_flags[blockIdx.x] = 1;
}

__global__ void to_half_kernel(int count,
                               const float* in,  // [count]
                               __half* out) {    // [count]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) device::store(&out[i], __float2half(in[i]));
}

__global__ void from_half_kernel(int count,
                                 const __half* in,  // [count]
                                 float* out) {      // [count]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = __half2float(device::load(&in[i]));
}

__global__ void to_bfloat_kernel(int count,
                                 const float* in,       // [count]
                                 __nv_bfloat16* out) {  // [count]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) device::store(&out[i], __float2bfloat16(in[i]));
}

__global__ void from_bfloat_kernel(int count,
                                   const __nv_bfloat16* in,  // [count]
                                   float* out) {             // [count]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = __bfloat162float(device::load(&in[i]));
}

__global__ void vector_copy_kernel(int count,
                                   const float4* in,  // [count]
                                   float4* out) {     // [count]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) device::store(&out[i], device::load(&in[i]));
}

// One block. Lane l copies rounds l % 3, l % 3 + 3, …: in each round, only some lanes.
__global__ void predicated_copy_kernel(int count,
                                       const float* in,  // [count]
                                       float* out) {     // [count]
  for (int round = 0; round * 32 < count; ++round) {
    const int i = round * 32 + static_cast<int>(threadIdx.x);
    const bool mine = i < count && round % 3 == static_cast<int>(threadIdx.x) % 3;
    const float value = device::load_if(mine, &in[i]);
    device::store_if(i < count, &out[i], value + 1.0f);
  }
}

constexpr int matrix_rows = 64;  // that shared memory has room for

struct MatrixSmem {
  alignas(16) std::uint32_t rows[matrix_rows][4];
};

template <int matrices, bool transposed>
__global__ void load_matrices_kernel(int count,                   // of rows
                                     const std::uint32_t* rows,   // [count, 4]
                                     const int* row_of_lane,      // [32]
                                     std::uint32_t* registers) {  // [32, matrices]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int lane = threadIdx.x;
  for (int i = lane; i < 4 * count; i += 32) smem.rows[i / 4][i % 4] = rows[i];
  __syncwarp();  // the rows are written
  const void* const row = smem.rows[row_of_lane[lane]];
  std::uint32_t r[matrices];
  if constexpr (matrices == 1 && !transposed) ptx::ldmatrix_x1(r, row);
  if constexpr (matrices == 1 && transposed) ptx::ldmatrix_x1_trans(r, row);
  if constexpr (matrices == 2 && !transposed) ptx::ldmatrix_x2(r, row);
  if constexpr (matrices == 2 && transposed) ptx::ldmatrix_x2_trans(r, row);
  if constexpr (matrices == 4 && !transposed) ptx::ldmatrix_x4(r, row);
  if constexpr (matrices == 4 && transposed) ptx::ldmatrix_x4_trans(r, row);
  for (int m = 0; m < matrices; ++m) registers[matrices * lane + m] = r[m];
}

template <class T, int k>
__global__ void multiply_kernel(const std::uint32_t* a,  // [32, k / 4]
                                const std::uint32_t* b,  // [32, k / 8]
                                float* c) {              // [32, 4]
  const int lane = threadIdx.x;
  std::uint32_t a_mine[k / 4], b_mine[k / 8];
  float c_mine[4];
  for (int i = 0; i < k / 4; ++i) a_mine[i] = a[k / 4 * lane + i];
  for (int i = 0; i < k / 8; ++i) b_mine[i] = b[k / 8 * lane + i];
  for (int i = 0; i < 4; ++i) c_mine[i] = c[4 * lane + i];
  if constexpr (k == 16) {
    ptx::mma_m16n8k16<T>(c_mine, a_mine, b_mine);
  } else {
    ptx::mma_m16n8k8<T>(c_mine, a_mine, b_mine);
  }
  for (int i = 0; i < 4; ++i) c[4 * lane + i] = c_mine[i];
}

template <class T>
__global__ void multiply_from_kernel(const std::uint32_t* a,  // [32, 4]
                                     const std::uint32_t* b,  // [32, 2]
                                     float* c,                // [32, 4]
                                     float* d) {              // [32, 4]
  const int lane = threadIdx.x;
  std::uint32_t a_mine[4], b_mine[2];
  float c_mine[4], d_mine[4] = {-1.0f, -1.0f, -1.0f, -1.0f};
  for (int i = 0; i < 4; ++i) a_mine[i] = a[4 * lane + i];
  for (int i = 0; i < 2; ++i) b_mine[i] = b[2 * lane + i];
  for (int i = 0; i < 4; ++i) c_mine[i] = c[4 * lane + i];
  ptx::mma_m16n8k16<T>(d_mine, a_mine, b_mine, c_mine);
  for (int i = 0; i < 4; ++i) {
    c[4 * lane + i] = c_mine[i];
    d[4 * lane + i] = d_mine[i];
  }
}

// Sums that nobody looks at until the end, and the ways in which C and D of several products may hang together. A · B is 16
// everywhere.
__global__ void chained_products_kernel(float* out) {  // [32, 22]
  const int lane = threadIdx.x;
  constexpr std::uint32_t ones = 0x3c003c00;
  const std::uint32_t a[4] = {ones, ones, ones, ones}, b[2] = {ones, ones};
  float chain[4], apart[4], window[6], overwritten[4], volatile_read[4];
  for (int i = 0; i < 4; ++i) chain[i] = overwritten[i] = volatile_read[i] = static_cast<float>(10 * lane + i);
  for (int i = 0; i < 6; ++i) window[i] = static_cast<float>(10 * lane + i);

  for (int i = 0; i < 150; ++i) ptx::mma_m16n8k16<__half>(chain, a, b);
  ptx::mma_m16n8k16<__half>(apart, a, b, chain);
  ptx::mma_m16n8k16<__half>(chain, a, b);
  ptx::mma_m16n8k16<__half>(*reinterpret_cast<float(*)[4]>(&window[0]), a, b);
  ptx::mma_m16n8k16<__half>(*reinterpret_cast<float(*)[4]>(&window[2]), a, b);  // C is half the D before it
  ptx::mma_m16n8k16<__half>(overwritten, a, b);
  overwritten[1] = -1.0f;
  ptx::mma_m16n8k16<__half>(volatile_read, a, b);
  for (int round = 0; round < 3; ++round) {
    float nobody_looks[4] = {};
    ptx::mma_m16n8k16<__half>(nobody_looks, a, b);
  }
  float* const mine = out + 22 * lane;
  for (int i = 0; i < 4; ++i) mine[18 + i] = const_cast<volatile float*>(volatile_read)[i];
  for (int i = 0; i < 4; ++i) mine[i] = chain[i];
  for (int i = 0; i < 4; ++i) mine[4 + i] = apart[i];
  for (int i = 0; i < 6; ++i) mine[8 + i] = window[i];
  for (int i = 0; i < 4; ++i) mine[14 + i] = overwritten[i];
}

struct CopySmem {
  alignas(16) std::uint32_t words[1024][4];  // each thread's 16 bytes
};

template <int bytes, bool past_l1>
__global__ void copy_async_kernel(const std::uint8_t* from,  // [threads, 16]
                                  const int* source_bytes,   // [threads]
                                  std::uint32_t* out) {      // [threads, bytes / 4]
  auto& smem = device::shared_storage<CopySmem>();
  const int thread = threadIdx.x;
  void* const to = smem.words[thread];
  if constexpr (bytes == 4) ptx::cp_async_4(to, from + 16 * thread, source_bytes[thread]);
  if constexpr (bytes == 8) ptx::cp_async_8(to, from + 16 * thread, source_bytes[thread]);
  if constexpr (bytes == 16 && past_l1) ptx::cp_async_16(to, from + 16 * thread, source_bytes[thread]);
  if constexpr (bytes == 16 && !past_l1) ptx::cp_async_16_ca(to, from + 16 * thread, source_bytes[thread]);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // every thread has waited for its copy
  for (int i = 0; i < bytes / 4; ++i) out[bytes / 4 * thread + i] = smem.words[thread ^ 1][i];
}

struct GroupsSmem {
  int values[2][6];
};

template <int pending>
__device__ void wait_and_read(const int (&values)[6], int* out) {
  ptx::cp_async_wait_group<pending>();
  constexpr int group = 4 - pending;  // the one that must have come
  if constexpr (group < 2) out[group] = values[group];
  if constexpr (group == 2) out[group] = values[0] + values[1];
  if constexpr (group > 2) out[group] = values[group - 1];
}

__global__ void copy_groups_kernel(const int* values,  // [2, 6]
                                   int* out) {         // [2, 6]
  auto& smem = device::shared_storage<GroupsSmem>();
  const int thread = threadIdx.x;
  int(&mine)[6] = smem.values[thread];
  int copied = 0;
  for (int group = 0; group < 5; ++group) {
    if (group != 2) {
      ptx::cp_async_4(&mine[copied], &values[6 * thread + copied]);
      ++copied;
    }
    ptx::cp_async_commit_group();
  }
  for (; copied < 6; ++copied) ptx::cp_async_4(&mine[copied], &values[6 * thread + copied]);
  ptx::cp_async_wait_group<200>();  // more than there are
  wait_and_read<4>(mine, out + 6 * thread);
  wait_and_read<3>(mine, out + 6 * thread);
  wait_and_read<2>(mine, out + 6 * thread);
  wait_and_read<1>(mine, out + 6 * thread);
  wait_and_read<0>(mine, out + 6 * thread);
  ptx::cp_async_wait_all();
  out[6 * thread + 5] = mine[4] + mine[5];
}

constexpr int stages = 3;

struct PipelineSmem {
  alignas(16) int stage[stages][64];
};

// Four numbers by each of 16 threads. Of the other threads, and behind the last tile, an empty group: all threads count alike.
__device__ void fetch_tile(PipelineSmem& smem, const int* in, int tile, int tiles) {
  const int first = 4 * threadIdx.x;
  if (tile < tiles && first < 64) ptx::cp_async_16(&smem.stage[tile % stages][first], &in[64 * tile + first]);
  ptx::cp_async_commit_group();
}

__global__ void copy_pipeline_kernel(int tiles,
                                     const int* in,  // [tiles, 64]
                                     int* out) {     // [64]
  auto& smem = device::shared_storage<PipelineSmem>();
  const int thread = threadIdx.x;
  for (int tile = 0; tile < stages - 1; ++tile) fetch_tile(smem, in, tile, tiles);
  int sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    ptx::cp_async_wait_group<stages - 2>();
    __syncthreads();  // the tile has come for all, and all have read the one before, whose stage is filled next
    fetch_tile(smem, in, tile + stages - 1, tiles);
    sum += (tile + 1) * smem.stage[tile % stages][63 - thread];
  }
  out[thread] = sum;
}

__global__ void print_kernel() {
  if (threadIdx.x < 4) printf("thread %d: %.1f\n", static_cast<int>(threadIdx.x), 0.5 + threadIdx.x);
}

}  // namespace

std::vector<unsigned> builtins(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz) {
  const runtime::Buffer out = zeros<unsigned>("out", std::size_t{12} * gx * gy * gz * bx * by * bz);
  launch(builtins_kernel, {dim3(gx, gy, gz), dim3(bx, by, bz)}, out.as<unsigned>());
  return download<unsigned>(out);
}

std::vector<int> shuffle(Shuffle mode, unsigned mask, int operand, int width) {
  const runtime::Buffer out = zeros<int>("out", 32);
  launch(shuffle_kernel, {1, 32}, mode, mask, operand, width, out.as<int>());
  return download<int>(out);
}

std::vector<double> shuffle_doubles(unsigned mask) {
  const runtime::Buffer out = zeros<double>("out", 32);
  launch(shuffle_doubles_kernel, {1, 32}, mask, out.as<double>());
  return download<double>(out);
}

Votes votes(unsigned mask, unsigned predicates) {
  const runtime::Buffer ballot = zeros<unsigned>("ballot", 32);
  const runtime::Buffer any = zeros<int>("any", 32);
  const runtime::Buffer all = zeros<int>("all", 32);
  launch(votes_kernel, {1, 32}, mask, predicates, ballot.as<unsigned>(), any.as<int>(), all.as<int>());
  return {download<unsigned>(ballot), download<int>(any), download<int>(all)};
}

std::vector<int> block_votes(int threads, const std::vector<int>& voters) {
  const runtime::Buffer in = upload("voters", voters);
  const runtime::Buffer out = zeros<int>("out", voters.size() * static_cast<std::size_t>(threads));
  launch(block_votes_kernel, {1, threads}, static_cast<int>(voters.size()), in.as<const int>(), out.as<int>());
  return download<int>(out);
}

std::vector<float> block_sum(const std::vector<float>& values, int threads) {
  const runtime::Buffer in = upload("values", values);
  const runtime::Buffer out = zeros<float>("out", static_cast<std::size_t>(threads));
  launch(block_sum_kernel, {1, threads, sizeof(BlockSumSmem)}, static_cast<int>(values.size()), in.as<const float>(),
         out.as<float>());
  return download<float>(out);
}

std::vector<int> warp_transpose() {
  const runtime::Buffer out = zeros<int>("out", 1024);
  launch(warp_transpose_kernel, {1, 32, sizeof(TransposeSmem)}, out.as<int>());
  return download<int>(out);
}

std::vector<int> producer_consumer(int rounds) {
  const runtime::Buffer out = zeros<int>("out", 32);
  launch(producer_consumer_kernel, {1, 64, sizeof(RingSmem)}, rounds, out.as<int>());
  return download<int>(out);
}

std::vector<int> divergent_loops() {
  const runtime::Buffer out = zeros<int>("out", 64);
  launch(divergent_loops_kernel, {1, 64}, out.as<int>());
  return download<int>(out);
}

std::vector<unsigned> histogram(const std::vector<unsigned>& values, unsigned bins) {
  const runtime::Buffer in = upload("values", values);
  const runtime::Buffer out = zeros<unsigned>("bins", bins);
  const int count = static_cast<int>(values.size());
  launch(histogram_kernel, {device::ceil_div(count, 64), 64}, count, in.as<const unsigned>(), out.as<unsigned>());
  return download<unsigned>(out);
}

std::vector<unsigned> shared_histogram(const std::vector<unsigned>& values, unsigned bins) {
  const runtime::Buffer in = upload("values", values);
  const runtime::Buffer out = zeros<unsigned>("bins", bins);
  const int count = static_cast<int>(values.size());
  launch(shared_histogram_kernel, {device::ceil_div(count, 96), 96, sizeof(HistogramSmem)}, count, static_cast<int>(bins),
         in.as<const unsigned>(), out.as<unsigned>());
  return download<unsigned>(out);
}

std::vector<int> integer_atomics(int threads) {
  const runtime::Buffer out = upload<int>("out", {0, 0, 0, -1, 0, 0});
  launch(integer_atomics_kernel, {1, threads}, out.as<int>());
  return download<int>(out);
}

float atomic_float_sum(int blocks, int threads) {
  const runtime::Buffer out = zeros<float>("sum", 1);
  launch(atomic_float_kernel, {blocks, threads}, out.as<float>());
  return download<float>(out)[0];
}

int locked_increments(int blocks) {
  const runtime::Buffer lock = zeros<int>("lock", 1);
  const runtime::Buffer counter = zeros<int>("counter", 1);
  launch(lock_kernel, {blocks, 32}, lock.as<int>(), counter.as<int>());
  return download<int>(counter)[0];
}

int last_block_sum(int blocks) {
  const runtime::Buffer partial = zeros<int>("partial", static_cast<std::size_t>(blocks));
  const runtime::Buffer done = zeros<unsigned>("done", 1);
  const runtime::Buffer out = zeros<int>("out", 1);
  launch(last_block_kernel, {blocks, 32}, partial.as<int>(), done.as<unsigned>(), out.as<int>());
  return download<int>(out)[0];
}

int flag_chain(int blocks) {
  std::vector<int> initial(static_cast<std::size_t>(blocks) + 1);
  initial.back() = 1;
  const runtime::Buffer flags = upload("flags", initial);
  const runtime::Buffer order = zeros<int>("order", 1);
  launch(flag_chain_kernel, {blocks, 32}, flags.as<int>(), order.as<int>());
  return download<int>(order)[0];
}

namespace {

struct MbarrierRingSmem {
  ptx::Mbarrier full[stages], empty[stages];
  alignas(16) int stage[stages][64];
};

// Warp 0 copies tiles into a ring of stages. Warps 1 and 2 add them up; each thread reads what the copies of others brought.
__global__ void mbarrier_ring_kernel(int tiles,
                                     const int* in,  // [tiles, 64]
                                     int* out) {     // [64]
  auto& smem = device::shared_storage<MbarrierRingSmem>();
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      ptx::mbarrier_init(smem.full[s], 32);
      ptx::mbarrier_init(smem.empty[s], 64);
    }
  }
  __syncthreads();  // the mbarriers are there
  if (threadIdx.x < 32) {
    const int first = 2 * threadIdx.x;
    for (int tile = 0; tile < tiles; ++tile) {
      const int s = tile % stages;
      ptx::mbarrier_wait(smem.empty[s], (tile / stages + 1) % 2);  // of the first tiles at once: nobody has to leave
      ptx::cp_async_8(&smem.stage[s][first], &in[64 * tile + first]);
      ptx::cp_async_mbarrier_arrive(smem.full[s]);
    }
    ptx::cp_async_wait_all();
  } else {
    const int t = threadIdx.x - 32;
    int sum = 0;
    for (int tile = 0; tile < tiles; ++tile) {
      const int s = tile % stages;
      ptx::mbarrier_wait(smem.full[s], tile / stages % 2);
      sum += (tile + 1) * smem.stage[s][63 - t];
      ptx::mbarrier_arrive(smem.empty[s]);
    }
    out[t] = sum;
  }
}

struct RoundsSmem {
  ptx::Mbarrier all;
  int values[2][128];
};

// 128 threads meet in each round at one mbarrier, and read what their neighbours wrote. In odd rounds they ask for it
// themselves. Afterwards the memory of the mbarrier is memory again.
__global__ void mbarrier_rounds_kernel(int rounds,
                                       int* out) {  // [rounds + 1, 128]
  auto& smem = device::shared_storage<RoundsSmem>();
  const int t = threadIdx.x;
  if (t == 0) ptx::mbarrier_init(smem.all, 128);
  __syncthreads();  // the mbarrier is there
  for (int round = 0; round < rounds; ++round) {
    smem.values[round % 2][t] = 1000 * round + t;
    ptx::mbarrier_arrive(smem.all);
    if (round % 2 == 0) {
      ptx::mbarrier_wait(smem.all, 0);
    } else {
      while (!ptx::mbarrier_test_wait(smem.all, 1)) {
      }
    }
    out[128 * round + t] = smem.values[round % 2][(t + 1) % 128];
  }
  __syncthreads();  // nobody asks any more
  if (t == 0) {
    ptx::mbarrier_inval(smem.all);
    smem.all.opaque = 5;
  }
  __syncthreads();  // written
  out[128 * rounds + t] = static_cast<int>(smem.all.opaque);
}

__global__ void permute_kernel(int count, std::uint32_t selector, const std::uint32_t* low, const std::uint32_t* high,
                               std::uint32_t* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = ptx::prmt(low[i], high[i], selector);
}
template <class T>
__global__ void larger_or_nan_kernel(int count, const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = ptx::max_nan_x2<T>(a[i], b[i]);
}

template <class T, class To, class From>
std::vector<float> round_trip(const std::vector<float>& values, To to, From from) {
  const int count = static_cast<int>(values.size());
  const runtime::Buffer in = upload("in", values);
  const runtime::Buffer narrow = zeros<std::uint16_t>("narrow", values.size());
  const runtime::Buffer out = zeros<float>("out", values.size());
  const int blocks = device::ceil_div(count, 128);
  launch(to, {blocks, 128}, count, in.as<const float>(), narrow.as<T>());
  launch(from, {blocks, 128}, count, narrow.as<const T>(), out.as<float>());
  return download<float>(out);
}

}  // namespace

std::vector<float> half_round_trip(const std::vector<float>& values) {
  return round_trip<__half>(values, to_half_kernel, from_half_kernel);
}

std::vector<float> bfloat_round_trip(const std::vector<float>& values) {
  return round_trip<__nv_bfloat16>(values, to_bfloat_kernel, from_bfloat_kernel);
}

std::vector<std::uint32_t> permute(const std::vector<std::uint32_t>& low, const std::vector<std::uint32_t>& high,
                                   std::uint32_t selector) {
  const int count = static_cast<int>(low.size());
  const runtime::Buffer first = upload("low", low), second = upload("high", high);
  const runtime::Buffer out = zeros<std::uint32_t>("out", low.size());
  launch(permute_kernel, {device::ceil_div(count, 128), 128}, count, selector, first.as<const std::uint32_t>(),
         second.as<const std::uint32_t>(), out.as<std::uint32_t>());
  return download<std::uint32_t>(out);
}

std::vector<std::uint32_t> larger_or_nan(Operand type, const std::vector<std::uint32_t>& a,
                                         const std::vector<std::uint32_t>& b) {
  const int count = static_cast<int>(a.size());
  const runtime::Buffer first = upload("a", a), second = upload("b", b);
  const runtime::Buffer out = zeros<std::uint32_t>("out", a.size());
  const auto kernel = type == Operand::half ? larger_or_nan_kernel<__half> : larger_or_nan_kernel<__nv_bfloat16>;
  launch(kernel, {device::ceil_div(count, 128), 128}, count, first.as<const std::uint32_t>(), second.as<const std::uint32_t>(),
         out.as<std::uint32_t>());
  return download<std::uint32_t>(out);
}

std::vector<float> vector_copy(const std::vector<float>& values) {
  const int count = static_cast<int>(values.size() / 4);
  const runtime::Buffer in = upload("in", values);
  const runtime::Buffer out = zeros<float>("out", values.size());
  launch(vector_copy_kernel, {device::ceil_div(count, 64), 64}, count, in.as<const float4>(), out.as<float4>());
  return download<float>(out);
}

std::vector<float> predicated_copy(const std::vector<float>& values) {
  const runtime::Buffer in = upload("in", values);
  const runtime::Buffer out = zeros<float>("out", values.size());
  launch(predicated_copy_kernel, {1, 32}, static_cast<int>(values.size()), in.as<const float>(), out.as<float>());
  return download<float>(out);
}

std::vector<std::uint32_t> load_matrices(int matrices, bool transposed, const std::vector<std::uint16_t>& rows,
                                         const std::vector<int>& row_of_lane) {
  const runtime::Buffer in = upload("rows", rows), order = upload("row_of_lane", row_of_lane);
  const runtime::Buffer out = zeros<std::uint32_t>("registers", 32 * static_cast<std::size_t>(matrices));
  const auto run = [&](auto kernel) {
    launch(kernel, {1, 32, sizeof(MatrixSmem)}, static_cast<int>(rows.size() / 8), in.as<const std::uint32_t>(),
           order.as<const int>(), out.as<std::uint32_t>());
  };
  if (matrices == 1) run(transposed ? load_matrices_kernel<1, true> : load_matrices_kernel<1, false>);
  if (matrices == 2) run(transposed ? load_matrices_kernel<2, true> : load_matrices_kernel<2, false>);
  if (matrices == 4) run(transposed ? load_matrices_kernel<4, true> : load_matrices_kernel<4, false>);
  return download<std::uint32_t>(out);
}

std::vector<float> multiply(Operand type, int k, const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
                            const std::vector<float>& c) {
  const runtime::Buffer left = upload("a", a), right = upload("b", b), out = upload("c", c);
  const bool half = type == Operand::half;
  const auto kernel = k == 16 ? (half ? multiply_kernel<__half, 16> : multiply_kernel<__nv_bfloat16, 16>)
                              : (half ? multiply_kernel<__half, 8> : multiply_kernel<__nv_bfloat16, 8>);
  launch(kernel, {1, 32}, left.as<const std::uint32_t>(), right.as<const std::uint32_t>(), out.as<float>());
  return download<float>(out);
}

Multiplied multiply_from(Operand type, const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
                         const std::vector<float>& c) {
  const runtime::Buffer left = upload("a", a), right = upload("b", b), from = upload("c", c), to = zeros<float>("d", c.size());
  const auto kernel = type == Operand::half ? multiply_from_kernel<__half> : multiply_from_kernel<__nv_bfloat16>;
  launch(kernel, {1, 32}, left.as<const std::uint32_t>(), right.as<const std::uint32_t>(), from.as<float>(), to.as<float>());
  return {download<float>(from), download<float>(to)};
}

std::vector<float> chained_products() {
  const runtime::Buffer out = zeros<float>("out", 32 * 22);
  launch(chained_products_kernel, {1, 32}, out.as<float>());
  return download<float>(out);
}

std::vector<std::uint8_t> copy_async(int bytes, bool past_l1, const std::vector<std::uint8_t>& from,
                                     const std::vector<int>& source_bytes) {
  const runtime::Buffer in = upload("from", from), sizes = upload("source_bytes", source_bytes);
  const runtime::Buffer out = zeros<std::uint8_t>("out", source_bytes.size() * static_cast<std::size_t>(bytes));
  const auto kernel = bytes == 4   ? copy_async_kernel<4, false>
                      : bytes == 8 ? copy_async_kernel<8, false>
                      : past_l1    ? copy_async_kernel<16, true>
                                   : copy_async_kernel<16, false>;
  launch(kernel, {1, static_cast<unsigned>(source_bytes.size()), sizeof(CopySmem)}, in.as<const std::uint8_t>(),
         sizes.as<const int>(), out.as<std::uint32_t>());
  return download<std::uint8_t>(out);
}

std::vector<int> copy_groups(const std::vector<int>& values) {
  const runtime::Buffer in = upload("values", values), out = zeros<int>("out", 12);
  launch(copy_groups_kernel, {1, 2, sizeof(GroupsSmem)}, in.as<const int>(), out.as<int>());
  return download<int>(out);
}

std::vector<int> copy_pipeline(const std::vector<int>& tiles) {
  const runtime::Buffer in = upload("tiles", tiles), out = zeros<int>("out", 64);
  launch(copy_pipeline_kernel, {1, 64, sizeof(PipelineSmem)}, static_cast<int>(tiles.size() / 64), in.as<const int>(),
         out.as<int>());
  return download<int>(out);
}

std::vector<int> mbarrier_ring(const std::vector<int>& tiles) {
  const runtime::Buffer in = upload("tiles", tiles), out = zeros<int>("out", 64);
  launch(mbarrier_ring_kernel, {1, 96, sizeof(MbarrierRingSmem)}, static_cast<int>(tiles.size() / 64), in.as<const int>(),
         out.as<int>());
  return download<int>(out);
}

std::vector<int> mbarrier_rounds(int rounds) {
  const runtime::Buffer out = zeros<int>("out", 128 * (static_cast<std::size_t>(rounds) + 1));
  launch(mbarrier_rounds_kernel, {1, 128, sizeof(RoundsSmem)}, rounds, out.as<int>());
  return download<int>(out);
}

std::string printed() {
  std::fflush(stdout);
  std::FILE* file = std::tmpfile();
  const int terminal = dup(STDOUT_FILENO);
  dup2(fileno(file), STDOUT_FILENO);
  launch(print_kernel, {1, 32});
  runtime::synchronize();
  std::fflush(stdout);
  dup2(terminal, STDOUT_FILENO);
  close(terminal);
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text.push_back(static_cast<char>(c));
  std::fclose(file);
  return text;
}

}  // namespace conformance
