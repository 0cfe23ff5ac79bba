// What all rungs of step 05 share: a tile of queries, the loops over its tiles of keys, where elements lie in shared memory,
// masks, and the epilogue.
//
//     O = softmax(scale · Q Kᵀ) V      Q, O [batch, heads, seq_q, dim]      K, V [batch, kv_heads, seq_k, dim]
//
// A block has a tile of queries and walks over tiles of keys. From `tensor_cores` on, a lane has two rows of each 16 × 8
// accumulator, g and g + 8, with g = lane / 4: that is how mma.sync spreads its result. Its columns are 2t and 2t + 1, with
// t = lane % 4. "Row r of a lane" is 0 or 1.
#pragma once

#include <numeric>
#include <type_traits>

#include "common/device/dialect.h"
#include "common/device/dropout.h"
#include "common/device/online_softmax.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/device/score_options.h"
#include "common/device/shapes.h"

namespace flash_v2 {

using device::ceil_div;
using device::from_float;
using device::Heads;
using device::load;
using device::load_if;
using device::packed;
using device::SoftmaxState;
using device::store;
using device::store_if;
using device::to_float;

constexpr int chunk = 8;  // elements of 16 bits in 16 bytes, what one access moves
constexpr unsigned all_lanes = ~0u;

// Of the rungs from `tensor_cores` on. From `rows_32` on a Tile has its own rows and keys (tuned_tile.cuh).
constexpr int tile_rows = 64;  // queries of a block
constexpr int tile_keys = 64;
constexpr int tile_threads = 128;
constexpr int warp_rows = 16;
constexpr int score_frags = tile_keys / 8;  // of 8 keys

// ---- tiles ----

// The queries of a block. Grid: x over tiles of queries, y over heads, z over the batch. With a causal mask the last tile has
// the most keys, so the first block takes it: the short tiles then fill the SMs that become free.
struct QueryTile {
  int batch, head, kv_head;
  int first;  // query
  int count;  // of queries
};
__device__ inline QueryTile query_tile(const AttentionShape& shape, int rows) {
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * rows;
  const int head = blockIdx.y;
  return {static_cast<int>(blockIdx.z), head, shape.kv_head(head), first, min(rows, shape.seq_q - first)};
}

// The main loop: calls attend_tile(j, masked) for each tile of keys, from right to left. It is three loops: the tiles on the
// right edge of what the queries see, the tiles that all queries see, the tiles on the left edge. `masked` is std::true_type at
// the edges and std::false_type between them. So the compiler makes two bodies, and the second one has no code for masks.

// [doc: peeled_loops]
template <class AttendTile>
__device__ inline void for_each_tile(const KeyTiles& tiles, const AttendTile& attend_tile) {
  int j = tiles.end - 1;
#pragma unroll 1
  for (; j >= tiles.free_end; --j) attend_tile(j, std::true_type{});
#pragma unroll 1
  for (; j >= tiles.free_begin; --j) attend_tile(j, std::false_type{});
#pragma unroll 1
  for (; j >= tiles.begin; --j) attend_tile(j, std::true_type{});
}
// [/doc: peeled_loops]

// ---- rows of Q, K and V in shared memory: how they come there, and where a lane finds its own ----

// The place of column t in a row of `dim` elements, so that the 8 rows that ldmatrix reads at a time fall on all 32 banks. t is
// a multiple of 8. Rows of a multiple of 128 bytes have step 02's swizzle. Rows of 64 or 192 bytes begin at banks 0 and 16 by
// turns, so that two rows share a pattern.
template <int dim>
__device__ inline int swizzled(int row, int t) {
  static_assert(dim % 32 == 0);
  return t ^ (dim % 64 == 0 ? row % 8 : row / 2 % 4) * chunk;
}

// Of 05_flash_v2/04_pipeline.cuh: starts to copy `count` rows of a head, from `first` on, to swizzled rows of shared memory;
// rows from `end` on become zeros.
template <class T, int count, int dim>
__device__ void copy_rows(T (&to)[count][dim], const Heads<const T>& from, int batch, int head, int first, int end) {
#pragma unroll 4
  for (int i = 0; i < count * dim / chunk; i += tile_threads) {
    const int mine = i + threadIdx.x;
    const int row = mine / (dim / chunk), column = mine % (dim / chunk) * chunk;
    const bool inside = first + row < end;
    ptx::cp_async_16(&to[row][swizzled<dim>(row, column)], &from.row(batch, head, inside ? first + row : 0)[column],
                     inside ? 16 : 0);
  }
}

// Of 05_flash_v2/09_addresses.cuh: the byte offset of the chunk 16 · step columns to the right of the chunk at offset `bytes`.
// That chunk is in the same row, and is one of the two chunks of the row's first 16 columns.
// [doc: columns_beyond]
template <int dim>
__device__ int columns_beyond(int bytes, int step) {
  return dim % 64 == 0 ? bytes ^ 32 * step : (bytes ^ 32 * (step % 2)) + 64 * (step / 2);
}
// [/doc: columns_beyond]
template <class T>
__device__ const T* bytes_beyond(const T* start, std::int64_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(start) + bytes);
}

