// 09_decoding, cluster: the blocks that share an item are a cluster, and merge through shared memory.
// Predecessor: 03_split_kv.cuh
//
// `split_kv` writes its parts to global memory and starts a second kernel. Blocks of a cluster run at the same time and reach
// each other's shared memory (step 08, cluster): each sends what it has found to the blocks that merge it.
//
//   cluster  an item; block `rank` takes part `rank` of its tiles
//   block    merges 1 / cluster of O's elements, for all blocks
//
//   Smem     ring, states  as in `warp_rings`
//            parts         [cluster · share] four elements of O each, share = rows · dim / 4 / cluster
//            block_states  [cluster][16] (m, l) of every block
//
// What to expect: `split_kv` less two microseconds, because neither a launch nor global memory stands between: 1 × 4,096 keys
// with 64 blocks of 132 SMs.
#pragma once

#include "common/device/ptx/cluster.cuh"
#include "steps/09_decoding/03_split_kv.cuh"

namespace decoding {

constexpr int most_cluster = 8;  // blocks; dim / 4 is a multiple of it

template <class T, class Tile>
struct ClusterSmem : RingSmem<T, Tile> {
  alignas(16) float4 parts[item_rows * Tile::dim / 4];
  SoftmaxState block_states[most_cluster][item_rows];

  // [doc: cluster_merge]
  // Sends four columns of a row to the block that merges them, and the row's state to all. All blocks of the cluster have
  // begun.
  __device__ void send(int rows, int row, int column, const SoftmaxState& state, const float4& part) {
    const int blocks = ptx::cluster_size(), rank = ptx::cluster_rank(), share = rows * (Tile::dim / 4) / blocks;
    const int i = (row * Tile::dim + column) / 4, owner = i / share;
    store(ptx::in_block(&parts[rank * share + i - owner * share], owner), part);
    if (column > 0) return;
    for (int block = 0; block < blocks; ++block) store(ptx::in_block(&block_states[rank][row], block), state);
  }
  // Merges what has come, in the order of the keys.
  template <class T2>
  __device__ void merge_sent(const AttentionShape& shape, const Work& work, const Item& item,
                             const Outputs<T2>& outputs) const {
    const int blocks = ptx::cluster_size(), share = item.rows * (Tile::dim / 4) / blocks;
    for (int j = threadIdx.x; j < share; j += Tile::threads) {
      const int i = ptx::cluster_rank() * share + j, row = i / (Tile::dim / 4), column = i % (Tile::dim / 4) * 4;
      const Merged all = merged(
          blocks, [&](int block) { return &block_states[block][row]; }, [&](int block) { return &parts[block * share + j]; });
      outputs.store_row(shape, work, item, row, column, all.state, all.o);
    }
  }
  // [/doc: cluster_merge]
};

// Grid: over items and, within, over the blocks of a cluster, 2, 4 or 8. Blocks of Tile::threads.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads) cluster(AttentionShape shape, Work work,
                                                         Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                         Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                         Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                         Outputs<T> outputs) {
  auto& smem = device::shared_storage<ClusterSmem<T, Tile>>();
  const Item item = item_of(work, shape, blockIdx.x / ptx::cluster_size());
  const TileRange tiles = part_of_tiles(item.keys, ptx::cluster_rank(), ptx::cluster_size());
  ptx::cluster_arrive_relaxed();
  KeyRing<T, Tile> ring(smem, shape, k, v);
  ring.request_first(item, tiles);
  WarpRows<T, Tile::dim> rows;
  rows.begin(shape, work, item, q);
  ring.attend_all(rows, item, tiles);
  ptx::cluster_wait();  // all blocks have begun: their shared memory is there
  ring.merge(rows, item.rows, [&](int row, int column, const SoftmaxState& state, const float4& o) {
    smem.send(item.rows, row, column, state, o);
  });
  ptx::cluster_sync();  // all blocks have sent, and nobody reaches into another block any more
  smem.merge_sent(shape, work, item, outputs);
}

}  // namespace decoding
