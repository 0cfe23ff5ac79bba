// Step 06: NaN and infinity reach the rows that depend on them, and no others.
//
// A masked pair has P = dS = 0. But a product of tiles multiplies these zeros with rows of dO, Q and K, and 0 · NaN is NaN: an
// element that is not finite reaches rows of its tile that do not depend on it. It always leaves a NaN behind, and so a kernel
// can see that something may have happened: where dQ, dK or dV is not finite, it raises a flag for the key/value head. One more
// kernel looks at the flags. Nearly always all are 0, and it ends at once. Otherwise it reads dQ, dK and dV of those heads. An
// element that is not finite is right if something explains it, which is a question to the inputs alone. A row with an element
// that nothing explains is computed again, without the masked pairs (repair_tile.cuh).
//
// So one ∞ costs the look, and beside it the rows of the tiles that it fell into. What explains an element, where query i sees
// key j (a NaN in LSE is one in a score; D = dO · O has what is not finite in dO, in O, and so in V):
//
//   dQ[i][t]   LSE[i] is NaN, or D[i] is not finite; or K[j][t] is not finite
//   dK[j][t]   LSE[i] is NaN, or D[i] is not finite; or Q[i][t] is not finite, with an LSE of −∞
//   dV[j][t]   LSE[i] is NaN; or dO[i][t] is not finite
#pragma once

#include "common/device/backward/repair_tile.cuh"
#include "common/device/dialect.h"

namespace backward {

constexpr int row_words = 8;  // of 32 columns: head dims up to 256

// Which pairs a sparse mask leaves, beside causal masks, windows and sequences: here all.
struct AllPairs {
  // Of queries first … first + 31 with key j, and of query i with keys first … first + 31, as bits; `first` is a multiple
  // of 32.
  __device__ std::uint32_t queries(const AnyShape&, int /*batch*/, int /*head*/, int /*first*/, int /*j*/) const { return ~0u; }
  __device__ std::uint32_t keys(const AnyShape&, int /*batch*/, int /*head*/, int /*i*/, int /*first*/) const { return ~0u; }
};

// 32 rows of a head, one for each lane. What one odd element spoils are neighbours, so those of a warp lie far apart: the work
// of repairing them is spread.
struct WarpRows {
  int first, apart, count;  // first, first + apart, …
  __device__ WarpRows(int word, int rows) : first(word), apart(ceil_div(rows, 32)), count(ceil_div(rows - word, apart)) {}
  __device__ int of(int lane) const { return first + min(lane, count - 1) * apart; }  // a lane too many has the last one, too
  __device__ bool has(int lane) const { return lane < count; }
};

// So many rows at a time, and so many words of 32 columns: their loads do not wait for each other.
constexpr int rows_at_once = 4;
constexpr int words_at_once = 4;

// Which columns of some rows are not finite, for the whole warp. Calls f for each word of 32 columns, with a word for each row.
template <class T, class F>
__device__ void find_odd(const T* const (&rows)[rows_at_once], int dim, F f) {
#pragma unroll
  for (int first = 0; first < row_words; first += words_at_once) {
    if (32 * first >= dim) continue;
    T x[words_at_once][rows_at_once];
#pragma unroll
    for (int w = 0; w < words_at_once; ++w) {
      const int t = 32 * (first + w) + threadIdx.x % 32;
#pragma unroll
      for (int n = 0; n < rows_at_once; ++n) x[w][n] = load_if(t < dim, &rows[n][t]);
    }
#pragma unroll
    for (int w = 0; w < words_at_once; ++w) {
      std::uint32_t odd[rows_at_once];
#pragma unroll
      for (int n = 0; n < rows_at_once; ++n) odd[n] = __ballot_sync(all_lanes, !is_finite(to_float(x[w][n])));
      f(first + w, odd);
    }
  }
}

// The columns of a lane's row that are not finite, and that nothing has explained so far.
struct OddColumns {
  std::uint32_t words[row_words] = {};

