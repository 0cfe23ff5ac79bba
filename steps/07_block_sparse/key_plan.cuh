// Step 07, the plan of the backward pass: which tiles of queries each tile of keys visits. The same kernels as the forward
// plan's (plan.cuh).
#pragma once

#include "common/device/backward/query_tiles.cuh"
#include "common/device/dropout.h"
#include "common/device/ptx/shared_memory.cuh"
#include "steps/07_block_sparse/plan.cuh"

namespace block_sparse {

using namespace backward;

// Backward, a row is a tile of 128 keys of one key/value head, and visits tiles of 64 queries of all heads that share it. An
// entry of its list counts these tiles, head by head, from bit 3 on. Bits 0 and 1 tell which half of the keys is dead for the
// tile, bit 2 whether its head streams by token.
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
  // [doc: state_for_a_tile_of_keys]
  __device__ TileState of(int n, int& entry) const {
    if (n < 0) return dead;
    const TileStates<Shape> states(shape, mask, batch, group_head + n / query_tiles, n % query_tiles * sizes.tile_queries,
                                   sizes.tile_queries);
    const TileState lower = states.of(2 * key_tile), upper = states.of(2 * key_tile + 1);
    entry = n << 3 | (states.type == streaming_tokens ? 4 : 0) | (upper == dead ? 2 : 0) | (lower == dead ? 1 : 0);
    return lower == dead && upper == dead ? dead : lower == full && upper == full ? full : partial;
  }
  // [/doc: state_for_a_tile_of_keys]
};

struct KeyPlan {
  const int* entries;
  const WorkItem* work;  // of keys
  int query_tiles;       // of a head
};
// A block's way along its list. The entry after the next comes with a stage's copies, so that nobody waits for an index.
struct KeyListWalk {
  int group_head, query_tiles;
  const int* at;  // this tile's entry
  int remaining;  // entries, with this one
  int entry, next_entry, entry_after = 0;
  TileOfHead next;  // the tile that is copied next

  __device__ KeyListWalk(const KeyPlan& plan, const WorkItem& item, int first_head)
      : group_head(first_head),
        query_tiles(plan.query_tiles),
        at(plan.entries + item.first),
        remaining(item.count()),
        entry(item.entry),
        next_entry(remaining > 1 ? at[1] : 0),
        next(tile_of(entry)) {}
  // To `after`, of a stage.
  __device__ void copy_entry(int& after) const {
    if (threadIdx.x == 0) ptx::cp_async_4(&after, at + 2, remaining > 2 ? 4 : 0);
  }
  // `next` becomes the tile after this one. after: of this tile's stage, where all copies have come.
  __device__ void advance(const int& after) {
    entry_after = __shfl_sync(all_lanes, load(&after), 0);
    ++at;
    --remaining;
    next = tile_of(next_entry);
  }
  // Behind a tile: the next one is this one.
  __device__ void end_tile() {
    entry = next_entry;
    next_entry = entry_after;
  }

 private:
  __device__ TileOfHead tile_of(int of_entry) const {
    const int n = of_entry >> 3;
    return {group_head + n / query_tiles, n % query_tiles, 0, remaining > 0};
  }
};

// Beside what step 06's kernels keep.
template <class Base>
struct SparseKeysSmem : Base {
  int after[2];  // of each stage: the entry after the one that is copied while this stage's is multiplied
};

// Probabilities of pairs that are masked become 0: p[n][e] belongs to key `key` + 8 (e / 2), query `row` + 8 n + 2 t + e % 2.
// half: of the tile's keys, 0 or 1; it may be dead for these queries.
template <int frags, class Shape>
__device__ void mask_sparse(float (&p)[frags][4], const Shape& shape, const Mask& mask, int head, int entry, int half, int key,
                            int row) {
  static_assert(frags == 4);  // 32 queries: bits of a word
  const bool dead_half = entry >> half & 1;
  const Tokens tokens = entry & 4 ? tokens_of(mask, head) : Tokens{0, 0};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const SeeingQueries seeing = seeing_queries(shape, tokens, key + 8 * r);
    const int first = row + threadIdx.x % 4 * 2;
    const std::uint32_t bits = dead_half ? 0 : bits_between(seeing.first - first, seeing.end - first);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (!(bits >> (8 * (n / 2) + n % 2) & 1)) p[n / 2][2 * r + n % 2] = 0.0f;
    }
  }
}

