// Step 07: what a block is given, and what it keeps beside step 05's tiles.
#pragma once

#include "common/device/flash_v2/tuned_tile.cuh"
#include "common/device/kept_pairs.cuh"
#include "steps/07_block_sparse/plan.cuh"

namespace block_sparse {

using namespace flash_v2;

// What a kernel needs of the plan.
struct Plan {
  const int* tiles;       // lists, one behind the other
  const TileList* lists;  // [rows]
  const WorkItem* work;   // [items]
};
__device__ inline TileList load_list(const TileList* lists) {
  const int4 list = load(reinterpret_cast<const int4*>(lists));
  return {list.x, list.y, list.z, list.w};
}
// The row of a block, where blocks run in the order of step 05.
__device__ inline int row_of(const AttentionShape& shape, const QueryTile& tile) {
  return (tile.batch * shape.heads + tile.head) * gridDim.x + (gridDim.x - 1 - blockIdx.x);
}

// The scores of keys that a lane's rows do not see become −∞: keys key … key + 8 · frags − 1. A row's keys are bits of words.
template <int slices, int frags, class Shape>
__device__ void mask_seen(float (&s)[slices][frags][4], const Shape& shape, const Tokens& tokens, int row, int key) {
#pragma unroll
  for (int i = 0; i < slices; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const SeenKeys seen = seen_keys(shape, tokens, row + 16 * i + threadIdx.x % 32 / 4 + 8 * r);
      const int lane_key = key + threadIdx.x % 4 * 2;
#pragma unroll
      for (int p = 0; p < frags; p += 4) {
        const int first = lane_key + 8 * p;
        std::uint32_t bits = bits_between(seen.first - first, seen.end - first);
        if (tokens.sink > 0) bits |= bits_between(seen.sink_first - first, seen.sink_end - first);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          if (!(bits >> (8 * (n / 2) + n % 2) & 1)) s[i][p + n / 2][2 * r + n % 2] = -INFINITY;
        }
      }
    }
  }
}

// What a block seldom looks at: in shared memory it takes no registers.
struct alignas(16) BlockFacts {
  int batch, head, kv_head, first;  // query
  int count;                        // of queries
  int sink, local;
  int unused;  // the second access of 16 bytes has it, too
};

template <class T, class Tile>
struct SparseSmem : TunedSmem<T, Tile> {
  BlockFacts facts;
  int after[2];  // of each stage: the tile after the one that is copied while this stage's is multiplied
};

// Thread 0 writes the facts; behind the next barrier any thread may read them.
__device__ inline QueryTile tile_of(const BlockFacts& facts) {
  const int4 words = load(reinterpret_cast<const int4*>(&facts));
  return {words.x, words.y, words.z, words.w, load(&facts.count)};
}
__device__ inline Tokens tokens_of(const BlockFacts& facts) {
  const int4 words = load(reinterpret_cast<const int4*>(&facts.count));
  return {words.y, words.z};
}
__device__ inline void store_facts(BlockFacts& facts, const QueryTile& tile, const Tokens& tokens) {
  store(reinterpret_cast<int4*>(&facts), make_int4(tile.batch, tile.head, tile.kv_head, tile.first));
  store(reinterpret_cast<int4*>(&facts.count), make_int4(tile.count, tokens.sink, tokens.local, 0));
}

// O, not divided, and the states of a warp's rows, for merge_parts.
template <int dim, int slices>
__device__ void leave_part(const float (&acc)[slices][dim / 8][4], const SoftmaxState (&states)[slices][2], int warp_row,
                           float* part_o,                // [tile queries, dim]
                           SoftmaxState* part_states) {  // [tile queries]
#pragma unroll
  for (int s = 0; s < slices; ++s) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = warp_row + 16 * s + threadIdx.x % 32 / 4 + 8 * r, t = threadIdx.x % 4;
      const float sum = quad_sum(states[s][r].l);
      if (t == 0) store(reinterpret_cast<float2*>(&part_states[i]), make_float2(states[s][r].m, sum));
#pragma unroll
      for (int p = 0; p < dim / 8; ++p) {
        store(reinterpret_cast<float2*>(&part_o[i * dim + 8 * p + 2 * t]), make_float2(acc[s][p][2 * r], acc[s][p][2 * r + 1]));
      }
    }
  }
}

// Adds to a block's rows what a NanGuard took from partial tiles: NaNs and infinities of V, to the rows that see them.
// partial(n) is the n-th of `count` tiles; add(i, column, x) adds x to an element of O.
// All threads of the block call it.
template <int dim, int keys, class T, class Shape, class Partial, class Add>
__device__ void put_back(const Shape& shape, const QueryTile& tile, const Tokens& tokens, int count, const Partial& partial,
                         const Heads<const T>& v, const Add& add) {
  __syncthreads();  // O is written before it is read again
#pragma unroll 1
  for (int n = 0; n < count * (keys / 32); ++n) {
    const int of_list = partial(n / (keys / 32)), first = of_list * keys + n % (keys / 32) * 32;
    if (of_list < 0) continue;  // there is nothing to put back
    const auto seen = [&](int i) {
      const SeenKeys of_row = seen_keys(shape, tokens, i);
      return device::bits_between(of_row.first - first, of_row.end - first) |
             (tokens.sink > 0 ? device::bits_between(of_row.sink_first - first, of_row.sink_end - first) : 0u);
    };
    put_back_keys<tile_threads>(shape, tile, dim, first, v, seen, add);
  }
}

}  // namespace block_sparse
