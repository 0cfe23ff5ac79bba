// What all files of step 05 share: which keys a tile of queries sees, where elements lie in shared memory, masks, and the end
// of a tile of queries.
//
//     O = softmax(scale · Q Kᵀ) V      Q, O [batch, heads, seq_q, dim]      K, V [batch, kv_heads, seq_k, dim]
//
// A block has a tile of queries and walks over tiles of keys. Of lane l in a warp, g = l / 4 and t = l % 4. Files 2 and later
// give a warp 16 rows, and a lane two of them, g and g + 8: that is how mma.sync spreads its sums. "Row r of a lane" is 0 or 1.
#pragma once

#include "common/device/block.cuh"
#include "common/device/elements.cuh"
#include "common/device/mask.h"
#include "common/device/memory.cuh"
#include "common/device/online_softmax.cuh"
#include "steps/05_flash_v2/key_tiles.cuh"

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

// ---- tiles ----

// The queries of a block. Grid: x over tiles of queries, y over heads, z over the batch. With a causal mask the last tile has
// the most keys, so it is the first block: the short ones then fill the multiprocessors that become free.
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

// Where column t of a row of `dim` elements lies, so that the 8 rows that ldmatrix reads at a time fall on all 32 banks. t is a
// multiple of 8. Rows of a multiple of 128 bytes: step 02's swizzle. Others, of 64 or 192 bytes, begin at bank 0 and 16 in
// turn.
template <int dim>
__device__ inline int swizzled(int row, int t) {
  static_assert(dim % 32 == 0);
  return t ^ (dim % 64 == 0 ? row % 8 : row / 2 % 4) * chunk;
}

// ---- masks ----

// The keys that a query sees: first … end − 1.
struct RowKeys {
  int first, end;
  __device__ bool has(int key) const { return key >= first && key < end; }
};
__device__ inline RowKeys keys_of(const AttentionShape& shape, int i) { return {shape.first_key(i), shape.end_key(i)}; }

// Of a lane's two rows; `row` is the warp's first.
__device__ inline void visible_keys(const AttentionShape& shape, int row, RowKeys (&rows)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows[r] = keys_of(shape, row + threadIdx.x % 32 / 4 + 8 * r);
  }
}

// Scores of keys that a row does not see become −∞: s[p][e] belongs to row e / 2, key `key` + 8 p + 2 t + e % 2.
template <int pieces>
__device__ inline void mask_scores(float (&s)[pieces][4], const RowKeys (&rows)[2], int key) {
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int j = key + 8 * p + threadIdx.x % 4 * 2 + e % 2;
      if (!rows[e / 2].has(j)) s[p][e] = -INFINITY;
    }
  }
}

// ---- infinities and NaNs in V ----
//
// A row's probability of a key that it does not see is 0, and 0 · NaN is NaN: through P · V a NaN in V would reach rows that do
// not see it. So in tiles with a mask each thread looks at the chunks of V that it copied itself, before the barrier that hands
// the tile to everyone, and the barrier counts votes (__syncthreads_or). If there is such an element, which is rare, it is set
// to 0 in shared memory, P · V goes on as ever, and at the end it is put back where it belongs.

// Which of the two elements of a word are infinite or NaN: bits 15 and 31. Where the exponent is all ones, adding one to it
// carries into the sign.
template <class T>
__device__ inline std::uint32_t non_finite(std::uint32_t pair) {
  constexpr bool half = std::is_same_v<T, __half>;
  constexpr std::uint32_t exponents = half ? 0x7c007c00u : 0x7f807f80u, ones = half ? 0x04000400u : 0x00800080u;
  return ((pair & exponents) + ones) & 0x80008000u;
}
template <class T>
__device__ inline bool any_non_finite(uint4 words) {
  return (non_finite<T>(words.x) | non_finite<T>(words.y) | non_finite<T>(words.z) | non_finite<T>(words.w)) != 0;
}

// Whether there is one among this thread's chunks of a tile: those of index threadIdx.x, threadIdx.x + threads, …, in whatever
// order a row's chunks lie.
template <class T, int threads, int keys, int dim>
__device__ inline bool own_non_finite(const T (&v)[keys][dim]) {
  bool found = false;
#pragma unroll
  for (int i = 0; i < keys * dim / chunk; i += threads) {
    const int mine = i + threadIdx.x;
    const int row = mine / (dim / chunk), column = mine % (dim / chunk) * chunk;
    found |= any_non_finite<T>(load(reinterpret_cast<const uint4*>(&v[row][swizzled<dim>(row, column)])));
  }
  return found;
}

// All of a tile's become 0. All threads of the block, behind the barrier that counted the votes.
template <class T, int threads, int keys, int dim>
__device__ inline void clear_non_finite(T (&v)[keys][dim]) {
  const auto cleared = [](std::uint32_t word) { return word & ~((non_finite<T>(word) >> 15) * 0xffffu); };
#pragma unroll 1
  for (int i = threadIdx.x; i < keys * dim / chunk; i += threads) {
    uint4* words = reinterpret_cast<uint4*>(&v[0][0]) + i;
    const uint4 old = load(words);
    store(words, make_uint4(cleared(old.x), cleared(old.y), cleared(old.z), cleared(old.w)));
  }
  __syncthreads();  // everyone has cleared its chunks before anyone reads the tile again
}

