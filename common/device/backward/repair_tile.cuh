// Step 06: rows of dQ, or of dK and dV, once more, 16 at a time, from the pairs alone that they depend on.
//
// With rows r of the tile and partners p (for keys: queries; for queries: keys), a warp computes for 16 partners at a time
//
//   keys:     Sᵀ = K Qᵀ, dPᵀ = V dOᵀ;    dV += Pᵀ dO, dK += dSᵀ Q
//   queries:  S = Q Kᵀ, dP = dO Vᵀ;      dQ += dS K
//
// The rows of a head lie anywhere, so operands come straight from device memory. A lane takes 8 neighbouring columns of a row
// at a time. That is another order of columns than an mma's operands have, but the same in both; and the columns of sums go
// back to their places at the end.
//
// A score belongs to one pair, so an odd element in it stays there. In the sums it would not: 0 · NaN is NaN. So odd elements
// of partners are 0 in the products there, and so is a P or dS that 16 bits do not hold. add_odd adds what that left out, where
// a row sees a partner.
#pragma once

#include "common/device/any_shape.h"
#include "common/device/backward/rows.cuh"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/prmt.cuh"

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
  bool wide;  // rows begin at multiples of 16 bytes, and have a multiple of 8 columns
};

struct RepairSmem {
  float sums[2][repaired_rows][repaired_columns];  // of dQ or dK; of dV
  int rows[32 * repair_warps];                     // that a block has to repair,
  int of_warps[repair_warps];                      // so many of each warp's
};

// 8 elements of a row, two in a word.
struct EightColumns {
  std::uint32_t words[4];

  // From `column` on, a multiple of 8; 0 beyond the row's end.
  template <class T>
  __device__ EightColumns(const T* row, int column, int dim, bool wide) {
    if (wide) {
      const int4 loaded = column < dim ? load(reinterpret_cast<const int4*>(row + column)) : make_int4(0, 0, 0, 0);
      memcpy(words, &loaded, sizeof(words));
      return;
    }
    T x[8];
#pragma unroll
    for (int t = 0; t < 8; ++t) x[t] = column + t < dim ? load(&row[column + t]) : from_float<T>(0.0f);
    memcpy(words, x, sizeof(words));
  }
  // Elements that are not finite become 0. Which they are: a bit for each.
  template <class T>
  __device__ std::uint32_t clear_odd() {
    constexpr std::uint32_t exponent = std::is_same_v<T, __half> ? 0x7C00u : 0x7F80u;
    std::uint32_t odd = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const bool low = (words[w] & exponent) == exponent, high = (words[w] >> 16 & exponent) == exponent;
      words[w] &= (low ? 0 : 0xFFFFu) | (high ? 0 : 0xFFFF0000u);
      odd |= (low ? 1u : 0) << (2 * w) | (high ? 2u : 0) << (2 * w);
    }
    return odd;
  }
};

// acc[n] = A Bᵀ, of 16 rows and two groups of 8 partners. a: this lane's rows g and g + 8; b: its partner of each group.
template <class T>
__device__ void multiply_rows(float (&acc)[2][4], const T* const (&a)[2], const T* const (&b)[2], int dim, bool wide) {
#pragma unroll 1
  for (int column = 0; column < dim; column += 32) {
    const auto columns = [&](const T* row) { return EightColumns(row, column + threadIdx.x % 4 * 8, dim, wide); };
    const EightColumns x[2] = {columns(a[0]), columns(a[1])}, y[2] = {columns(b[0]), columns(b[1])};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int w = 0; w < 4; w += 2) {
        ptx::mma_m16n8k16<T>(acc[n], {x[0].words[w], x[1].words[w], x[0].words[w + 1], x[1].words[w + 1]},
                             {y[n].words[w], y[n].words[w + 1]});
      }
    }
  }
}

// Sums of 16 rows over partners: weights · B, of 64 columns from `column` on. Of a lane, acc[n][e] is row g + 8 (e / 2), column
// 8 (2t + e % 2) + n.
struct RepairSums {
  float acc[repaired_columns / 8][4] = {};