  template <class T>
  __device__ OddColumns(const Heads<T>& x, int batch, int head, const WarpRows& rows, int dim) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int first = 0; first < rows.count; first += rows_at_once) {
      const T* some[rows_at_once];
#pragma unroll
      for (int n = 0; n < rows_at_once; ++n) some[n] = x.row(batch, head, rows.of(first + n));
      find_odd(some, dim, [&](int w, const std::uint32_t(&odd)[rows_at_once]) {
#pragma unroll
        for (int n = 0; n < rows_at_once; ++n) words[w] = lane == first + n ? odd[n] : words[w];
      });
    }
  }
  __device__ bool any() const {
    std::uint32_t columns = 0;
#pragma unroll
    for (const std::uint32_t word : words) columns |= word;
    return columns != 0;
  }
  // All of them are explained, if so; or those that are odd in other rows, of partners.
  __device__ void clear_if(bool explained) {
#pragma unroll
    for (std::uint32_t& word : words) word = explained ? 0 : word;
  }
  template <class T>
  __device__ void clear_if(const bool (&depends)[rows_at_once], const T* const (&partners)[rows_at_once], int dim) {
    find_odd(partners, dim, [&](int w, const std::uint32_t(&odd)[rows_at_once]) {
#pragma unroll
      for (int n = 0; n < rows_at_once; ++n) words[w] &= depends[n] ? ~odd[n] : ~0u;
    });
  }
};

// So many partners at a time: their loads do not wait for each other.
constexpr int look_at = 128;

// The keys of a warp: true in the lanes whose key has an element of dK or dV that nothing explains.
template <class T, class Pairs>
__device__ bool is_spoiled_key(const AnyShape& shape, const Pairs& pairs, const RepairInputs<T>& in, const Heads<T>& dk,
                               const Heads<T>& dv, int batch, int kv_head, const WarpRows& keys) {
  OddColumns of_dk(dk, batch, kv_head, keys, shape.dim), of_dv(dv, batch, kv_head, keys, shape.dim);
  const int lane = threadIdx.x % 32, group = shape.heads / shape.kv_heads, j = keys.of(lane);
  const int begin = shape.first_query(j), end = shape.end_query(j);
  const int begin_all = shape.first_query(keys.of(0)) / look_at * look_at, end_all = shape.end_query(keys.of(31));
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    // the last queries first: under a causal mask they see most keys
    for (int first = (end_all - 1) / look_at * look_at; first >= begin_all; first -= look_at) {
      // Those of a key that sees no more queries stay.
      const bool goes_on = first + look_at > begin && (of_dk.any() || of_dv.any());
      if (!__any_sync(all_lanes, goes_on)) continue;
      float lse2[look_at / 32], minus_delta[look_at / 32];  // of queries beyond the last, too: +∞, and 0
#pragma unroll
      for (int n = 0; n < look_at / 32; ++n) {
        const std::int64_t at = in.statistics.at(shape, batch, head, first + 32 * n + lane);
        lse2[n] = load(&in.statistics.lse2[at]);
        minus_delta[n] = load(&in.statistics.minus_delta[at]);
      }
#pragma unroll
      for (int n = 0; n < look_at / 32; ++n) {
        const int from = first + 32 * n;
        const std::uint32_t odd_lse = __ballot_sync(all_lanes, is_nan(lse2[n]));
        const std::uint32_t odd_d = __ballot_sync(all_lanes, !is_finite(minus_delta[n]));
        const std::uint32_t empty = __ballot_sync(all_lanes, lse2[n] == INFINITY && from + lane < shape.seq_q);
        if ((odd_lse | odd_d | empty) == 0) continue;
        const std::uint32_t seen = device::bits_between(begin - from, end - from) & pairs.queries(shape, batch, head, from, j);
        of_dk.clear_if((seen & (odd_lse | odd_d)) != 0);
        of_dv.clear_if((seen & odd_lse) != 0);
        const auto by_columns = [&](OddColumns& columns, std::uint32_t queries, const Heads<const T>& x) {
          while (queries != 0) {
            int i = 0;
            bool depends[rows_at_once];
            const T* some[rows_at_once];
#pragma unroll
            for (int m = 0; m < rows_at_once; ++m) {  // where there are no more, the last one again
              i = queries != 0 ? __ffs(static_cast<int>(queries)) - 1 : i;
              queries &= queries - 1;
              depends[m] = (seen >> i & 1) != 0;
              some[m] = x.row(batch, head, from + i);
            }
            if (__any_sync(all_lanes, from + i >= begin && columns.any())) columns.clear_if(depends, some, shape.dim);
          }
        };
        by_columns(of_dv, odd_d, in.d_o);
        by_columns(of_dk, empty, in.q);
      }
    }
  }
  return keys.has(lane) && (of_dk.any() || of_dv.any());
}

