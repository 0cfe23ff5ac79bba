// Step 06: rows of dQ, or of dK and dV, once more, 16 at a time, from the pairs alone that they depend on.
//
// The rows of a head lie anywhere, so operands come straight from device memory, element by element: any alignment, any head
// dim. With rows r of the tile and partners p (for keys: queries; for queries: keys), a warp computes for 16 partners at a time
//
//   keys:     Sᵀ = K Qᵀ, dPᵀ = V dOᵀ;    dV += Pᵀ dO, dK += dSᵀ Q
//   queries:  S = Q Kᵀ, dP = dO Vᵀ;      dQ += dS K
//
// A score belongs to one pair, so an odd element in it stays there. In the sums it would not: 0 · NaN is NaN. So odd elements
// of partners are 0 in the products there, and so is a P or dS that 16 bits do not hold. add_odd adds what that left out, where
// a row sees a partner.
#pragma once

#include "common/device/any_shape.h"
#include "common/device/backward/rows.cuh"
#include "common/device/ptx/mma.cuh"

namespace backward {

using device::AnyShape;

constexpr int repair_warps = 8;
constexpr int repaired_rows = 16;     // of a tile: M of an mma
constexpr int repaired_columns = 64;  // at a time: with 128 the sums would take too many registers
constexpr int repair_partners = 16;   // of a warp, at a time

__device__ inline bool is_finite(float x) { return fabsf(x) < INFINITY; }
__device__ inline bool is_nan(float x) { return !(x == x); }

// The largest number that T holds, in fp32.
template <class T>
inline constexpr float largest = std::is_same_v<T, __half> ? 65504.0f : 0x1.FEp127f;

// What rows are computed from.
template <class T>
struct RepairInputs {
  Heads<const T> q, k, v, d_o;  // [batch, heads or kv_heads, rows, dim]
  RowStatistics statistics;
};

struct RepairSmem {
  float sums[2][repaired_rows][repaired_columns];  // of dQ or dK; of dV
  int rows[32 * repair_warps];                     // that a block has to repair,
  int of_warps[repair_warps];                      // so many of each warp's
};

// An element; 0 beyond the row's end.
template <class T>
__device__ T element_or_zero(const T* row, int t, int dim) {
  return t < dim ? load(&row[t]) : from_float<T>(0.0f);
}
template <class T>
__device__ std::uint32_t join(T first, T second) {
  const T pair[2] = {first, second};
  std::uint32_t word;
  memcpy(&word, pair, sizeof(word));
  return word;
}
template <class T>
__device__ std::uint32_t two_columns(const T* row, int t, int dim) {
  return join(element_or_zero(row, t, dim), element_or_zero(row, t + 1, dim));
}

// acc[n] = A Bᵀ, of 16 rows and two groups of 8 partners. a: this lane's rows g and g + 8; b: its partner of each group.
template <class T>
__device__ void multiply_rows(float (&acc)[2][4], const T* const (&a)[2], const T* const (&b)[2], int dim) {
  const int t = threadIdx.x % 4 * 2;
#pragma unroll 1
  for (int k = t; k < dim + t; k += 16) {
    const std::uint32_t of_a[4] = {two_columns(a[0], k, dim), two_columns(a[1], k, dim), two_columns(a[0], k + 8, dim),
                                   two_columns(a[1], k + 8, dim)};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const std::uint32_t of_b[2] = {two_columns(b[n], k, dim), two_columns(b[n], k + 8, dim)};
      ptx::mma_m16n8k16<T>(acc[n], of_a, of_b);
    }
  }
}

// Sums of 16 rows over partners: weights · B, of 64 columns from `column` on.
struct RepairSums {
  float acc[repaired_columns / 8][4] = {};