// Of 05_flash_v2/09_addresses.cuh: a thread's copies of the next tile of keys, which is whole: only the last of all keys may
// end early, and copy_rows brings that one. Of a tile's first `period` rows a thread copies `bases` chunks. `period` rows
// further down, a chunk has the same place in its row.
template <class T, int dim, int keys>
struct NextTile {
  // The fewest bases with which `period` is a multiple of 8: the swizzle repeats.
  static constexpr int bases = std::lcm(tile_threads, dim) / tile_threads, chunks = dim / chunk;
  static constexpr int period = tile_threads * bases / chunks, periods = keys / period;
  const int k_pitch, v_pitch;  // bytes of `period` rows
  int to[bases];               // element of stage.k, and of stage.v
  const T *k[bases], *v[bases];
  // Tile `first` is the next one.
  __device__ NextTile(const Heads<const T>& of_k, const Heads<const T>& of_v, const QueryTile& tile, int first)
      : k_pitch(static_cast<int>(of_k.row_stride) * period * int{sizeof(T)}),
        v_pitch(static_cast<int>(of_v.row_stride) * period * int{sizeof(T)}) {
#pragma unroll
    for (int i = 0; i < bases; ++i) {
      const int n = threadIdx.x + i * tile_threads, row = n / chunks, column = n % chunks * chunk;
      const std::int64_t key = std::int64_t{first} * keys + row;
      k[i] = of_k.row(tile.batch, tile.kv_head, 0) + key * of_k.row_stride + column;
      v[i] = of_v.row(tile.batch, tile.kv_head, 0) + key * of_v.row_stride + column;
      to[i] = row * dim + swizzled<dim>(row, column);
    }
  }
  // So many tiles further; below 0: to the left.
  __device__ void move(std::int64_t tiles) {
#pragma unroll
    for (int i = 0; i < bases; ++i) {
      k[i] = bytes_beyond(k[i], tiles * periods * k_pitch);
      v[i] = bytes_beyond(v[i], tiles * periods * v_pitch);
    }
  }
  // Starts copies first … end − 1 of bases · periods: a chunk of K and one of V each.
  template <class Stage>
  __device__ void load(Stage& stage, int first = 0, int end = bases * periods) const {
#pragma unroll
    for (int n = first; n < end; ++n) {
      const int i = n % bases, down = n / bases;
      ptx::cp_async_16(&stage.k[down * period][0] + to[i], bytes_beyond(k[i], std::int64_t{down} * k_pitch));
      ptx::cp_async_16(&stage.v[down * period][0] + to[i], bytes_beyond(v[i], std::int64_t{down} * v_pitch));
    }
  }
};

// Of 05_flash_v2/09_addresses.cuh: the byte of this lane's row in a fragment: a_from of A's rows, and of B's where ldmatrix
// transposes; b_from of B's columns.
template <class T, int dim>
struct LaneRows {
  const int lane = threadIdx.x % 32, a_from = (lane % 16 * dim + swizzled<dim>(lane % 16, lane / 16 * chunk)) * int{sizeof(T)},
            b_from = ((lane / 16 * 8 + lane % 8) * dim + swizzled<dim>(lane % 8, lane / 8 % 2 * chunk)) * int{sizeof(T)};
};

