// Step 07, the plan of the backward pass: which tiles of queries each tile of keys visits. The same kernels as the forward
// plan's (plan.cuh).
#pragma once

#include "steps/06_backward/non_finite.cuh"
#include "steps/06_backward/query_tiles.cuh"
#include "steps/07_block_sparse/plan.cuh"

namespace block_sparse {

using namespace backward;

// Backward, a row is a tile of 128 keys of one key/value head, and visits tiles of 64 queries of all heads that share it. An
// entry of its list counts these tiles, head by head; its bits 0 and 1 tell which half of the keys is dead for the tile.
template <class Shape>
struct KeyRow {
  static constexpr bool partials_first = true;  // partial tiles, then full ones
  const Shape& shape;
  const Mask& mask;
  const PlanSizes& sizes;
  int batch, group_head, group, query_tiles, key_tile;

  __device__ KeyRow(const Shape& shape_, const Mask& mask_, const PlanSizes& sizes_, int row)
      : shape(shape_), mask(mask_), sizes(sizes_), group(shape_.heads / shape_.kv_heads) {
    const int head = row / sizes.rows_of_head;
    batch = head / shape.kv_heads;
    group_head = head % shape.kv_heads * group;
    query_tiles = ceil_div(shape.seq_q, sizes.tile_queries);
    key_tile = row % sizes.rows_of_head;
  }
  __device__ int begin() const { return 0; }
  __device__ int end() const { return group * query_tiles; }
  __device__ TileState of(int n, int& entry) const {
    if (n < 0) return dead;
    const TileStates<Shape> states(shape, mask, batch, group_head + n / query_tiles, n % query_tiles * sizes.tile_queries,
                                   sizes.tile_queries, sizes.tile_keys / 2);
    const TileState lower = states.of(2 * key_tile), upper = states.of(2 * key_tile + 1);
    entry = n << 2 | (lower == dead ? 1 : 0) | (upper == dead ? 2 : 0);
    return lower == dead && upper == dead ? dead : lower == full && upper == full ? full : partial;
  }
};

struct KeyPlan {
  const int* entries;
  const WorkItem* work;  // of keys
  int query_tiles;       // of a head
};
__device__ inline TileOfHead tile_of(int entry, int group_head, int query_tiles, bool there) {
  const int n = entry >> 2;
  return {group_head + n / query_tiles, n % query_tiles, 0, there};
}

// Probabilities of pairs that are masked become 0, as mask_probabilities: of a half that is dead, all.
template <int frags, class Shape>
__device__ void mask_sparse(float (&p)[frags][4], const Shape& shape, const Mask& mask, int head, int is_dead, int key,
                            int row) {
  mask_probabilities(p, shape, key, row);
  const Tokens tokens = tokens_of(mask, head);
  const bool by_token = tokens.sink != 0 || tokens.local != 0;
  if (!by_token && !is_dead) return;
#pragma unroll
  for (int n = 0; n < frags; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int query = row + 8 * n + threadIdx.x % 4 * 2 + e % 2;
      if (is_dead || !seen_keys(shape, tokens, query).has(key + e / 2 * 8)) p[n][e] = 0.0f;
    }
  }
}

// One pair of a query and a key.
template <class Shape>
__device__ bool sees(const Shape& shape, const Mask& mask, int batch, int head, int i, int j) {
  if (!seen_keys(shape, tokens_of(mask, head), i).has(j)) return false;
  return TileStates<Shape>(shape, mask, batch, head, i, 1, 64).of(j / 64) != dead;
}

// As repair_non_finite, of the pairs that the mask leaves.
// Grid: x over repair_blocks, which share the rows, y over key/value heads, z over the batch. Blocks of 32 · repair_warps.
template <class T, class Shape = AttentionShape>
__global__ void __launch_bounds__(32 * repair_warps) repair_sparse(Shape shape, Mask mask,
                                                                   Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                   Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                   Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                   Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                   RowStatistics rows,
                                                                   Heads<T> dq,    // [batch, heads, seq_q, dim]
                                                                   Heads<T> dk,    // [batch, kv_heads, seq_k, dim]
                                                                   Heads<T> dv) {  // [batch, kv_heads, seq_k, dim]
  const int kv_head = blockIdx.y, batch = blockIdx.z;
  if (load(rows.flag(shape, batch, kv_head)) == 0.0f) return;
  const int group = shape.heads / shape.kv_heads;
  const auto pair = [&](int head, int i, int j) {
    const std::int64_t at = rows.at(shape, batch, head, i);
    return Pair<T>(shape, q.row(batch, head, i), k.row(batch, kv_head, j), v.row(batch, kv_head, j), d_o.row(batch, head, i),
                   load(&rows.lse2[at]), load(&rows.minus_delta[at]), device::kept_weight(shape, batch, head, i, j));
  };
  const int first = blockIdx.x * repair_warps + threadIdx.x / 32, step = repair_blocks * repair_warps;
  for (int j = first; j < shape.seq_k; j += step) {  // dK and dV of a key
    float acc_dk[repair_columns] = {}, acc_dv[repair_columns] = {};
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int i = shape.first_query(j); i < shape.end_query(j); ++i) {
        if (!sees(shape, mask, batch, head, i, j)) continue;
        const Pair<T> of = pair(head, i, j);
        add_row(acc_dk, of.ds, q.row(batch, head, i), shape.dim);
        add_row(acc_dv, of.p, d_o.row(batch, head, i), shape.dim);
      }
    }
    store_row(dk.row(batch, kv_head, j), shape.scale, acc_dk, shape.dim);
    store_row(dv.row(batch, kv_head, j), 1.0f, acc_dv, shape.dim);
  }
  for (int n = first; n < group * shape.seq_q; n += step) {  // dQ of a query of one of the heads
    const int head = kv_head * group + n / shape.seq_q, i = n % shape.seq_q;
    float acc[repair_columns] = {};
    for (int j = shape.first_key(i); j < shape.end_key(i); ++j) {
      if (sees(shape, mask, batch, head, i, j)) add_row(acc, pair(head, i, j).ds, k.row(batch, kv_head, j), shape.dim);
    }
    store_row(dq.row(batch, head, i), shape.scale, acc, shape.dim);
  }
}

}  // namespace block_sparse
