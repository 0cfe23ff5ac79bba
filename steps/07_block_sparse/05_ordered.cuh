// 07_block_sparse, ordered: long rows first, heavy heads first.
// Predecessor: 04_prefetch.cuh
//
// With a causal mask the last tiles of queries have the most work, and step 05 begins with them. A sparse mask may put its work
// anywhere: a long row that begins last keeps one SM busy while 131 wait. So the plan makes a list of work, too. Rows of a head
// run longest first, one head behind the other, so that the blocks of a moment read the same K and V from L2; the heaviest head
// begins. The rows of the last eight heads are ordered together, so that the end of the launch is made of short rows.
//
// What to expect: the same work on all SMs, and a gain where rows or heads differ.
#pragma once

#include "steps/07_block_sparse/attend.cuh"

namespace block_sparse {

// Grid: x over work items. Blocks of tile_threads.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) sparse_ordered(typename Tile::Shape shape, Plan plan,
                                                                  Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                  Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                  Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                  Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                  float* lse) {      // [batch, heads, seq_q]
  const WorkItem item = load_item(&plan.work[blockIdx.x]);
  if (item.head < 0) return;
  const int head = item.head % shape.heads;
  const QueryTile queries{item.head / shape.heads, head, shape.kv_head(head), item.first_of_tile,
                          min(Tile::rows, shape.seq_q - item.first_of_tile)};
  Attend<T, Tile, false> a(shape, {0, 0}, queries, k, v);

  const int* at = plan.tiles + item.first;
  int remaining = item.count();          // tiles, this one among them
  int j = item.entry;                    // this tile
  int next = remaining > 1 ? at[1] : 0;  // the one that is copied meanwhile
  const auto copy_index = [&](int stage) {
    if (threadIdx.x == 0) ptx::cp_async_4(&a.smem.after[stage], at + 2, remaining > 2 ? 4 : 0);
  };
  if (j >= 0) a.begin(queries, q, k, v, j, copy_index);
  const auto attend_tile = [&](auto masked) {
    a.attend(j, next, remaining > 1, masked, [&](int stage) {
      ++at;
      --remaining;
      copy_index(stage);
    });
    j = next;
    next = a.tile_after();
  };
#pragma unroll 1
  for (const int rest = item.full + item.left; remaining > rest;) attend_tile(std::true_type{});
#pragma unroll 1
  for (const int rest = load(&plan.work[blockIdx.x].left); remaining > rest;) attend_tile(std::false_type{});
#pragma unroll 1
  while (remaining > 0) attend_tile(std::true_type{});

  const WorkItem reloaded = load_item(&plan.work[blockIdx.x]);
  a.finish(
      reloaded.right + reloaded.left,
      [&](int n) { return plan.tiles[reloaded.first + (n < reloaded.right ? n : n + reloaded.full)]; }, v, o, lse);
}

}  // namespace block_sparse