// ---- masks ----

// The keys that a query sees: first … end − 1.
struct RowKeys {
  int first, end;
  __device__ bool has(int key) const { return key >= first && key < end; }
};
template <class Shape>
__device__ inline RowKeys keys_of(const Shape& shape, int i) {
  return {shape.first_key(i), shape.end_key(i)};
}

// The keys of a lane's two rows; `row` is the warp's first.
template <class Shape>
__device__ inline void visible_keys(const Shape& shape, int row, RowKeys (&rows)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows[r] = keys_of(shape, row + threadIdx.x % 32 / 4 + 8 * r);
  }
}

// The scores of keys that a row does not see become −∞. s[p][e] belongs to row e / 2 and key `key` + 8 p + 2 t + e % 2.
template <int frags>
__device__ inline void mask_scores(float (&s)[frags][4], const RowKeys (&rows)[2], int key) {
#pragma unroll
  for (int p = 0; p < frags; ++p) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int j = key + 8 * p + threadIdx.x % 4 * 2 + e % 2;
      if (!rows[e / 2].has(j)) s[p][e] = -INFINITY;
    }
  }
}

// ---- the epilogue ----

// The maximum, and the sum, over the four lanes that share a row.
__device__ inline float quad_maximum(float x) {
  x = fmaxf(x, __shfl_xor_sync(all_lanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(all_lanes, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(all_lanes, x, 1);
  return x + __shfl_xor_sync(all_lanes, x, 2);
}

// Stores O = acc / l, and LSE, of a warp's 16 rows from `row` on. acc[p][e] belongs to row e / 2, column 8 p + 2 t + e % 2. l
// in the states is this lane's share. `whole`: dim is 8 · frags, and rows of O begin at multiples of four bytes.
template <class T, bool whole, int frags, class Shape>
__device__ inline void finish_rows(const float (&acc)[frags][4], const SoftmaxState (&states)[2], const Shape& shape,
                                   const QueryTile& tile, int row, const Heads<T>& o, float* lse) {
  const int t = threadIdx.x % 4;
  const int first_row = row + threadIdx.x % 32 / 4;
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    SoftmaxState state{states[r].m, quad_sum(states[r].l)};
    float factor = 1.0f;  // of O, for a sink
    if constexpr (device::has_score_options<Shape>) factor = device::add_sink(shape, tile.head, state);
    inverse[r] = factor * device::inverse_sum(state.l);
    const int i = first_row + 8 * r;
    float* to = &lse[(static_cast<std::int64_t>(tile.batch) * shape.heads + tile.head) * shape.seq_q + i];
    if (i < shape.seq_q && t == 0) *to = device::log_sum_exp(state);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = first_row + 8 * r;
    const bool inside = i < shape.seq_q;
    T* to = o.row(tile.batch, tile.head, inside ? i : 0);
    const bool paired = reinterpret_cast<std::uintptr_t>(to) % 4 == 0;
#pragma unroll
    for (int p = 0; p < frags; ++p) {
      const int column = 8 * p + 2 * t;
      const float first = acc[p][2 * r] * inverse[r], second = acc[p][2 * r + 1] * inverse[r];
      const std::uint32_t pair = packed<T>(first, second);
      if constexpr (whole) {
        store_if(inside, reinterpret_cast<std::uint32_t*>(&to[column]), pair);
      } else {
        const bool first_inside = inside && column < shape.dim, both_inside = inside && column + 1 < shape.dim;
        store_if(both_inside && paired, reinterpret_cast<std::uint32_t*>(&to[column]), pair);
        store_if(first_inside && !(both_inside && paired), &to[column], from_float<T>(first));
        store_if(both_inside && !paired, &to[column + 1], from_float<T>(second));
      }
    }
  }
}

}  // namespace flash_v2
