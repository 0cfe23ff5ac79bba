// Step 06: rows of dQ, or of dK and dV, once more, 16 at a time, from the pairs alone that they depend on.
//
// With rows r of the tile and partners p (for keys: queries; for queries: keys), a warp computes for 16 partners at a time
//
//   keys:     Sᵀ = K Qᵀ, dPᵀ = V dOᵀ;    dV += Pᵀ dO, dK += dSᵀ Q
//   queries:  S = Q Kᵀ, dP = dO Vᵀ;      dQ += dS K
//
// The rows of a head lie anywhere: each lane reads its two from device memory, which L1 keeps. Partners are neighbours. A warp
// copies its own to shared memory, 64 columns at a time. A lane takes 8 neighbouring columns of a row at a time. That is
// another order of columns than an mma's operands have, but the same in both; and the columns of sums go back to their places
// at the end.
//
// A score belongs to one pair, so an odd element in it stays there. In the sums it would not: 0 · NaN is NaN. So odd elements
// of partners are 0 in the products there, and so is a P or dS that 16 bits do not hold. add_odd adds what that left out, where
// a row sees a partner.
#pragma once

#include "common/device/backward/rows.cuh"
#include "common/device/dialect.h"
#include "common/device/dropout.h"
#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/shared_memory.cuh"

namespace backward {

using device::AnyShape;

constexpr int repair_warps = 8;
constexpr int repaired_rows = 16;                 // of a tile: M of an mma
constexpr int repaired_columns = 64;              // at a time: with 128 the sums would take too many registers
constexpr int repair_partners = 16;               // of a warp, at a time
constexpr int words_of_chunk = 2 * repair_warps;  // a block looks at so many times 32 rows, before it repairs some
constexpr std::uint32_t all_partners = (1u << repair_partners) - 1;  // a bit for each

__device__ inline bool is_finite(float x) { return fabsf(x) < INFINITY; }
__device__ inline bool is_nan(float x) { return !(x == x); }

// Does T hold this P or dS? NaN and infinity are held, too: what they make of a row's sums is right.
template <class T>
__device__ bool is_held(float weight) {
  constexpr float largest = std::is_same_v<T, __half> ? 65504.0f : 0x1.FEp127f;
  return !(fabsf(weight) > largest && is_finite(weight));
}

// What rows are computed from.
template <class T>
struct RepairInputs {
  Heads<const T> q, k, v, d_o;  // [batch, heads or kv_heads, rows, dim]
  RowStatistics statistics;
  bool wide;  // rows begin at multiples of 16 bytes, and have a multiple of 8 columns
};

// 64 columns of 16 partners. 8 more, so that reads of several rows find them in other banks.
template <class T>
using PartnerRows = T[repair_partners][repaired_columns + 8];

template <class T>
struct RepairSmem {
  PartnerRows<T> of_scores[repair_warps];          // each warp's partners: rows of Q, or of K;
  PartnerRows<T> of_dp[repair_warps];              // of dO, or of V
  float sums[2][repaired_rows][repaired_columns];  // of dQ or dK; of dV
  std::uint32_t spoiled[words_of_chunk];           // a bit for each row of a chunk:
  int rows[32 * words_of_chunk];                   // those that the block has to repair
};

// 8 elements of a row, two in a word.
struct EightColumns {
  std::uint32_t words[4];