  // weights: of the lane's rows and partners, as accumulators; `seen`: a bit for each. b: partners from `first` on, of `count`.
  template <class T>
  __device__ void add(const float (&weights)[2][4], std::uint32_t seen, const Heads<const T>& b, int batch, int head, int first,
                      int count, int column, int dim) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
    bool odd = false;
    std::uint32_t a[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float pair[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float weight = weights[w / 2][w % 2 * 2 + e];
        const bool is_held = fabsf(weight) <= largest<T>;
        pair[e] = is_held ? weight : 0.0f;
        odd |= !is_held;
      }
      a[w] = packed<T>(pair[0], pair[1]);
    }
    const T* rows[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) rows[r] = b.row(batch, head, min(first + t + r % 2 + r / 2 * 8, count - 1));
#pragma unroll
    for (int n = 0; n < repaired_columns / 8; ++n) {
      T x[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        x[r] = element_or_zero(rows[r], column + 8 * n + g, dim);
        if (is_finite(to_float(x[r]))) continue;
        x[r] = from_float<T>(0.0f);
        odd = true;
      }
      ptx::mma_m16n8k16<T>(acc[n], a, {join(x[0], x[1]), join(x[2], x[3])});
    }
    if (__any_sync(all_lanes, odd)) add_odd(weights, seen, b, batch, head, first, count, column, dim);
  }

  // What is 0 in the products above, partner by partner, where a row sees it.
  template <class T>
  __device__ void add_odd(const float (&weights)[2][4], std::uint32_t seen, const Heads<const T>& b, int batch, int head,
                          int first, int count, int column, int dim) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        for (int t = 0; t < 4; ++t) {  // the lane beside this one that has this partner
          const int from = lane / 4 * 4 + t, partner = first + 8 * n + 2 * t + e;
          const float weight[2] = {__shfl_sync(all_lanes, weights[n][e], from),
                                   __shfl_sync(all_lanes, weights[n][2 + e], from)};
          const std::uint32_t sees = __shfl_sync(all_lanes, seen, from) >> (4 * n + e);
          if (partner >= count) continue;
          const T* row = b.row(batch, head, partner);
#pragma unroll
          for (int m = 0; m < repaired_columns / 8; ++m) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
              const float x = to_float(element_or_zero(row, column + 8 * m + lane % 4 * 2 + c % 2, dim)), w = weight[c / 2];
              const bool is_held = is_finite(x) && fabsf(w) <= largest<T>;
              if (!is_held && (sees >> (c / 2 * 2) & 1) != 0) acc[m][c] += w * x;
            }
          }
        }
      }
    }
  }

  // Adds the warps' sums up, one after the other.
  __device__ void add_up(float (&sums)[repaired_rows][repaired_columns]) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
    for (int warp = 0; warp < repair_warps; ++warp) {
      if (warp == static_cast<int>(threadIdx.x / 32)) {
#pragma unroll
        for (int n = 0; n < repaired_columns / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& sum = sums[g + e / 2 * 8][8 * n + t + e % 2];
            sum = warp == 0 ? acc[n][e] : sum + acc[n][e];
          }
        }
      }
      __syncthreads();  // this warp's sums are in
    }
  }
};

// rows[0 … count − 1], at most 16, of `to`: factor · sums, of columns from `column` on.
template <class T>
__device__ void store_sums(const float (&sums)[repaired_rows][repaired_columns], const Heads<T>& to, float factor, int batch,
                           int head, const int* rows, int count, int column, int dim) {
  for (int n = threadIdx.x; n < count * repaired_columns; n += 32 * repair_warps) {
    const int row = n / repaired_columns, t = n % repaired_columns;
    if (column + t < dim) store(&to.row(batch, head, rows[row])[column + t], from_float<T>(factor * sums[row][t]));
  }
}

