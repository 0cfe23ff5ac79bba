// Numbers at the ends of their range, which the products would spread or the softmax would lose: infinities and NaNs in V, a
// scale that is not positive, and scores that are too large for an FMA.
#pragma once

#include "common/device/flash_v2/tile.cuh"

namespace flash_v2 {

// ---- infinities and NaNs in V ----

// They reach only the rows that see them.
//
// A row's probability of a key that it does not see is 0, and 0 · NaN is NaN: through P · V a NaN in V would reach rows that do
// not see it. Only tiles with a mask have such rows. A kernel has a NanGuard, and calls it in three places:
//
//   barrier    hands a tile to everyone. Each thread has looked at the chunks of V that it copied itself, and the barrier
//              counts votes (__syncthreads_or)
//   take_out   before P · V: if the tile has infinities or NaNs, which is rare, they become 0 in shared memory
//   put_back   after O is stored: those that were taken out are added, in global memory, to the rows of O that see them.
//              Whatever else a row's sum holds, that makes it what P · V would have made. What is finite is not touched

// Tells which of the two elements of a register are infinite or NaN, in bits 15 and 31: their exponent is all ones, so adding
// one to it carries into the sign.
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

// Adds to rows of O what is not finite in V's rows first … first + 31. seen(i): those that query i sees, a bit for each;
// add(i, column, x) adds x to an element of O. A warp has 32 columns, and a lane one of them: which of the 32 elements are NaN,
// ∞ or −∞ are three words, so a row costs a few instructions. Where all are finite, no row is looked at.
template <int threads, class T, class Shape, class Seen, class Add>
__device__ void put_back_keys(const Shape& shape, const QueryTile& tile, int dim, int first, const Heads<const T>& v,
                              const Seen& seen, const Add& add) {
#pragma unroll 1
  for (int columns = threadIdx.x / 32 * 32; columns < dim; columns += threads) {
    const int column = columns + threadIdx.x % 32;
    std::uint32_t nan = 0, up = 0, down = 0;
#pragma unroll 8
    for (int j = 0; j < 32; ++j) {
      const bool there = first + j < shape.seq_k && column < dim;
      const float x = there ? to_float(load(&v.row(tile.batch, tile.kv_head, first + j)[column])) : 0.0f;
      nan |= static_cast<std::uint32_t>(x != x) << j;
      up |= static_cast<std::uint32_t>(x == INFINITY) << j;
      down |= static_cast<std::uint32_t>(x == -INFINITY) << j;
    }
    if (!__any_sync(~0u, (nan | up | down) != 0)) continue;
#pragma unroll 1
    for (int i = tile.first; i < tile.first + tile.count; ++i) {
      const std::uint32_t keys = seen(i);
      bool is_nan = (keys & nan) != 0 || ((keys & up) != 0 && (keys & down) != 0);  // ∞ − ∞ is NaN, too
      if constexpr (device::drops<Shape>) {
        for (std::uint32_t left = keys & (up | down); left != 0 && !is_nan; left &= left - 1) {  // 0 · ∞ is NaN
          is_nan = device::kept_weight(shape, tile.batch, tile.head, i, first + __ffs(static_cast<int>(left)) - 1) == 0.0f;
        }
      }
      if (is_nan || (keys & (up | down)) != 0) add(i, column, is_nan ? NAN : (keys & up) != 0 ? INFINITY : -INFINITY);
    }
  }
}

// All of a block's threads call barrier, take_out and put_back.
template <int threads>
struct NanGuard {
  bool found = false;      // in this tile: until the barrier, by this thread; behind it, by any
  bool taken_out = false;  // from this tile or one before it

  // For kernels in which V passes through registers: look_at each chunk that this thread copies, and then the barrier.
  template <class T>
  __device__ void look_at(uint4 words) {
    found |= any_non_finite<T>(words);
  }
  __device__ void barrier() { found = __syncthreads_or(found); }

