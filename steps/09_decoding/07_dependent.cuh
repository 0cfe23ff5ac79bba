// 09_decoding, dependent: keys and values are requested before the launch before has ended.
// Predecessor: 06_cluster.cuh
//
// Between two launches the GPU drains: the last blocks of the first merge, and nothing reads memory, until the blocks of the
// second have begun and their first keys arrive. A dependent launch (step 08, dependent) requests keys and values, and then
// waits for the launch before, which may write Q.
//
//   before the wait   the first stages of K and V. No launch that has not ended may write any of them: these kernels let the
//   next
//                     launch begin at once, so that it may be the launch before, or one before that. A launch that appends to
//                     the cache writes them. Who cannot promise that none does uses `tuned`
//   after it          Q, everything else, and O
//
// In a launch that is not dependent both instructions do nothing.
//
// What to expect: one to three microseconds less at every size, because the first loads of a launch overlap the end of the one
// before.
#pragma once

#include "common/device/ptx/griddepcontrol.cuh"
#include "steps/09_decoding/05_stream_k.cuh"
#include "steps/09_decoding/06_cluster.cuh"

namespace decoding {

// `cluster`, and two instructions more.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads) dependent_cluster(AttentionShape shape, Work work,
                                                                   Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                   Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                   Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                   Outputs<T> outputs) {
  ptx::griddepcontrol_launch_dependents();
  auto& smem = device::shared_storage<ClusterSmem<T, Tile>>();
  const Item item = item_of(work, shape, blockIdx.x / ptx::cluster_size());
  const TileRange tiles = part_of_tiles(item.keys, ptx::cluster_rank(), ptx::cluster_size());
  ptx::cluster_arrive_relaxed();
  // [doc: dependent_wait]
  KeyRing<T, Tile> ring(smem, shape, k, v);
  ring.request_first(item, tiles);
  ptx::griddepcontrol_wait();  // the launch before has ended: what it wrote may be Q
  WarpRows<T, Tile::dim> rows;
  rows.begin(shape, work, item, q);
  // [/doc: dependent_wait]
  ring.attend_all(rows, item, tiles);
  ptx::cluster_wait();  // all blocks have begun: their shared memory is there
  ring.merge(rows, item.rows, [&](int row, int column, const SoftmaxState& state, const float4& o) {
    smem.send(item.rows, row, column, state, o);
  });
  ptx::cluster_sync();  // all blocks have sent, and nobody reaches into another block any more
  smem.merge_sent(shape, work, item, outputs);
}

// `stream_k`, and two instructions more.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads) dependent_stream(AttentionShape shape, Work work,
                                                                  Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                  Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                  Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                  Stream stream, Parts<Tile::dim> parts, Outputs<T> outputs) {
  ptx::griddepcontrol_launch_dependents();
  walk(device::shared_storage<RingSmem<T, Tile>>(), shape, work, q, k, v, stream, parts, outputs,
       [] { ptx::griddepcontrol_wait(); });  // the launch before has ended: what it wrote may be Q
}

// `fix_seams`, and two instructions more.
template <class T, int dim>
__global__ void dependent_seams(AttentionShape shape, Work work, Stream stream, int blocks, Parts<dim> parts,
                                Outputs<T> outputs) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();  // the parts are there
  fix_seam(blockIdx.x, blocks, shape, work, stream, parts, outputs);
}

}  // namespace decoding