// The same of queries and dQ. A row is spoiled if K explains not even its first odd column, so columns are looked at in turn.
template <class T, class Pairs>
__device__ bool is_spoiled_query(const AnyShape& shape, const Pairs& pairs, const RepairInputs<T>& in, const Heads<T>& dq,
                                 int batch, int head, const WarpRows& queries) {
  OddColumns of_dq(dq, batch, head, queries, shape.dim);
  const int lane = threadIdx.x % 32, kv_head = shape.kv_head(head), i = queries.of(lane);
  const std::int64_t at = in.statistics.at(shape, batch, head, i);
  of_dq.clear_if(is_nan(load(&in.statistics.lse2[at])) || !is_finite(load(&in.statistics.minus_delta[at])) ||
                 !queries.has(lane));
  const int begin = shape.first_key(i), end = shape.end_key(i);
  const int begin_all = shape.first_key(queries.of(0)) / look_at * look_at, end_all = shape.end_key(queries.of(31));
  bool spoiled = false;
#pragma unroll
  for (int w = 0; w < row_words; ++w) {
    for (std::uint32_t done = 0;;) {
      const std::uint32_t mine = spoiled ? 0 : of_dq.words[w] & ~done;
      std::uint32_t columns = mine;  // of any lane
      for (int distance = 16; distance > 0; distance /= 2) columns |= __shfl_xor_sync(all_lanes, columns, distance);
      if (columns == 0) break;
      const std::uint32_t column = columns & -columns;
      const int t = 32 * w + __ffs(static_cast<int>(columns)) - 1;
      bool explained = (mine & column) == 0;
      for (int first = begin_all; first < end_all && !__all_sync(all_lanes, explained); first += look_at) {
        bool odd[look_at / 32];
#pragma unroll
        for (int n = 0; n < look_at / 32; ++n) {
          const int j = first + 32 * n + lane;
          odd[n] = j < shape.seq_k && !is_finite(to_float(load(&in.k.row(batch, kv_head, min(j, shape.seq_k - 1))[t])));
        }
#pragma unroll
        for (int n = 0; n < look_at / 32; ++n) {
          const int from = first + 32 * n;
          const std::uint32_t keys = __ballot_sync(all_lanes, odd[n]) & device::bits_between(begin - from, end - from);
          explained = explained || (keys != 0 && (keys & pairs.keys(shape, batch, head, i, from)) != 0);
        }
      }
      spoiled |= !explained;
      done |= column;
    }
  }
  return spoiled;
}

// The n-th chunk of rows, two words of 32 for each warp: of the keys of a key/value head, or of the queries of one of its
// heads.
struct RowsOfHead {
  int batch, kv_head, head;  // head: −1 for keys
  int first_word, rows;

