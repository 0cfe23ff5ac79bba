// Small kernels that must do the same on a GPU and on the simulator. Each function launches one and returns what it stored.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace conformance {

// For each thread of a 3-D launch: threadIdx, blockIdx, blockDim, gridDim, 12 numbers.
std::vector<unsigned> builtins(unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z);

enum class Shuffle { index, up, down, butterfly };
// One warp; lane l holds 1000 + l. Lanes outside the mask do not call and return 0.
std::vector<int> shuffle(Shuffle mode, unsigned mask, int operand, int width);
std::vector<double> shuffle_doubles(unsigned mask);  // lane l gets lane l ^ 1's value, l + 0.25

struct Votes {
  std::vector<unsigned> ballot;
  std::vector<int> any, all;
};
// Lane l votes bit l of `predicates`. Lanes outside the mask do not call and return 0.
Votes votes(unsigned mask, unsigned predicates);

std::vector<float> block_sum(const std::vector<float>& values, int threads);  // one block; barriers and a tree
// In round r thread voters[r] votes true, if there is one, and everyone keeps what __syncthreads_or() says: [rounds, threads].
std::vector<int> block_votes(int threads, const std::vector<int>& voters);
std::vector<int> warp_transpose();               // 32 × 32 through shared memory, __syncwarp
std::vector<int> producer_consumer(int rounds);  // one warp fills, one adds up: bar.sync and bar.arrive on two barriers
std::vector<int> divergent_loops();              // nested loops of different lengths, then a vote
std::vector<unsigned> histogram(const std::vector<unsigned>& values, unsigned bins);         // global atomicAdd
std::vector<unsigned> shared_histogram(const std::vector<unsigned>& values, unsigned bins);  // shared atomicAdd, then global
std::vector<int> integer_atomics(int threads);    // max, min, or, and, exch-sum, cas-count
float atomic_float_sum(int blocks, int threads);  // each thread adds 1
int locked_increments(int blocks);                // a lock by atomicCAS, taken by one thread of each block
int last_block_sum(int blocks);                   // every block stores a value; the last one to finish adds them up
int flag_chain(int blocks);  // block b waits until block b + 1 has set a flag: needs several blocks at once
std::vector<float> half_round_trip(const std::vector<float>& values);    // through __half, 16-bit load and store
std::vector<float> bfloat_round_trip(const std::vector<float>& values);  // through __nv_bfloat16
std::vector<float> vector_copy(const std::vector<float>& values);        // by float4
// 1 + each value, or 1 + 0 where (i / 32) % 3 is not i % 32 % 3: those loads are not made.
std::vector<float> predicated_copy(const std::vector<float>& values);

// ldmatrix by one warp. `rows` is [n, 8]; lane l gives the address of row row_of_lane[l]. Returns registers: [32, matrices].
std::vector<std::uint32_t> load_matrices(int matrices, bool transposed, const std::vector<std::uint16_t>& rows,
                                         const std::vector<int>& row_of_lane);
// mma.sync m16n8k8 or m16n8k16 by one warp, on registers: a [32, k / 4], b [32, k / 8], c [32, 4]. Returns the new c.
enum class Operand { half, bfloat };
std::vector<float> multiply(Operand type, int k, const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
                            const std::vector<float>& c);
// The same m16n8k16, with D apart from C.
struct Multiplied {
  std::vector<float> c, d;  // afterwards
};
Multiplied multiply_from(Operand type, const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
                         const std::vector<float>& c);
// m16n8k16 of ones, so that each adds 16, on numbers that begin at 10 · lane + i. Of each lane: 4 sums of 151 products; 4
// that branch off before the last of these, with a product of their own; 6 of which a product takes the first four, and the
// next one the last four; 4 of one product, where the second is −1 afterwards; 4 of one product, read as volatile. Returns
// [32, 22].
std::vector<float> chained_products();
// prmt of low and high, and max.NaN of them as two 16-bit numbers each: one for each word.
std::vector<std::uint32_t> permute(const std::vector<std::uint32_t>& low, const std::vector<std::uint32_t>& high,
                                   std::uint32_t selector);
std::vector<std::uint32_t> larger_or_nan(Operand type, const std::vector<std::uint32_t>& a,
                                         const std::vector<std::uint32_t>& b);
// cp.async: thread t copies `bytes` bytes from 16 t on, of which it reads source_bytes[t]; then it reads its neighbour's
// (t ^ 1). Past L1 only 16 bytes can go. Returns [threads, bytes].
std::vector<std::uint8_t> copy_async(int bytes, bool past_l1, const std::vector<std::uint8_t>& from,
                                     const std::vector<int>& source_bytes);
// Each of two threads copies six numbers: one in each of five groups, of which the third is empty, and two that it does not
// commit. It waits until 4, 3, … 0 groups are under way, then for all; after each wait it reads what must have come. Of the
// empty group that is the sum of the first two, of the last wait the sum of the last two. Returns [2, 6].
std::vector<int> copy_groups(const std::vector<int>& values);
// Tiles of 64 numbers, copied three stages ahead by 64 threads; each thread adds up what lies opposite in the tile. Returns
// [64].
std::vector<int> copy_pipeline(const std::vector<int>& tiles);