// P and dS of this lane's rows and 16 partners of a head, as accumulators; seen: a bit for each pair that there is.
template <bool of_keys, class T, class Pairs>
__device__ void repair_weights(float (&p)[2][4], float (&ds)[2][4], std::uint32_t& seen, const AnyShape& shape,
                               const Pairs& pairs, const RepairInputs<T>& in, int batch, int kv_head, int head,
                               const int (&rows)[2], const int (&begin)[2], const int (&end)[2], int first) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2, last = (of_keys ? shape.seq_q : shape.seq_k) - 1;
  const T *a[2], *b[2], *of_a[2], *of_b[2];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int partner = min(first + 8 * n + g, last);
    a[n] = of_keys ? in.k.row(batch, kv_head, rows[n]) : in.q.row(batch, head, rows[n]);
    b[n] = of_keys ? in.q.row(batch, head, partner) : in.k.row(batch, kv_head, partner);
    of_a[n] = of_keys ? in.v.row(batch, kv_head, rows[n]) : in.d_o.row(batch, head, rows[n]);
    of_b[n] = of_keys ? in.d_o.row(batch, head, partner) : in.v.row(batch, kv_head, partner);
  }
  float s[2][4] = {}, dp[2][4] = {};
  multiply_rows(s, a, b, shape.dim);
  multiply_rows(dp, of_a, of_b, shape.dim);
  seen = 0;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = rows[e / 2], partner = first + 8 * n + t + e % 2;
      const int i = of_keys ? partner : row, j = of_keys ? row : partner;
      p[n][e] = ds[n][e] = 0.0f;
      if (partner < begin[e / 2] || partner >= end[e / 2] || !pairs.has(shape, batch, head, i, j)) continue;
      seen |= 1u << (4 * n + e);
      const std::int64_t at = in.statistics.at(shape, batch, head, i);
      const float kept = shape.kept(batch, head, i, j);
      p[n][e] = device::exp2_fast(s[n][e] * (shape.scale * device::log2_e) - load(&in.statistics.lse2[at]));
      ds[n][e] = p[n][e] * (kept * dp[n][e] + load(&in.statistics.minus_delta[at]));
      p[n][e] *= kept;
    }
  }
}

// smem.rows[from … from + count − 1], at most 16: dK and dV of keys of a key/value head, or dQ (`of_scores`) of queries of a
// head. A warp has every repair_warps-th group of partners.
template <bool of_keys, class T, class Pairs>
__device__ void repair_tile(RepairSmem& smem, const AnyShape& shape, const Pairs& pairs, const RepairInputs<T>& in,
                            const Heads<T>& of_scores, const Heads<T>& dv, int batch, int kv_head, int head, int from,
                            int count) {
  const int *tile = &smem.rows[from], g = threadIdx.x % 32 / 4, group = shape.heads / shape.kv_heads;
  int rows[2], begin[2], end[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows[r] = tile[min(g + 8 * r, count - 1)];
    begin[r] = of_keys ? shape.first_query(rows[r]) : shape.first_key(rows[r]);
    end[r] = of_keys ? shape.end_query(rows[r]) : shape.end_key(rows[r]);
  }
  int begin_all = min(begin[0], begin[1]), end_all = max(end[0], end[1]);
  for (int distance = 16; distance > 2; distance /= 2) {
    begin_all = min(begin_all, __shfl_xor_sync(all_lanes, begin_all, distance));
    end_all = max(end_all, __shfl_xor_sync(all_lanes, end_all, distance));
  }
  const int first_head = of_keys ? kv_head * group : head, heads = of_keys ? group : 1;
  for (int column = 0; column < shape.dim; column += repaired_columns) {
    RepairSums of_ds, of_p;
    for (int h = first_head; h < first_head + heads; ++h) {
      for (int first = begin_all / repair_partners * repair_partners + threadIdx.x / 32 * repair_partners; first < end_all;
           first += repair_warps * repair_partners) {
        float p[2][4], ds[2][4];
        std::uint32_t seen;
        repair_weights<of_keys>(p, ds, seen, shape, pairs, in, batch, kv_head, h, rows, begin, end, first);
        if constexpr (of_keys) {
          of_ds.add(ds, seen, in.q, batch, h, first, shape.seq_q, column, shape.dim);
          of_p.add(p, seen, in.d_o, batch, h, first, shape.seq_q, column, shape.dim);
        } else {
          of_ds.add(ds, seen, in.k, batch, kv_head, first, shape.seq_k, column, shape.dim);
        }
      }
    }
    of_ds.add_up(smem.sums[0]);
    store_sums(smem.sums[0], of_scores, shape.scale, batch, of_keys ? kv_head : head, tile, count, column, shape.dim);
    if constexpr (of_keys) {
      of_p.add_up(smem.sums[1]);
      store_sums(smem.sums[1], dv, 1.0f, batch, kv_head, tile, count, column, shape.dim);
    }
    __syncthreads();  // everyone has read the sums before others come
  }
}

}  // namespace backward
