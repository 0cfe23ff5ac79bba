// 08_few_tokens, dependent: weights are requested before the launch before has ended.
// Predecessor: 08_cluster.cuh
//
// In a model one product follows another. Between two launches the GPU drains: the last blocks of the first add their sums, and
// nothing reads memory, until the blocks of the second have begun and their first weights arrive. That is one to two
// microseconds, of the 2.5 that 896 × 896 takes.
//
// A dependent launch may begin as soon as all blocks of the launch before have said griddepcontrol.launch_dependents (or have
// ended) and there is room on the SMs. griddepcontrol.wait then waits until that launch has ended, and all that it wrote can be
// seen. Nobody but the model's author knows what the launch before writes: here it may be the tokens, and it may still read our
// C; it must not be the weights. So:
//
//   before the wait   the first weights, to registers (`row_groups`) or to the rings (`cluster`)
//   after it          the tokens, everything else, and C
//
// In a launch that is not dependent both instructions do nothing.
//
// What to expect: one to two microseconds less at every size, because the first loads of a launch overlap the end of the one
// before.
#pragma once

#include "common/device/ptx/griddepcontrol.cuh"
#include "steps/08_few_tokens/05_row_groups.cuh"
#include "steps/08_few_tokens/08_cluster.cuh"

namespace few_tokens {

// `row_groups_product`, and two instructions more.
template <class W, class A, int TOK, class Tile>
__global__ void __launch_bounds__(Tile::threads)
    dependent_row_groups(Shape shape,
                         Matrices<const A> tokens,   // [samples, channels, m, k]
                         Matrices<const W> weights,  // [weight samples, weight channels, n, k]
                         Epilogue<W> epilogue) {
  ptx::griddepcontrol_launch_dependents();
  if (!has_entry(shape)) return;
  auto& smem = device::shared_storage<RowSmem<Tile, TOK>>();
  const Entry entry = entry_of(shape, entry_number());
  const int first_row = blockIdx.x * Tile::rows;
  // [doc: dependent_wait]
  WarpProduct<W, A, TOK, Tile> product(shape, entry, {shape, entry, tokens, shape.k}, weights, first_row);
  product.request_weights();
  ptx::griddepcontrol_wait();  // the launch before has ended: its C may be our tokens
  product.request_tokens();
  product.multiply();
  // [/doc: dependent_wait]
  smem.put(product.sums);
  smem.store_total(shape, entry, epilogue, first_row);
}

// `cluster_product`, and two instructions more.
template <class W, class A, int TOK, class Tile>
__global__ void __launch_bounds__(Tile::threads)
    dependent_cluster(Shape shape,
                      Matrices<const A> tokens,   // [samples, channels, m, k]
                      Matrices<const W> weights,  // [weight samples, weight channels, n, k]
                      Epilogue<W> epilogue) {
  ptx::griddepcontrol_launch_dependents();
  if (!has_entry(shape)) return;  // all blocks of the cluster
  auto& smem = device::shared_storage<ClusterSmem<W, TOK, Tile>>();
  const Entry entry = entry_of(shape, entry_number());
  const int first_row = blockIdx.x / Tile::cluster * Tile::rows;
  const KRange range = part_of_k(shape.k, Tile::k, ptx::cluster_rank(), Tile::cluster);
  ptx::cluster_arrive_relaxed();
  RingProduct<W, A, TOK, Tile> product(smem, shape, entry, tokens, weights, first_row, range);
  product.request_first_weights();
  ptx::griddepcontrol_wait();  // the launch before has ended: its C may be our tokens
  product.request_tokens(range.begin);
  product.multiply();
  ptx::cluster_wait();  // all blocks have begun: their shared memory is there
  smem.send(product.sums);
  ptx::cluster_sync();  // all blocks have sent, and nobody reaches into another block any more
  smem.store_total(shape, entry, epilogue, first_row);
}

}  // namespace few_tokens