  // From here on, at a multiple of 16 bytes.
  template <class T>
  __device__ explicit EightColumns(const T* at) {
    const int4 loaded = load(reinterpret_cast<const int4*>(at));
    memcpy(words, &loaded, sizeof(words));
  }
  // Of a row, from `column` on, a multiple of 8; 0 beyond the row's end.
  template <class T>
  __device__ EightColumns(const T* row, int column, int dim, bool wide) {
    if (wide) {
      const int4 loaded = column < dim ? load(reinterpret_cast<const int4*>(row + column)) : make_int4(0, 0, 0, 0);
      memcpy(words, &loaded, sizeof(words));
      return;
    }
    T x[8];
#pragma unroll
    for (int t = 0; t < 8; ++t) x[t] = load_if(column + t < dim, &row[column + t]);
    memcpy(words, x, sizeof(words));
  }
  __device__ int4 as_int4() const {
    int4 all;
    memcpy(&all, words, sizeof(words));
    return all;
  }
  // Is an element not finite? Then its exponent is all ones, and one more at its end gives the sign's bit.
  template <class T>
  __device__ bool has_odd() const {
    constexpr std::uint32_t exponents = std::is_same_v<T, __half> ? 0x7C007C00u : 0x7F807F80u;
    constexpr std::uint32_t ends = std::is_same_v<T, __half> ? 0x04000400u : 0x00800080u;
    std::uint32_t carried = 0;
#pragma unroll
    for (const std::uint32_t word : words) carried |= (word & exponents) + ends;
    return (carried & 0x80008000u) != 0;
  }
  // Such elements become 0.
  template <class T>
  __device__ void clear_odd() {
    constexpr std::uint32_t exponent = std::is_same_v<T, __half> ? 0x7C00u : 0x7F80u;
#pragma unroll
    for (std::uint32_t& word : words) {
      const bool low = (word & exponent) == exponent, high = (word >> 16 & exponent) == exponent;
      word &= (low ? 0 : 0xFFFFu) | (high ? 0 : 0xFFFF0000u);
    }
  }
};

// Starts to copy 64 columns of a warp's partners, from row `first` and `column` on; rows beyond the `last` are that one again.
template <class T>
__device__ void copy_partners(PartnerRows<T>& to, const Heads<const T>& from, int batch, int head, int first, int last,
                              int column, int dim, bool wide) {
  const int lane = threadIdx.x % 32, mine = lane % 8 * 8;
  if (wide) {
    const bool inside = column + mine < dim;
#pragma unroll
    for (int n = 0; n < repair_partners; n += 4) {
      const T* row = from.row(batch, head, min(first + n + lane / 8, last));
      ptx::cp_async_16(&to[n + lane / 8][mine], &row[inside ? column + mine : 0], inside ? 16 : 0);
    }
    return;
  }
#pragma unroll 1
  for (int n = lane / 8; n < repair_partners; n += 4) {
    const EightColumns x(from.row(batch, head, min(first + n, last)), column + mine, dim, false);
    store(reinterpret_cast<int4*>(&to[n][mine]), x.as_int4());
  }
}

// acc += A Bᵀ over 64 columns, from `column` on, of 16 rows and two groups of 8 partners. a: this lane's rows g and g + 8.
template <class T>
__device__ void multiply_rows(float (&acc)[2][4], const T* const (&a)[2], const PartnerRows<T>& b, int column, int dim,
                              bool wide) {
  const int g = threadIdx.x % 32 / 4;
#pragma unroll
  for (int part = 0; part < repaired_columns; part += 32) {
    const int mine = part + threadIdx.x % 4 * 8;
    const EightColumns x[2] = {{a[0], column + mine, dim, wide}, {a[1], column + mine, dim, wide}};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const EightColumns y(&b[8 * n + g][mine]);
#pragma unroll
      for (int w = 0; w < 4; w += 2) {
        ptx::mma_m16n8k16<T>(acc[n], {x[0].words[w], x[1].words[w], x[0].words[w + 1], x[1].words[w + 1]},
                             {y.words[w], y.words[w + 1]});
      }
    }
  }
}

// Sums over partners, weights · B, for 16 rows and 64 columns. A lane's acc[n][e] belongs to row g + 8 (e / 2) and column
// 8 (2t + e % 2) + n.
struct RepairSums {
  float acc[repaired_columns / 8][4] = {};

