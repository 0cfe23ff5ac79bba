// Of the conformance kernels those with instructions that begin with compute capability 9.0.
#include <numeric>

#include "common/device/dialect.h"
#include "common/device/ptx/bulk.cuh"
#include "common/device/ptx/cluster.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/red.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"
#include "tests/simt/conformance_buffers.h"
#include "tests/simt/conformance_kernels.h"

namespace conformance {
namespace {

using runtime::launch;

__global__ void dependent_kernel(int count, const int* addends,  // [count], which no launch stores
                                 const int* from,                // [count]
                                 int* to) {                      // [count], from which the launch before has read
  const int i = 64 * blockIdx.x + threadIdx.x;
  const int addend = addends[i];
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  to[i] = 3 * from[count - 1 - i] + addend;
}

constexpr int matrix_rows = 64;

struct MatrixSmem {
  alignas(16) std::uint32_t rows[matrix_rows][4];
};

template <bool transposed>
__global__ void store_matrices_kernel(const std::uint32_t* registers,  // [32, 4]
                                      const int* row_of_lane,          // [32]
                                      std::uint32_t* rows) {           // [matrix_rows, 4]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int lane = threadIdx.x;
  for (int i = lane; i < 4 * matrix_rows; i += 32) smem.rows[i / 4][i % 4] = 0xffffffffu;
  __syncwarp();  // the rows are filled before some of them are written again
  std::uint32_t r[4];
  for (int m = 0; m < 4; ++m) r[m] = registers[4 * lane + m];
  void* const row = smem.rows[row_of_lane[lane]];
  if constexpr (transposed) {
    ptx::stmatrix_x4_trans(row, r);
  } else {
    ptx::stmatrix_x4(row, r);
  }
  __syncwarp();  // the matrices are written
  for (int i = lane; i < 4 * matrix_rows; i += 32) rows[i] = smem.rows[i / 4][i % 4];
}

template <bool stored_transposed, bool loaded_transposed>
__global__ void there_and_back_kernel(const std::uint32_t* in,  // [32, 4]
                                      std::uint32_t* out) {     // [32, 4]
  auto& smem = device::shared_storage<MatrixSmem>();
  const int lane = threadIdx.x % 32;
  std::uint32_t r[4];
  if (threadIdx.x < 32) {
    for (int m = 0; m < 4; ++m) r[m] = in[4 * lane + m];
    if constexpr (stored_transposed) {
      ptx::stmatrix_x4_trans(smem.rows[lane], r);
    } else {
      ptx::stmatrix_x4(smem.rows[lane], r);
    }
  }
  __syncthreads();  // the matrices are written before the other warp reads them
  if (threadIdx.x >= 32) {
    if constexpr (loaded_transposed) {
      ptx::ldmatrix_x4_trans(r, smem.rows[lane]);
    } else {
      ptx::ldmatrix_x4(r, smem.rows[lane]);
    }
    for (int m = 0; m < 4; ++m) out[4 * lane + m] = r[m];
  }
}

struct WideSmem {
  alignas(16) std::uint32_t rows[8][32];  // of 128 bytes: all banks
};

template <bool swizzled>
__global__ void store_rows_kernel(const std::uint32_t* registers,  // [32, 4]
                                  std::uint32_t* out) {            // [8, 32]
  auto& smem = device::shared_storage<WideSmem>();
  const int lane = threadIdx.x;
  for (int i = lane; i < 8 * 32; i += 32) smem.rows[i / 32][i % 32] = 0xffffffffu;
  __syncwarp();  // the rows are filled before the first half of each is written again
  std::uint32_t r[4];
  for (int m = 0; m < 4; ++m) r[m] = registers[4 * lane + m];
  const auto chunk_at = [](int row, int chunk) { return swizzled ? chunk ^ row : chunk; };
  ptx::stmatrix_x4(&smem.rows[lane % 8][4 * chunk_at(lane % 8, lane / 8)], r);
  __syncwarp();  // the matrices are written
  for (int row = 0; row < 8; ++row) out[32 * row + lane] = smem.rows[row][4 * chunk_at(row, lane / 4) + lane % 4];
}

template <int width>
__global__ void reduce_kernel(int count,
                              const float* values,        // [count, width]
                              const int* slot_of_thread,  // [count]
                              float* sums) {              // [slots, width]
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= count) return;
  const float* const mine = values + width * thread;
  float* const to = sums + width * slot_of_thread[thread];
  if constexpr (width == 1) ptx::red_add_f32(to, mine[0]);
  if constexpr (width == 2) ptx::red_add_v2_f32(to, mine[0], mine[1]);
  if constexpr (width == 4) ptx::red_add_v4_f32(to, mine[0], mine[1], mine[2], mine[3]);
}

constexpr int stages = 3;

struct BulkRingSmem {
  ptx::Mbarrier full[stages], empty[stages];
  alignas(16) int stage[stages][64];
};

// Thread 0 of warp 0 copies tiles into a ring of stages; warps 1 and 2 add them up.
__global__ void bulk_ring_kernel(int tiles,
                                 const int* in,  // [tiles, 64]
                                 int* out) {     // [64]
  auto& smem = device::shared_storage<BulkRingSmem>();
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      ptx::mbarrier_init(smem.full[s], 1);
      ptx::mbarrier_init(smem.empty[s], 64);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the mbarriers are there
  if (threadIdx.x < 32) {
    if (threadIdx.x != 0) return;
    for (int tile = 0; tile < tiles; ++tile) {
      const int s = tile % stages;
      ptx::mbarrier_wait(smem.empty[s], (tile / stages + 1) % 2);  // of the first tiles at once: nobody has to leave
      ptx::mbarrier_arrive_expect_tx(smem.full[s], sizeof(smem.stage[s]));
      ptx::bulk_load(smem.stage[s], &in[64 * tile], sizeof(smem.stage[s]), smem.full[s]);
    }
  } else {
    const int t = threadIdx.x - 32;
    int sum = 0;
    for (int tile = 0; tile < tiles; ++tile) {
      const int s = tile % stages;
      if (t % 2 == 0) {
        ptx::mbarrier_wait(smem.full[s], tile / stages % 2);
      } else {
        while (!ptx::mbarrier_try_wait(smem.full[s], tile / stages % 2)) {
        }
      }
      sum += (tile + 1) * smem.stage[s][63 - t];
      ptx::mbarrier_arrive(smem.empty[s]);
    }
    out[t] = sum;
  }
}

constexpr int buffers = 2;

struct BulkStoreSmem {
  alignas(16) int rows[buffers][64];
};

// Each tile is made in one of two buffers, and copied from there in a group of its own; the buffer is free when that group has
// read it. Tile i is empty if i % 3 is 2: its group is, too. The first numbers of all tiles are read back in the end.
__global__ void bulk_stores_kernel(int tiles,
                                   int* out,      // [tiles, 64]
                                   int* first) {  // [tiles]
  auto& smem = device::shared_storage<BulkStoreSmem>();
  const int t = threadIdx.x;
  for (int tile = 0; tile < tiles; ++tile) {
    int* const row = smem.rows[tile % buffers];
    if (t == 0) ptx::bulk_wait_group_read<buffers - 1>();
    __syncthreads();  // the buffer is free
    row[t] = 100 * tile + t;
    ptx::fence_proxy_async();
    __syncthreads();  // the row is there, and copies see it
    if (t == 0) {
      if (tile % 3 != 2) {
        ptx::bulk_store(&out[64 * tile], row, 128);
        ptx::bulk_store(&out[64 * tile + 32], row + 32, 128);
      }
      ptx::bulk_commit_group();
    }
  }
  if (t == 0) ptx::bulk_wait_group<0>();
  __syncthreads();  // all rows have come
  for (int tile = t; tile < tiles; tile += 64) first[tile] = out[64 * tile];
}

// From device memory through shared memory and back by copies alone; several of them for one phase.
__global__ void bulk_there_and_back_kernel(const int* in,  // [4, 64]
                                           int* out) {     // [4, 64]
  auto& smem = device::shared_storage<BulkRingSmem>();
  if (threadIdx.x != 0) return;
  ptx::mbarrier_init(smem.full[0], 1);
  ptx::fence_mbarrier_init();
  for (int round = 0; round < 2; ++round) {
    ptx::mbarrier_expect_tx(smem.full[0], 256);
    for (int s = 0; s < 2; ++s) ptx::bulk_load(smem.stage[s], &in[64 * (2 * round + s)], 256, smem.full[0]);
    ptx::mbarrier_arrive_expect_tx(smem.full[0], 256);
    ptx::mbarrier_wait(smem.full[0], round % 2);
    for (int s = 0; s < 2; ++s) ptx::bulk_store(&out[64 * (2 * round + s)], smem.stage[s], 256);
    ptx::bulk_commit_group();
    ptx::bulk_wait_group_read<0>();
  }
}

// One of its blocks writes that it has come, and then waits for all others of its cluster.
__global__ void meet_in_clusters_kernel(uint3 cluster, int* arrived,  // [clusters]
                                        int* seen) {                  // [blocks]
  if (threadIdx.x != 0) return;
  const unsigned x = blockIdx.x / cluster.x, y = blockIdx.y / cluster.y, z = blockIdx.z / cluster.z;
  int* const of_mine = arrived + (z * (gridDim.y / cluster.y) + y) * (gridDim.x / cluster.x) + x;
  atomicAdd(of_mine, 1);
  int all;
  do {
    all = atomicAdd(of_mine, 0);
  } while (all < static_cast<int>(cluster.x * cluster.y * cluster.z));
  seen[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = all;
}

__device__ int linear_block() { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }

__global__ void ranks_kernel(int* out) {  // [blocks, 2]
  if (threadIdx.x != 0) return;
  out[2 * linear_block()] = ptx::cluster_rank();
  out[2 * linear_block() + 1] = ptx::cluster_size();
}

struct RingSmem {
  alignas(16) int mine[64];
  alignas(16) int given[64];
};

// In each round every block fetches from the next one and gives to the one before.
__global__ void ring_kernel(int rounds, int* out) {  // [blocks, 64]
  auto& smem = device::shared_storage<RingSmem>();
  const int t = threadIdx.x, rank = ptx::cluster_rank(), size = ptx::cluster_size();
  const int* const next = ptx::in_block(smem.mine, (rank + 1) % size);
  int* const given = ptx::in_block(smem.given, (rank + size - 1) % size);
  smem.mine[t] = 100 * blockIdx.x + t;
  for (int round = 0; round < rounds; ++round) {
    ptx::cluster_sync();  // the numbers are there before the block before fetches them
    if (round % 2 == 0) {
      given[t] = next[63 - t] + 1;
    } else if (t < 16) {
      int4 four = device::load(reinterpret_cast<const int4*>(&next[4 * t]));
      four.x += round;
      device::store(reinterpret_cast<int4*>(&given[60 - 4 * t]), four);
    }
    ptx::cluster_sync();  // all is fetched and given
    smem.mine[t] = smem.given[t];
  }
  out[64 * blockIdx.x + t] = smem.mine[t];
}

struct SumSmem {
  int sum;
  int largest;
};

__global__ void sum_by_clusters_kernel(const int* values,  // [threads]
                                       int* out) {         // [clusters, 2]
  auto& smem = device::shared_storage<SumSmem>();
  const int rank = ptx::cluster_rank(), size = ptx::cluster_size();
  if (rank == 0 && threadIdx.x == 0) smem.sum = smem.largest = 0;
  ptx::cluster_sync();  // the first block's numbers are 0 before others add to them
  const int value = values[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(ptx::in_block(&smem.sum, 0), value);
  atomicMax(ptx::in_block(&smem.largest, 0), value);
  ptx::cluster_sync();  // all have added
  if (rank == 0 && threadIdx.x == 0) {
    out[2 * (blockIdx.x / size)] = smem.sum;
    out[2 * (blockIdx.x / size) + 1] = smem.largest;
  }
}

struct SplitSmem {
  int values[64];
  int own[64];
};

// Between arriving and waiting each block works on memory of its own, and has barriers of its own.
__global__ void split_kernel(int rounds, int* out) {  // [blocks, 64]
  auto& smem = device::shared_storage<SplitSmem>();
  const int t = threadIdx.x, rank = ptx::cluster_rank(), size = ptx::cluster_size();
  int sum = 0;
  for (int round = 0; round < rounds; ++round) {
    smem.values[t] = round + rank + t;
    ptx::cluster_arrive();
    smem.own[t] = sum;
    __syncthreads();  // the block's own numbers are there
    sum = smem.own[t ^ 33];
    ptx::cluster_wait();  // the numbers of all blocks are there
    for (int other = 0; other < size; ++other) sum += ptx::in_block(&smem.values[63 - t], other)[0];
    ptx::cluster_arrive();
    sum += round;
    ptx::cluster_wait();  // all have read before the next round, or the end
  }
  out[64 * blockIdx.x + t] = sum;
}

// The last block of each cluster ends at once; of the others the second warp, and half of the third one.
__global__ void some_end_kernel(int* out) {  // [blocks, 96]
  auto& smem = device::shared_storage<RingSmem>();
  const int t = threadIdx.x, rank = ptx::cluster_rank(), left = ptx::cluster_size() - 1;
  if (rank == left || (t >= 32 && t < 80)) return;
  const int slot = t < 32 ? t : t - 48;
  smem.mine[slot] = 10 * rank + slot;
  ptx::cluster_arrive_relaxed();  // that all have begun is all that this one says
  ptx::cluster_wait();
  ptx::in_block(smem.given, (rank + 1) % left)[slot] = slot + rank;
  ptx::cluster_sync();  // what was given is there
  out[96 * blockIdx.x + t] = smem.given[47 - slot] + ptx::in_block(smem.mine, (rank + 1) % left)[slot];
  ptx::cluster_sync();  // all have read before one ends
}

}  // namespace

std::vector<int> cluster_ranks(std::array<unsigned, 3> grid, std::array<unsigned, 3> cluster) {
  const runtime::Buffer out = zeros<int>("out", std::size_t{2} * grid[0] * grid[1] * grid[2]);
  launch(ranks_kernel,
         {.grid = dim3(grid[0], grid[1], grid[2]), .block = 32, .cluster = dim3(cluster[0], cluster[1], cluster[2])},
         out.as<int>());
  return download<int>(out);
}

std::vector<int> cluster_ring(unsigned blocks, unsigned cluster, int rounds) {
  const runtime::Buffer out = zeros<int>("out", std::size_t{64} * blocks);
  launch(ring_kernel, {.grid = blocks, .block = 64, .shared_bytes = sizeof(RingSmem), .cluster = cluster}, rounds,
         out.as<int>());
  return download<int>(out);
}

std::vector<int> cluster_sums(unsigned blocks, unsigned cluster, const std::vector<int>& values) {
  const runtime::Buffer in = upload("values", values), out = zeros<int>("out", 2 * (blocks / cluster));
  launch(sum_by_clusters_kernel,
         {.grid = blocks,
          .block = static_cast<unsigned>(values.size()) / blocks,
          .shared_bytes = sizeof(SumSmem),
          .cluster = cluster},
         in.as<const int>(), out.as<int>());
  return download<int>(out);
}

std::vector<int> cluster_split(unsigned blocks, unsigned cluster, int rounds) {
  const runtime::Buffer out = zeros<int>("out", std::size_t{64} * blocks);
  launch(split_kernel, {.grid = blocks, .block = 64, .shared_bytes = sizeof(SplitSmem), .cluster = cluster}, rounds,
         out.as<int>());
  return download<int>(out);
}

std::vector<int> dependent_launches(unsigned cluster, int launches, const std::vector<int>& addends) {
  const int count = static_cast<int>(addends.size());
  std::vector<int> numbers(addends.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  const runtime::Buffer added = upload("addends", addends);
  const runtime::Buffer two[] = {upload("even", numbers), zeros<int>("odd", numbers.size())};
  for (int i = 0; i < launches; ++i) {
    launch(dependent_kernel, {.grid = device::ceil_div(count, 64), .block = 64, .cluster = cluster, .dependent = true}, count,
           added.as<const int>(), two[i % 2].as<const int>(), two[(i + 1) % 2].as<int>());
  }
  return download<int>(two[launches % 2]);
}

std::vector<int> cluster_some_end(unsigned blocks, unsigned cluster) {
  const runtime::Buffer out = zeros<int>("out", std::size_t{96} * blocks);
  launch(some_end_kernel, {.grid = blocks, .block = 96, .shared_bytes = sizeof(RingSmem), .cluster = cluster}, out.as<int>());
  return download<int>(out);
}

std::vector<int> meet_in_clusters(std::array<unsigned, 3> grid, std::array<unsigned, 3> cluster, bool together) {
  const dim3 blocks(grid[0], grid[1], grid[2]), of_cluster(cluster[0], cluster[1], cluster[2]);
  const std::size_t count = std::size_t{blocks.x} * blocks.y * blocks.z;
  const runtime::Buffer arrived = zeros<int>("arrived", count), seen = zeros<int>("seen", count);
  launch(meet_in_clusters_kernel,
         {.grid = blocks, .block = 32, .shared_bytes = 200 * 1024, .cluster = together ? of_cluster : dim3()},
         static_cast<uint3>(of_cluster), arrived.as<int>(), seen.as<int>());
  return download<int>(seen);
}

std::vector<int> bulk_ring(const std::vector<int>& tiles) {
  const runtime::Buffer in = upload("tiles", tiles), out = zeros<int>("out", 64);
  launch(bulk_ring_kernel, {1, 96, sizeof(BulkRingSmem)}, static_cast<int>(tiles.size() / 64), in.as<const int>(),
         out.as<int>());
  return download<int>(out);
}

BulkStores bulk_stores(int tiles) {
  const runtime::Buffer out = zeros<int>("out", 64 * static_cast<std::size_t>(tiles));
  const runtime::Buffer first = zeros<int>("first", static_cast<std::size_t>(tiles));
  launch(bulk_stores_kernel, {1, 64, sizeof(BulkStoreSmem)}, tiles, out.as<int>(), first.as<int>());
  return {download<int>(out), download<int>(first)};
}

std::vector<int> bulk_there_and_back(const std::vector<int>& values) {
  const runtime::Buffer in = upload("values", values), out = zeros<int>("out", values.size());
  launch(bulk_there_and_back_kernel, {1, 32, sizeof(BulkRingSmem)}, in.as<const int>(), out.as<int>());
  return download<int>(out);
}

std::vector<std::uint16_t> store_matrices(bool transposed, const std::vector<std::uint32_t>& registers,
                                          const std::vector<int>& row_of_lane) {
  const runtime::Buffer in = upload("registers", registers), order = upload("row_of_lane", row_of_lane);
  const runtime::Buffer out = zeros<std::uint16_t>("rows", 8 * matrix_rows);
  launch(transposed ? store_matrices_kernel<true> : store_matrices_kernel<false>, {1, 32, sizeof(MatrixSmem)},
         in.as<const std::uint32_t>(), order.as<const int>(), out.as<std::uint32_t>());
  return download<std::uint16_t>(out);
}

std::vector<std::uint32_t> matrices_there_and_back(bool stored_transposed, bool loaded_transposed,
                                                   const std::vector<std::uint32_t>& registers) {
  const runtime::Buffer in = upload("registers", registers), out = zeros<std::uint32_t>("out", registers.size());
  const auto kernel = stored_transposed
                          ? (loaded_transposed ? there_and_back_kernel<true, true> : there_and_back_kernel<true, false>)
                          : (loaded_transposed ? there_and_back_kernel<false, true> : there_and_back_kernel<false, false>);
  launch(kernel, {1, 64, sizeof(MatrixSmem)}, in.as<const std::uint32_t>(), out.as<std::uint32_t>());
  return download<std::uint32_t>(out);
}

std::vector<std::uint16_t> store_rows(bool swizzled, const std::vector<std::uint32_t>& registers) {
  const runtime::Buffer in = upload("registers", registers), out = zeros<std::uint16_t>("rows", 8 * 64);
  launch(swizzled ? store_rows_kernel<true> : store_rows_kernel<false>, {1, 32, sizeof(WideSmem)}, in.as<const std::uint32_t>(),
         out.as<std::uint32_t>());
  return download<std::uint16_t>(out);
}

std::vector<float> reduce(int width, int slots, const std::vector<float>& values, const std::vector<int>& slot_of_thread) {
  const runtime::Buffer in = upload("values", values), order = upload("slot_of_thread", slot_of_thread);
  const runtime::Buffer sums = zeros<float>("sums", static_cast<std::size_t>(slots * width));
  const int count = static_cast<int>(slot_of_thread.size());
  const auto kernel = width == 1 ? reduce_kernel<1> : width == 2 ? reduce_kernel<2> : reduce_kernel<4>;
  launch(kernel, {device::ceil_div(count, 64), 64}, count, in.as<const float>(), order.as<const int>(), sums.as<float>());
  return download<float>(sums);
}

}  // namespace conformance
