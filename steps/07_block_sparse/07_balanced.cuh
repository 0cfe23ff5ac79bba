// 07_block_sparse, balanced: long rows are split, and their parts merged by ⊕.
// Predecessor: 06_tokens.cuh
//
// A row that sees everything, among rows that see a tenth, is longer than all that is left when it begins: order does not help
// it. Rows above four times the mean are cut into parts, and each part is a work item. A part leaves O, not divided, and (m, l)
// of its rows in scratch memory; the next launch, merge_parts, makes the row of them, with the operator of step 03.
//
// What to expect: with one full row a head, the time of the rows without it and its share. Elsewhere the price of a launch that
// finds nothing to do, and of work items that are empty.
#pragma once

#include "steps/07_block_sparse/attend.cuh"

namespace block_sparse {

// What the parts of split rows leave.
struct Parts {
  float* o;              // [parts, tile queries, dim], not divided
  SoftmaxState* states;  // [parts, tile queries]
};

// Grid: x over work items. Blocks of tile_threads.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) sparse_balanced(typename Tile::Shape shape, Mask mask, Plan plan,
                                                                   Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                   Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                   Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                   Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                   float* lse,        // [batch, heads, seq_q]
                                                                   Parts parts) {
  const WorkItem item = load_item(&plan.work[blockIdx.x]);
  if (item.head < 0) return;
  const int head = item.head % shape.heads;
  const QueryTile queries{item.head / shape.heads, head, shape.kv_head(head), item.first_of_tile,
                          min(Tile::rows, shape.seq_q - item.first_of_tile)};
  Attend<T, Tile, true> a(shape, tokens_of(mask, head), queries, k, v);

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

  const WorkItem reloaded = load_item(&plan.work[blockIdx.x]);  // again: so the loops need no registers for it
  const auto partial = [&](int n) { return plan.tiles[reloaded.first + (n < reloaded.right ? n : n + reloaded.full)]; };
  if (reloaded.part < 0) {
    a.finish(reloaded.right + reloaded.left, partial, v, o, lse);
  } else {
    const std::int64_t first = std::int64_t{reloaded.part} * Tile::rows;
    a.leave(reloaded.right + reloaded.left, partial, v, &parts.o[first * Tile::dim], &parts.states[first]);
  }
}

constexpr int merge_warps = 16;

// A warp merges the parts of a query. Grid: x over split rows, as many as there may be; y over merge_warps of their queries.
template <class T, class Tile>
__global__ void __launch_bounds__(32 * merge_warps) merge_parts(AttentionShape shape, PlanSizes sizes,
                                                                const int* split_rows,  // [most_split_rows], −1 behind the last
                                                                const Rank* ranks,      // [rows]
                                                                Parts parts,
                                                                Heads<T> o,    // [batch, heads, seq_q, dim]
                                                                float* lse) {  // [batch, heads, seq_q]
  const int row_index = split_rows[blockIdx.x];
  if (row_index < 0) return;
  const int4 rank = load(reinterpret_cast<const int4*>(&ranks[row_index]));
  const int batch = row_index / sizes.rows_of_head / shape.heads, head = row_index / sizes.rows_of_head % shape.heads;
  const int row = blockIdx.y * merge_warps + threadIdx.x / 32, lane = threadIdx.x % 32;  // of the tile
  const int i = row_index % sizes.rows_of_head * Tile::rows + row;
  if (i >= shape.seq_q) return;
  constexpr int columns = Tile::dim / 32;
  // [doc: merge_the_parts]
  SoftmaxState state;
  float acc[columns] = {};
#pragma unroll 4
  for (int part = 0; part < rank.z; ++part) {
    const std::int64_t at = std::int64_t{rank.w + part} * Tile::rows + row;
    const float2 other = load(reinterpret_cast<const float2*>(&parts.states[at]));
    const device::MergedSoftmax merged = device::merge(state, {other.x, other.y});
    state = merged.state;
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      acc[c] = merged.first * acc[c] + merged.second * parts.o[at * Tile::dim + lane + 32 * c];
    }
  }
  // [/doc: merge_the_parts]
  const float inverse = device::inverse_sum(state.l);
  T* to = o.row(batch, head, i);
#pragma unroll
  for (int c = 0; c < columns; ++c) store(&to[lane + 32 * c], from_float<T>(acc[c] * inverse));
  if (lane == 0) {
    lse[(static_cast<std::int64_t>(batch) * shape.heads + head) * shape.seq_q + i] = device::log_sum_exp(state);
  }
}

}  // namespace block_sparse