  // weights: of the lane's rows and partners, as accumulators; seen: of each row, a bit for each partner.
  template <class T>
  __device__ void add(const float (&weights)[2][4], const std::uint32_t (&seen)[2], const PartnerRows<T>& b) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
    // Where all rows see all partners, odd elements may stay: every row that they reach depends on them.
    const bool all_seen = __all_sync(all_lanes, (seen[0] & seen[1]) == all_partners);
    bool odd = false;
    std::uint32_t a[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float pair[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float weight = weights[w / 2][w % 2 * 2 + e];
        pair[e] = is_held<T>(weight) ? weight : 0.0f;
        odd = odd || !is_held<T>(weight);
      }
      a[w] = packed<T>(pair[0], pair[1]);
    }
    // partners 2t, 2t + 1, 2t + 8 and 2t + 9, columns 8g … 8g + 7
    EightColumns x[4] = {EightColumns(&b[t][8 * g]), EightColumns(&b[t + 1][8 * g]), EightColumns(&b[t + 8][8 * g]),
                         EightColumns(&b[t + 9][8 * g])};
#pragma unroll
    for (const EightColumns& columns : x) odd = odd || (!all_seen && columns.has_odd<T>());
    odd = __any_sync(all_lanes, odd);
    if (odd) {
#pragma unroll
      for (EightColumns& columns : x) columns.clear_odd<T>();
    }
#pragma unroll
    for (int n = 0; n < repaired_columns / 8; ++n) {
      const std::uint32_t halves = n % 2 == 0 ? 0x5410 : 0x7632;  // the lower, or the upper ones of two words
      ptx::mma_m16n8k16<T>(
          acc[n], a,
          {ptx::prmt(x[0].words[n / 2], x[1].words[n / 2], halves), ptx::prmt(x[2].words[n / 2], x[3].words[n / 2], halves)});
    }
    if (odd) add_odd(weights, seen, b);
  }

  // What is 0 in the products above, partner by partner, where a row sees it.
  template <class T>
  __device__ void add_odd(const float (&weights)[2][4], const std::uint32_t (&seen)[2], const PartnerRows<T>& b) {
    const int lane = threadIdx.x % 32, column = lane % 4 * 16;  // this lane's sums are of 16 columns
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll 1
        for (int t = 0; t < 4; ++t) {
          const int from = lane / 4 * 4 + t, partner = 8 * n + 2 * t + e;  // another lane has its weights
          float weight[2];
          bool sees[2], held[2];
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            weight[r] = __shfl_sync(all_lanes, weights[n][2 * r + e], from);
            sees[r] = (seen[r] >> partner & 1) != 0;
            held[r] = is_held<T>(weight[r]);
          }
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const EightColumns columns(&b[partner][column + 8 * c]);
            if (held[0] && held[1] && !columns.has_odd<T>()) continue;
            T x[repaired_columns / 8];
            memcpy(x, columns.words, sizeof(x));
#pragma unroll
            for (int m = 0; m < repaired_columns / 8; ++m) {
              const float value = to_float(x[m]);
#pragma unroll
              for (int r = 0; r < 2; ++r) {
                if (sees[r] && !(held[r] && is_finite(value))) acc[m][2 * r + c] += weight[r] * value;
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

// P and dS of this lane's rows and 16 partners of a head, as accumulators; seen: of each row, a bit for each partner.
// Afterwards shared memory holds the partners' columns from `column` on.
template <bool of_keys, class T>
__device__ void repair_weights(RepairSmem<T>& smem, float (&p)[2][4], float (&ds)[2][4], const std::uint32_t (&seen)[2],
                               const AnyShape& shape, const RepairInputs<T>& in, int batch, int kv_head, int head,
                               const int (&rows)[2], int first, int column) {
  const int warp = threadIdx.x / 32, t = threadIdx.x % 4 * 2, last = (of_keys ? shape.seq_q : shape.seq_k) - 1;
  const T *a[2], *of_a[2];
  float lse2[2][4], minus_delta[2][4];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    a[n] = of_keys ? in.k.row(batch, kv_head, rows[n]) : in.q.row(batch, head, rows[n]);
    of_a[n] = of_keys ? in.v.row(batch, kv_head, rows[n]) : in.d_o.row(batch, head, rows[n]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const std::int64_t at = in.statistics.at(shape, batch, head, of_keys ? first + 8 * n + t + e % 2 : rows[e / 2]);
      lse2[n][e] = load(&in.statistics.lse2[at]);
      minus_delta[n][e] = load(&in.statistics.minus_delta[at]);
    }
  }
  float s[2][4] = {}, dp[2][4] = {};
  const auto copy = [&](int of_copy) {
    __syncwarp();  // all lanes have read the columns before
    copy_partners(smem.of_scores[warp], of_keys ? in.q : in.k, batch, of_keys ? head : kv_head, first, last, of_copy, shape.dim,
                  in.wide);
    copy_partners(smem.of_dp[warp], of_keys ? in.d_o : in.v, batch, of_keys ? head : kv_head, first, last, of_copy, shape.dim,
                  in.wide);
    ptx::cp_async_wait_all();
    __syncwarp();  // what every lane has copied is there
  };
#pragma unroll 1
  for (int x = 0; x < shape.dim; x += repaired_columns) {  // in one order, so that a row has one dS for all its columns
    copy(x);
    multiply_rows(s, a, smem.of_scores[warp], x, shape.dim, in.wide);
    multiply_rows(dp, of_a, smem.of_dp[warp], x, shape.dim, in.wide);
  }
  if (column + repaired_columns < shape.dim) copy(column);  // later columns took their place
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = rows[e / 2], partner = 8 * n + t + e % 2;
      const int i = of_keys ? first + partner : row, j = of_keys ? row : first + partner;
      p[n][e] = ds[n][e] = 0.0f;
      if ((seen[e / 2] >> partner & 1) == 0) continue;
      const float kept = shape.kept(batch, head, i, j);
      p[n][e] = device::exp2_fast(s[n][e] * (shape.scale * device::log2_e) - lse2[n][e]);
      ds[n][e] = p[n][e] * (kept * dp[n][e] + minus_delta[n][e]);
      p[n][e] *= kept;
    }
  }
}