  // weights: of the lane's rows and partners, as accumulators; `seen`: a bit for each. b: partners from `first` on, of `count`.
  template <class T>
  __device__ void add(const float (&weights)[2][4], std::uint32_t seen, const Heads<const T>& b, int batch, int head, int first,
                      int count, int column, int dim, bool wide) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
    bool all_held = true;
    std::uint32_t a[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float pair[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float weight = weights[w / 2][w % 2 * 2 + e];
        const bool is_held = fabsf(weight) <= largest<T>;
        pair[e] = is_held ? weight : 0.0f;
        all_held &= is_held;
      }
      a[w] = packed<T>(pair[0], pair[1]);
    }
    // partners 2t, 2t + 1, 2t + 8 and 2t + 9, columns 8g … 8g + 7
    const auto partner = [&](int n) {
      return EightColumns(b.row(batch, head, min(first + t + n, count - 1)), column + 8 * g, dim, wide);
    };
    EightColumns x[4] = {partner(0), partner(1), partner(8), partner(9)};
    std::uint32_t odd = 0;  // a byte for each of these partners
#pragma unroll
    for (int n = 0; n < 4; ++n) odd |= x[n].clear_odd<T>() << (8 * n);
#pragma unroll
    for (int n = 0; n < repaired_columns / 8; ++n) {
      const std::uint32_t halves = n % 2 == 0 ? 0x5410 : 0x7632;  // the lower, or the upper ones of two words
      ptx::mma_m16n8k16<T>(
          acc[n], a,
          {ptx::prmt(x[0].words[n / 2], x[1].words[n / 2], halves), ptx::prmt(x[2].words[n / 2], x[3].words[n / 2], halves)});
    }
    if (__any_sync(all_lanes, odd != 0 || !all_held)) add_odd(weights, seen, odd, b, batch, head, first, count, column, dim);
  }

  // What is 0 in the products above, partner by partner, where a row sees it.
  template <class T>
  __device__ void add_odd(const float (&weights)[2][4], std::uint32_t seen, std::uint32_t odd, const Heads<const T>& b,
                          int batch, int head, int first, int count, int column, int dim) {
    const int lane = threadIdx.x % 32, group = lane % 4 * 2;  // of 8 columns: this lane's sums are of two
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        for (int t = 0; t < 4; ++t) {
          // What another lane knows of the partner: its weights in this lane's rows, its odd elements in this lane's columns.
          const int from = lane / 4 * 4 + t, partner = first + 8 * n + 2 * t + e;
          float weight[2];
          std::uint32_t odd_columns[2];
          bool sees[2], is_held[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            weight[i] = __shfl_sync(all_lanes, weights[n][2 * i + e], from);
            sees[i] = (__shfl_sync(all_lanes, seen, from) >> (4 * n + 2 * i + e) & 1) != 0;
            is_held[i] = fabsf(weight[i]) <= largest<T>;
            odd_columns[i] = __shfl_sync(all_lanes, odd, 4 * (group + i) + t) >> (8 * (2 * n + e)) & 0xFF;
          }
          if (partner >= count) continue;
          const T* row = b.row(batch, head, partner);
#pragma unroll
          for (int m = 0; m < repaired_columns / 8; ++m) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const bool is_odd = (odd_columns[c] >> m & 1) != 0;
              const int at = column + 8 * (group + c) + m;
              if ((!is_odd && is_held[0] && is_held[1]) || at >= dim) continue;
              const float x = to_float(load(&row[at]));
#pragma unroll
              for (int r = 0; r < 2; ++r) {
                if ((is_odd || !is_held[r]) && sees[r]) acc[m][2 * r + c] += weight[r] * x;
              }
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
            float& sum = sums[g + e / 2 * 8][8 * (t + e % 2) + n];
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
  multiply_rows(s, a, b, shape.dim, in.wide);
  multiply_rows(dp, of_a, of_b, shape.dim, in.wide);
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
          of_ds.add(ds, seen, in.q, batch, h, first, shape.seq_q, column, shape.dim, in.wide);
          of_p.add(p, seen, in.d_o, batch, h, first, shape.seq_q, column, shape.dim, in.wide);
        } else {
          of_ds.add(ds, seen, in.k, batch, kv_head, first, shape.seq_k, column, shape.dim, in.wide);
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