// Adds the infinities and NaNs of V, of the tiles with a mask, to the rows of O that see them, in device memory: whatever else
// a row's sum holds, that makes it what P · V would have made. All threads of the block, after O is stored.
template <class T, int threads>
__device__ void put_back_non_finite(const AttentionShape& shape, const QueryTile& tile, const KeyTiles& tiles, int keys,
                                    const Heads<const T>& v, const Heads<T>& o) {
  __syncthreads();  // O is written before it is read again
#pragma unroll 1
  for (int n = threadIdx.x; n < tile.count * shape.dim; n += threads) {
    const int i = tile.first + n / shape.dim, column = n % shape.dim;
    T* to = &o.row(tile.batch, tile.head, i)[column];
    float sum = to_float(load(to));
#pragma unroll 1
    for (int j = shape.first_key(i); j < shape.end_key(i); ++j) {
      if (j >= tiles.free_begin * keys && j < tiles.free_end * keys) continue;
      const float x = to_float(load(&v.row(tile.batch, tile.kv_head, j)[column]));
      if (x - x != 0.0f) sum += x;  // ∞ − ∞ is NaN, too
    }
    store(to, from_float<T>(sum));
  }
}

// ---- the scale ----

// The maximum of scale · score is that of the scores only where the scale is positive. So from file 5 on Q takes the sign of
// the scale, −1, 0 or 1, and the scores only its magnitude.

// Two elements of Q times the scale's sign. 0 · ∞ and 0 · NaN are NaN: all bits set.
template <class T>
__device__ inline std::uint32_t times_sign(std::uint32_t pair, float scale) {
  if (scale == 0.0f) return (non_finite<T>(pair) >> 15) * 0xffffu;
  return scale < 0.0f ? pair ^ 0x80008000u : pair;
}

// The same for all of Q in shared memory: each thread takes the chunks that it copied itself, so there is no barrier before.
template <class T, int threads, int rows, int dim>
__device__ void apply_sign(T (&q)[rows][dim], float scale) {
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * dim / chunk; i += threads) {
    const int row = i / (dim / chunk);
    uint4* words = reinterpret_cast<uint4*>(&q[row][swizzled<dim>(row, i % (dim / chunk) * chunk)]);
    const uint4 w = load(words);
    const auto signed_pair = [&](std::uint32_t pair) { return times_sign<T>(pair, scale); };
    store(words, make_uint4(signed_pair(w.x), signed_pair(w.y), signed_pair(w.z), signed_pair(w.w)));
  }
}

// What brings the scores of such a Q to base 2. Not 0, even where the scale is: masks make −∞ of a score, and 0 · ∞ is NaN.
__device__ inline float magnitude(float scale) { return fmaxf(fabsf(scale) * device::log2_e, FLT_TRUE_MIN); }

// 2^(s·c − m) is one FMA there, which does not round s·c; but m is s·c of the largest score, rounded. So all of a row's P are
// wrong by the same factor, which the division at the end takes out. Up to |m| = 2^24 it is at most √2. At 2^30 it may be 2^32,
// and fp16 does not hold that. Beyond the limit, which is rare, the products are rounded before m is subtracted, as m was.
constexpr float fma_limit = 0x1p24f;

// The products of one row of a lane.
template <int pieces>
__device__ inline void round_products(float (&s)[pieces][4], int r, float c) {
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
    s[p][2 * r] *= c;
    s[p][2 * r + 1] *= c;
  }
}

// ---- the end of a tile of queries ----

// The largest, and the sum, over the four lanes that share a row.
__device__ inline float quad_maximum(float x) {
  x = fmaxf(x, __shfl_xor_sync(all_lanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(all_lanes, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(all_lanes, x, 1);
  return x + __shfl_xor_sync(all_lanes, x, 2);
}

// O divided by the sums, and LSE, of a warp's 16 rows from `row` on. o[p][e] belongs to row e / 2, column 8 p + 2 t + e % 2;
// l of the states is this lane's share. `whole`: dim is 8 · pieces, and rows of O begin at multiples of four bytes.
template <class T, bool whole, int pieces>
__device__ inline void finish_rows(const float (&sums)[pieces][4], const SoftmaxState (&states)[2], const AttentionShape& shape,
                                   const QueryTile& tile, int row, const Heads<T>& o, float* lse) {
  const int t = threadIdx.x % 4;
  const int first_row = row + threadIdx.x % 32 / 4;
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const SoftmaxState state{states[r].m, quad_sum(states[r].l)};
    inverse[r] = device::inverse_sum(state.l);
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
    for (int p = 0; p < pieces; ++p) {
      const int column = 8 * p + 2 * t;
      const float first = sums[p][2 * r] * inverse[r], second = sums[p][2 * r + 1] * inverse[r];
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