// The same by warps of their own: one copies, and its copies arrive at mbarriers; two add up, and arrive at others when they
// have left a stage. Returns [64].
std::vector<int> mbarrier_ring(const std::vector<int>& tiles);
// 128 threads meet at an mbarrier: in round r, thread t reads 1000 r + (t + 1) % 128. At last all read a 5. Returns [rounds +
// 1, 128].
std::vector<int> mbarrier_rounds(int rounds);

// ---- conformance_kernels.sm_90.cu: a device below compute capability 9.0 has no kernels for these ----

// stmatrix.x4 by one warp into 64 rows of 8 elements, all ones before. `registers` is [32, 4]; lane l gives the address of row
// row_of_lane[l]. Returns the rows: [64, 8].
std::vector<std::uint16_t> store_matrices(bool transposed, const std::vector<std::uint32_t>& registers,
                                          const std::vector<int>& row_of_lane);
// stmatrix.x4 by the first of two warps, a barrier, ldmatrix.x4 of the same rows by the second one. Returns its registers: [32,
// 4].
std::vector<std::uint32_t> matrices_there_and_back(bool stored_transposed, bool loaded_transposed,
                                                   const std::vector<std::uint32_t>& registers);
// stmatrix.x4 of four matrices that lie side by side in rows of 128 bytes, by one warp: in the order of the columns, or each
// chunk of 16 bytes at chunk ^ (row % 8). Returns what a plain read finds: [8, 64] 16-bit elements, register m of lane l at its
// place.
std::vector<std::uint16_t> store_rows(bool swizzled, const std::vector<std::uint32_t>& registers);
// red.add of 1, 2 or 4 floats: thread t of blocks of 64 adds values[width t …] to the sums at width × slot_of_thread[t]. All
// sums are 0 before. Returns [slots, width].
std::vector<float> reduce(int width, int slots, const std::vector<float>& values, const std::vector<int>& slot_of_thread);

// As mbarrier_ring(), where one thread asks for bulk copies of whole tiles.
std::vector<int> bulk_ring(const std::vector<int>& tiles);
// Tile i has 100 i + t at [i, t], copied from two buffers in a group of its own; but if i % 3 is 2, it stays 0. And the first
// numbers of all, as they are read behind a wait.
struct BulkStores {
  std::vector<int> tiles;  // [tiles, 64]
  std::vector<int> first;  // [tiles]
};
BulkStores bulk_stores(int tiles);
std::vector<int> bulk_there_and_back(const std::vector<int>& values);  // [4, 64], the same

// Blocks that wait for all others of their cluster, with so much shared memory that a device holds one on a multiprocessor.
// `together`: launched in clusters. Returns how many of its cluster each block saw: [blocks of the grid].
std::vector<int> meet_in_clusters(std::array<unsigned, 3> grid, std::array<unsigned, 3> cluster, bool together = true);

// Of each block its rank in its cluster, and the cluster's size: [blocks, 2].
std::vector<int> cluster_ranks(std::array<unsigned, 3> grid, std::array<unsigned, 3> cluster);
// Each block's 64 numbers begin as 100 · block + i. In each round they become those of the next block of the cluster's next
// one: they go by way of the next block, which fetches them from its next one. In rounds 0, 2, … reversed and 1 more; in rounds
// 1, 3, … in reversed groups of four, of which the first number is `round` more. Returns [blocks, 64].
std::vector<int> cluster_ring(unsigned blocks, unsigned cluster, int rounds);
// The sum and the largest (at least 0) of each cluster's values, by atomics on its first block's shared memory: [clusters, 2].
std::vector<int> cluster_sums(unsigned blocks, unsigned cluster, const std::vector<int>& values);
// Thread t begins with 0. In each round it takes what thread t ^ 33 has, and adds the round, and round + rank + 63 − t of each
// block of the cluster. Returns [blocks, 64].
std::vector<int> cluster_split(unsigned blocks, unsigned cluster, int rounds);
// Threads 0 to 31 and 80 to 95 of all blocks but each cluster's last one are slots 0 to 47. Each gets 47 − slot and the rank
// before it, of the blocks that are left; and 10 · the rank behind it, and its slot. The others end at once. Returns [blocks,
// 96].
std::vector<int> cluster_some_end(unsigned blocks, unsigned cluster);

// So many launches, of which each may begin before the one before it has ended. At first number i is i; each launch turns the
// order of all numbers round, makes each three times as large, and adds addends[i]. Multiples of 64 · cluster.
std::vector<int> dependent_launches(unsigned cluster, int launches, const std::vector<int>& addends);

std::string printed();  // what a kernel printed: "thread 0: 0.5\n" … for four threads

}  // namespace conformance