  // For kernels that copy V by cp.async. This thread looks at its own chunks, threadIdx.x, threadIdx.x + threads, … of the
  // tile. If the tile has no mask, nobody looks.
  template <bool masked, class T, int keys, int dim>
  __device__ void barrier(const T (&v)[keys][dim]) {
    found = false;
    if constexpr (masked) {
#pragma unroll
      for (int i = 0; i < keys * dim / chunk; i += threads) {
        const int mine = i + threadIdx.x;
        const int row = mine / (dim / chunk), column = mine % (dim / chunk) * chunk;
        look_at<T>(load(reinterpret_cast<const uint4*>(&v[row][swizzled<dim>(row, column)])));
      }
      barrier();
    } else {
      __syncthreads();
    }
  }

  template <class T, int keys, int dim>
  __device__ void take_out(T (&v)[keys][dim]) {
    if (!found) return;
    const auto cleared = [](std::uint32_t word) { return word & ~((non_finite<T>(word) >> 15) * 0xffffu); };
#pragma unroll 1
    for (int i = threadIdx.x; i < keys * dim / chunk; i += threads) {
      uint4* words = reinterpret_cast<uint4*>(&v[0][0]) + i;
      const uint4 old = load(words);
      store(words, make_uint4(cleared(old.x), cleared(old.y), cleared(old.z), cleared(old.w)));
    }
    __syncthreads();  // everyone has cleared its chunks before anyone reads the tile again
    found = false;
    taken_out = true;
  }

  // Tiles have `keys` keys, a multiple of 32; tiles free_begin … free_end − 1 had no mask.
  template <class T, class Shape>
  __device__ void put_back(const Shape& shape, const QueryTile& tile, const KeyTiles& tiles, int keys, const Heads<const T>& v,
                           const Heads<T>& o) const {
    if (!taken_out) return;
    __syncthreads();  // O is written before it is read again
#pragma unroll 1
    for (int first = tiles.begin * keys; first < min(tiles.end * keys, shape.seq_k); first += 32) {
      if (first == tiles.free_begin * keys && first < tiles.free_end * keys) first = tiles.free_end * keys;  // a long way
      if (first >= shape.seq_k) break;
      const auto seen = [&](int i) {
        const std::uint32_t of_tile = device::bits_between(shape.first_key(i) - first, shape.end_key(i) - first);
        if constexpr (device::has_score_options<Shape>) {
          return of_tile & ~device::hidden_keys(shape, tile.batch, tile.head, i, first);
        }
        return of_tile;
      };
      put_back_keys<threads>(shape, tile, shape.dim, first, v, seen, [&](int i, int column, float x) {
        T* to = &o.row(tile.batch, tile.head, i)[column];
        store(to, from_float<T>(to_float(load(to)) + x));
      });
    }
  }
};

// ---- the scale: Q takes its sign, the scores its magnitude ----

// From `folded_scale` on a probability is one FMA and one ex2: 2^(s · scale_log2 − m), with m the maximum of s · scale_log2.
// scale_log2 times the maximum of s only if scale_log2 is positive. So Q takes the sign of the scale, −1, 0 or 1, and
// scale_log2 is its magnitude.

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

// Brings the scores of such a Q to base 2. It is never 0, even if the scale is: a masked score is −∞, and 0 · ∞ is NaN.
__device__ inline float magnitude(float scale) { return fmaxf(fabsf(scale) * device::log2_e, FLT_TRUE_MIN); }

// The FMA does not round the product s · scale_log2, but m is such a product, rounded. So all probabilities of a row are wrong
// by the same factor, which the division in the epilogue takes out. Up to |m| = 2^24 the factor is at most √2. At 2^30 it may
// be 2^32, which fp16 cannot hold. Beyond the limit, which is rare, the products are rounded before m is subtracted, as m was.
constexpr float fma_limit = 0x1p24f;

// Multiplies the scores of one row of a lane.
template <int frags>
__device__ inline void round_products(float (&s)[frags][4], int r, float scale_log2) {
#pragma unroll
  for (int p = 0; p < frags; ++p) {
    s[p][2 * r] *= scale_log2;
    s[p][2 * r + 1] *= scale_log2;
  }
}

}  // namespace flash_v2
