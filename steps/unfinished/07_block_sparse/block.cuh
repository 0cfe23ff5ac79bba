// Step 07: what a block is given, and what it keeps beside step 05's tiles.
#pragma once

#include "steps/05_flash_v2/12_tuned.cuh"
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

// The keys of a lane's rows in scores of keys key …: −∞ for those that a row does not see.
template <int slices, int frags, class Shape>
__device__ void mask_seen(float (&s)[slices][frags][4], const Shape& shape, const Tokens& tokens, int row, int key) {
#pragma unroll
  for (int i = 0; i < slices; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const SeenKeys seen = seen_keys(shape, tokens, row + 16 * i + threadIdx.x % 32 / 4 + 8 * r);
#pragma unroll
      for (int p = 0; p < frags; ++p) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          if (!seen.has(key + 8 * p + threadIdx.x % 4 * 2 + e % 2)) s[i][p][e] = -INFINITY;
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
};

}  // namespace block_sparse