// smem.rows[from … from + count − 1], at most 16: dK and dV of keys of a key/value head, or dQ (`of_scores`) of queries of a
// head. A warp has every repair_warps-th group of partners.
template <bool of_keys, class T, class Pairs>
__device__ void repair_tile(RepairSmem<T>& smem, const AnyShape& shape, const Pairs& pairs, const RepairInputs<T>& in,
                            const Heads<T>& of_scores, const Heads<T>& dv, int batch, int kv_head, int head, int from,
                            int count) {
  const int *tile = &smem.rows[from], g = threadIdx.x % 32 / 4, warp = threadIdx.x / 32, group = shape.heads / shape.kv_heads;
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
      for (int first = begin_all / repair_partners * repair_partners + warp * repair_partners; first < end_all;
           first += repair_warps * repair_partners) {
        std::uint32_t seen[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int of_word = first / 32 * 32;
          const std::uint32_t word =
              of_keys ? pairs.queries(shape, batch, h, of_word, rows[r]) : pairs.keys(shape, batch, h, rows[r], of_word);
          seen[r] = word >> (first - of_word) & device::bits_between(begin[r] - first, end[r] - first) & all_partners;
        }
        if (!__any_sync(all_lanes, (seen[0] | seen[1]) != 0)) continue;
        float p[2][4], ds[2][4];
        repair_weights<of_keys>(smem, p, ds, seen, shape, in, batch, kv_head, h, rows, first, column);
        of_ds.add<T>(ds, seen, smem.of_scores[warp]);
        if constexpr (of_keys) of_p.add<T>(p, seen, smem.of_dp[warp]);
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