  __host__ __device__ static int chunks_of(int rows) { return ceil_div(rows, 32 * words_of_chunk); }
  __host__ __device__ static int chunks(const AttentionShape& shape) {  // of a key/value head
    return chunks_of(shape.seq_k) + shape.heads / shape.kv_heads * chunks_of(shape.seq_q);
  }
  __device__ static RowsOfHead at(const AttentionShape& shape, std::int64_t n) {
    const int heads = static_cast<int>(n / chunks(shape)), rest = static_cast<int>(n % chunks(shape));
    const int batch = heads / shape.kv_heads, kv_head = heads % shape.kv_heads;
    const int of_keys = chunks_of(shape.seq_k), of_queries = chunks_of(shape.seq_q);
    if (rest < of_keys) return {batch, kv_head, -1, rest * words_of_chunk, shape.seq_k};
    const int head = kv_head * (shape.heads / shape.kv_heads) + (rest - of_keys) / of_queries;
    return {batch, kv_head, head, (rest - of_keys) % of_queries * words_of_chunk, shape.seq_q};
  }
  __device__ bool has_word(int n) const { return first_word + n < ceil_div(rows, 32); }
  __device__ WarpRows of_word(int n) const { return WarpRows(first_word + n, rows); }
};

// A warp looks at 32 rows at a time; then the block repairs what its warps have found, 16 rows at a time. Grid: x, as many
// blocks as are worth while. Blocks of repair_warps.
template <class T, class Pairs>
__global__ void __launch_bounds__(32 * repair_warps, 2) repair_rows(AnyShape shape, Pairs pairs, RepairInputs<T> in,
                                                                    Heads<T> dq,    // [batch, heads, seq_q, dim]
                                                                    Heads<T> dk,    // [batch, kv_heads, seq_k, dim]
                                                                    Heads<T> dv) {  // [batch, kv_heads, seq_k, dim]
  const int heads = shape.batch * shape.kv_heads;
  bool flag = false;  // of any head
#pragma unroll 4
  for (int head = threadIdx.x; head < heads; head += 32 * repair_warps) flag |= in.statistics.not_finite[head] != 0.0f;
  if (!__syncthreads_or(flag)) return;

  auto& smem = device::shared_storage<RepairSmem<T>>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t chunks = std::int64_t{heads} * RowsOfHead::chunks(shape);
  for (std::int64_t n = blockIdx.x; n < chunks; n += gridDim.x) {
    const RowsOfHead of = RowsOfHead::at(shape, n);
    if (load(in.statistics.flag(shape, of.batch, of.kv_head)) == 0.0f) continue;
      // ---- each warp looks for spoiled rows ----
#pragma unroll 1
    for (int word = warp; word < words_of_chunk; word += repair_warps) {
      bool is_spoiled = false;
      if (of.has_word(word)) {
        is_spoiled = of.head < 0 ? is_spoiled_key(shape, pairs, in, dk, dv, of.batch, of.kv_head, of.of_word(word))
                                 : is_spoiled_query(shape, pairs, in, dq, of.batch, of.head, of.of_word(word));
      }
      const std::uint32_t spoiled = __ballot_sync(all_lanes, is_spoiled);
      if (lane == 0) smem.spoiled[word] = spoiled;
    }
    __syncthreads();  // every warp has marked its own
    // ---- a list of them ----
    int count = 0;
#pragma unroll 1
    for (int word = 0; word < words_of_chunk; ++word) {
      const std::uint32_t spoiled = smem.spoiled[word];
      if (word % repair_warps == warp && (spoiled >> lane & 1) != 0) {
        smem.rows[count + __popc(spoiled & device::bits_between(0, lane))] = of.of_word(word).of(lane);
      }
      count += __popc(spoiled);
    }
    __syncthreads();  // the list is there, and the marks have been read
    // ---- the block repairs them ----
    for (int from = 0; from < count; from += repaired_rows) {
      const int of_tile = min(count - from, repaired_rows);
      if (of.head < 0) {
        repair_tile<true>(smem, shape, pairs, in, dk, dv, of.batch, of.kv_head, of.head, from, of_tile);
      } else {
        repair_tile<false>(smem, shape, pairs, in, dq, dv, of.batch, of.kv_head, of.head, from, of_tile);
      }
    }
  }
}

}  // namespace backward
