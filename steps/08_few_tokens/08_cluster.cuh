// 08_few_tokens, cluster: the blocks that share rows are a cluster, and add their sums through shared memory.
// Predecessor: 07_split_k.cuh
//
// `split_k` writes the sums of all parts to global memory, and starts a second kernel to add them: one to two microseconds,
// where a product takes fifteen. Blocks of a cluster run at the same time and reach each other's shared memory.
//
//   cluster  the blocks that share rows; block number `rank` takes part `rank` of k
//   block    adds the sums of 1 / cluster of its threads, those of numbers rank · share + i, and writes their elements of C
//   thread   sends its sums to the block that adds them
//
//   Smem     ring    as in `ring`
//            parts   [cluster][fragments of a thread][share] four sums each: what every block has sent
//
// What to expect: one to two microseconds less than `split_k`, because neither a launch nor global memory stands between.
#pragma once

#include "common/device/ptx/cluster.cuh"
#include "steps/08_few_tokens/07_split_k.cuh"

namespace few_tokens {

template <class Ring, int cluster_>
struct ClusterTile : Ring {
  static constexpr int cluster = cluster_;
  static constexpr int share = Ring::threads / cluster;  // threads whose sums a block adds
};
using ClusterOf4 = ClusterTile<RingTile<1, 8, 2>, 4>;

template <class W, int TOK, class Tile>
struct ClusterSmem : RingSmem<W, Tile> {
  alignas(16) float4 parts[Tile::cluster][fragments<Tile, TOK>][Tile::share];

  // [doc: cluster_sums]
  // Each thread's sums go to the block that adds them. All blocks of the cluster have begun.
  __device__ void send(const float (&sums)[Tile::groups][TOK / token_block][4]) {
    const int owner = threadIdx.x / Tile::share;
#pragma unroll
    for (int i = 0; i < fragments<Tile, TOK>; ++i) {
      constexpr int blocks = TOK / token_block;
      float4* mine = &parts[ptx::cluster_rank()][i][threadIdx.x % Tile::share];
      store(ptx::in_block(mine, owner), as_vector(sums[i / blocks][i % blocks]));
    }
  }
  // Adds what has come, in the order of k, and writes C.
  __device__ void store_total(const Shape& shape, const Entry& entry, const Epilogue<W>& epilogue, int first_row) const {
    for (int j = threadIdx.x; j < fragments<Tile, TOK> * Tile::share; j += Tile::threads) {
      const int i = j / Tile::share, thread = ptx::cluster_rank() * Tile::share + j % Tile::share;
      float4 total = {};
#pragma unroll
      for (int block = 0; block < Tile::cluster; ++block) total = sum(total, load(&parts[block][i][j % Tile::share]));
      store_fragment(shape, entry, epilogue, first_row + fragment_row<Tile, TOK>(thread, i), fragment_token<TOK>(thread, i),
                     total);
    }
  }
  // [/doc: cluster_sums]
};

// Grid: x over tiles of rows of B times the blocks of a cluster, y and z over the batch. TOK: 8 or 16, m or more. k is a
// multiple of 8, and all rows begin at multiples of 16 bytes.
template <class W, class A, int TOK, class Tile>
__global__ void __launch_bounds__(Tile::threads)
    cluster_product(Shape shape,
                    Matrices<const A> tokens,   // [samples, channels, m, k]
                    Matrices<const W> weights,  // [weight samples, weight channels, n, k]
                    Epilogue<W> epilogue) {
  if (!has_entry(shape)) return;  // all blocks of the cluster
  auto& smem = device::shared_storage<ClusterSmem<W, TOK, Tile>>();
  const Entry entry = entry_of(shape, entry_number());
  const int first_row = blockIdx.x / Tile::cluster * Tile::rows;
  const KRange range = part_of_k(shape.k, Tile::k, ptx::cluster_rank(), Tile::cluster);
  ptx::cluster_arrive_relaxed();
  RingProduct<W, A, TOK, Tile> product(smem, shape, entry, tokens, weights, first_row, range);
  product.request_first_weights();
  product.request_tokens(range.begin);
  product.multiply();
  ptx::cluster_wait();  // all blocks have begun: their shared memory is there
  smem.send(product.sums);
  ptx::cluster_sync();  // all blocks have sent, and nobody reaches into another block any more
  smem.store_total(shape, entry, epilogue, first_row);
}

}  // namespace few_tokens