// What the parts of split columns leave: sums of dK, without the scale, and of dV.
struct KeyParts {
  float* dk;  // [parts, tile keys, dim]
  float* dv;  // [parts, tile keys, dim]
};
// Accumulators to rows row … + 15 of a part; `to` begins at the lane's first column of row 0.
template <int dim, int frags>
__device__ void leave_rows(float* to, int row, const float (&acc)[frags][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int p = 0; p < frags; ++p) {
      store(reinterpret_cast<float2*>(&to[(row + threadIdx.x % 32 / 4 + 8 * r) * dim + 8 * p + threadIdx.x % 4 * 2]),
            make_float2(acc[p][2 * r], acc[p][2 * r + 1]));
    }
  }
}
template <int dim, int slices, int frags>
__device__ void leave_slices(float* to, int row, const float (&acc)[slices][frags][4]) {
#pragma unroll
  for (int s = 0; s < slices; ++s) leave_rows<dim>(to, row + 16 * s, acc[s]);
}

constexpr int merge_columns_threads = 256, merge_columns_keys = 16;

// Adds the parts of a split tile of keys. Grid: x over split tiles, as many as there may be; y over merge_columns_keys of their
// keys.
template <class T>
__global__ void __launch_bounds__(merge_columns_threads)
    merge_columns(AttentionShape shape, PlanSizes sizes,
                  const int* split_rows,  // [most_split_rows], −1 behind the last
                  const Rank* ranks,      // [rows]
                  KeyParts parts, RowStatistics rows,
                  Heads<T> dk,    // [batch, kv_heads, seq_k, dim]
                  Heads<T> dv) {  // [batch, kv_heads, seq_k, dim]
  const int row_index = split_rows[blockIdx.x];
  if (row_index < 0) return;
  const int4 rank = load(reinterpret_cast<const int4*>(&ranks[row_index]));
  const int head = row_index / sizes.rows_of_head, batch = head / shape.kv_heads, kv_head = head % shape.kv_heads;
  const int first = blockIdx.y * merge_columns_keys, first_key = row_index % sizes.rows_of_head * sizes.tile_keys + first;
  for (int n = threadIdx.x; n < min(merge_columns_keys, shape.seq_k - first_key) * shape.dim; n += merge_columns_threads) {
    float sum_dk = 0.0f, sum_dv = 0.0f;
#pragma unroll 4
    for (int part = 0; part < rank.z; ++part) {
      const std::int64_t at = (std::int64_t{rank.w + part} * sizes.tile_keys + first) * shape.dim + n;
      sum_dk += parts.dk[at];
      sum_dv += parts.dv[at];
    }
    flag_non_finite(sum_dk + sum_dv, rows.flag(shape, batch, kv_head));  // not finite where one of the two is not
    const int key = first_key + n / shape.dim, column = n % shape.dim;
    store(&dk.row(batch, kv_head, key)[column], from_float<T>(shape.scale * sum_dk));
    store(&dv.row(batch, kv_head, key)[column], from_float<T>(sum_dv));
  }
}

using device::AnyShape;

// The pairs that a mask leaves, for the kernel that repairs rows (AllPairs). A block has a multiple of 32 queries and of 32
// keys, so one look at its bit answers for a word. A call stays a call: the kernel has few registers.
struct LivePairs {
  Mask mask;
  __attribute__((noinline)) __device__ std::uint32_t queries(const AnyShape& shape, int batch, int head, int first,
                                                             int j) const {
    if (TileStates<AnyShape>(shape, mask, batch, head, first, 32).of(j / state_keys) == dead) return 0;
    const SeeingQueries queries = seeing_queries(shape, tokens_of(mask, head), j);
    return bits_between(queries.first - first, queries.end - first);
  }
  __attribute__((noinline)) __device__ std::uint32_t keys(const AnyShape& shape, int batch, int head, int i, int first) const {
    if (TileStates<AnyShape>(shape, mask, batch, head, i, 1).of(first / state_keys) == dead) return 0;
    const SeenKeys keys = seen_keys(shape, tokens_of(mask, head), i);
    return bits_between(keys.first - first, keys.end - first) | bits_between(keys.sink_first - first, keys.sink_end - first);
  }
};

}  // namespace block_sparse
