// 06_backward, any_dim: any head dim up to 256, rows at any address.
// Predecessor: 06_transposed.cuh (option: any dim and any alignment)
//
// In shared memory rows are padded with zeros to 32, 64, 96, 128, 192 or 256 columns. Zeros add nothing to S and dP, and the
// columns of dQ, dK and dV that they make are not stored. Rows at multiples of 16 bytes come by cp.async: one that reads fewer
// bytes than it writes fills the rest with zeros. Other rows come element by element, through registers.
//
// Above 128 columns the accumulators of dK and dV do not fit into the registers of a warp. So two blocks share a tile of keys.
// Both compute all of S and dP, and each makes half of the columns of dK, dV and dQ.
//
//   block   64 keys of a key/value head, and of `columns` columns; tiles of 64 queries, of 32 above 128 columns
//   warp    Sᵀ, dPᵀ, dK and dV of 16 keys; dQ of 16 queries: where a tile has 32, of half of the block's columns
//   Smem    k, v[64][padded], q, d_o[rows][padded], ds[64][rows]: 104 KB at 256 columns
//
// What to expect: the speed of `transposed` times dim / padded dim; above 128 columns five sevenths of that, because two of the
// five products are made twice. Ten times `recompute`, which takes these dims elsewhere.
#pragma once

#include "common/device/backward/query_tiles.cuh"
#include "common/device/backward/slices.cuh"

namespace backward {

template <class T, int padded>
struct AnyDim {
  static constexpr int rows = padded > 128 ? 32 : 64;                           // queries of a tile
  static constexpr int columns = padded > 128 ? padded / 2 : padded;            // of dK, dV and dQ that a block makes
  static constexpr int parts = padded / columns;                                // blocks that share a tile of keys
  static constexpr int dq_columns = columns * rows / (16 * tile_threads / 32);  // of dQ that a warp makes
  struct Smem {
    Tile<T, tile_keys, padded> k;
    Tile<T, tile_keys, padded> v;
    Tile<T, rows, padded> q;
    Tile<T, rows, padded> d_o;
    Tile<T, tile_keys, rows> ds;
  };
};

// Do all rows of a tensor begin at multiples of 16 bytes?
template <class T>
__device__ bool has_chunks(const Heads<const T>& x) {
  const auto elements = static_cast<std::uint64_t>(x.batch_stride | x.head_stride | x.row_stride);
  return elements % chunk == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

// copy_tile for rows of `dim` elements: zeros stand behind them. `chunks`: rows begin at multiples of 16 bytes.
template <class T, int rows, int padded>
__device__ void copy_padded(Tile<T, rows, padded>& tile, const Heads<const T>& from, int batch, int head, int first, int end,
                            int dim, bool chunks) {
#pragma unroll 1
  for (int n = threadIdx.x; n < rows * padded / chunk; n += tile_threads) {
    const int r = n / (padded / chunk), t = n % (padded / chunk) * chunk;
    const int count = first + r < end ? max(0, min(dim - t, chunk)) : 0;  // elements that there are
    const T* elements = count > 0 ? &from.row(batch, head, first + r)[t] : from.data;
    if (chunks) {
      ptx::cp_async_16(&tile.at[r][t], elements, count * static_cast<int>(sizeof(T)));
    } else {
      T copied[chunk];
#pragma unroll
      for (int e = 0; e < chunk; ++e) copied[e] = device::load_if(e < count, &elements[e]);
      uint4 words;
      memcpy(&words, copied, sizeof(words));
      store(reinterpret_cast<uint4*>(&tile.at[r][t]), words);
    }
  }
}

// store_rows for columns from `column` on, as far as there are `dim`; rows may begin anywhere.
template <class T, int frags>
__device__ void store_padded(const Heads<T>& to, int batch, int head, int row, int end, int column, int dim, float factor,
                             const float (&acc)[frags][4], float* flag) {
#pragma unroll
  for (int e = 0; e < 4 * frags; ++e) {
    const int i = row + threadIdx.x % 32 / 4 + e % 4 / 2 * 8, t = column + e / 4 * 8 + threadIdx.x % 4 * 2 + e % 2;
    if (i >= end || t >= dim) continue;
    flag_non_finite(acc[e / 4][e % 4], flag);
    store(&to.row(batch, head, i)[t], from_float<T>(factor * acc[e / 4][e % 4]));
  }
}

// Grid: x over tiles of keys and the parts of each, y over key/value heads, z over the batch. Blocks of tile_threads.
template <class T, int padded, bool vector, class Shape = AttentionShape>
__global__ void __launch_bounds__(tile_threads) backward_any_dim(Shape shape,
                                                                 Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                 Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                 Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                 Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                 RowStatistics rows,
                                                                 float* dq_sums,  // [batch, heads, padded rows, padded]
                                                                 Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                                                                 Heads<T> dv) {   // [batch, kv_heads, seq_k, dim]
  using Sizes = AnyDim<T, padded>;
  constexpr bool drops = device::drops<Shape>;
  auto& smem = device::shared_storage<typename Sizes::Smem>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_key = blockIdx.x / Sizes::parts * tile_keys, first_column = blockIdx.x % Sizes::parts * Sizes::columns;
  const int kv_head = blockIdx.y, batch = blockIdx.z, group = shape.heads / shape.kv_heads;
  const int last_key = min(first_key + tile_keys, shape.seq_k) - 1;
  const float scale_log2 = shape.scale * device::log2_e;
  const int lane_key = first_key + 16 * warp + lane / 4;
  const bool chunks = has_chunks(q) && has_chunks(k) && has_chunks(v) && has_chunks(d_o);

  copy_padded(smem.k, k, batch, kv_head, first_key, shape.seq_k, shape.dim, chunks);
  copy_padded(smem.v, v, batch, kv_head, first_key, shape.seq_k, shape.dim, chunks);
  float acc_dk[1][Sizes::columns / 8][4] = {}, acc_dv[1][Sizes::columns / 8][4] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const int first_tile = shape.first_query(first_key) / Sizes::rows, end_query = shape.end_query(last_key);
    for (int first = first_tile * Sizes::rows; first < end_query; first += Sizes::rows) {
      copy_padded(smem.q, q, batch, head, first, shape.seq_q, shape.dim, chunks);
      copy_padded(smem.d_o, d_o, batch, head, first, shape.seq_q, shape.dim, chunks);
      ptx::cp_async_wait_all();
      __syncthreads();  // Q and dO, and before the first tile K and V, have come for everyone

      const std::int64_t row = rows.at(shape, batch, head, first);
#pragma unroll 1
      for (int part = 0; part < Sizes::rows; part += part_rows) {
        // S^T = K Q^T, dP^T = V dO^T
        float s[1][part_rows / 8][4] = {}, dp[1][part_rows / 8][4] = {};
        multiply_rows(s, smem.k, 16 * warp, smem.q, part);
        multiply_rows(dp, smem.v, 16 * warp, smem.d_o, part);
        // P = exp2(S - LSE), dS = P (dP - D)
        exponentiate(s[0], &rows.lse2[row + part], scale_log2);
        mask_probabilities(s[0], shape, lane_key, first + part);
        drop(s, shape, batch, head, first + part, first_key + 16 * warp);
        if constexpr (drops) {
          times_with_dropout(dp, s, &rows.minus_delta[row + part], shape.dropout.factor());
        } else {
          times_probabilities(dp[0], s[0], &rows.minus_delta[row + part]);
        }
        store_tile(smem.ds, 16 * warp, part, dp[0]);
        // dV += P^T dO, dK += dS^T Q
        std::uint32_t frag[part_rows / 16][1][4];
        pack_slices<T>(frag, s);
        if constexpr (drops) keep_positive<T>(frag);
        multiply_kept(acc_dv, frag, smem.d_o, part, first_column);
        pack_slices<T>(frag, dp);
        multiply_kept(acc_dk, frag, smem.q, part, first_column);
      }
      __syncthreads();  // dS is written for the warps that have queries; everyone has left Q and dO, which the next tile fills

      // dQ += dS K, of queries 16 · warp …, modulo the tile's
      const int query = 16 * warp % Sizes::rows, of_warp = first_column + 16 * warp / Sizes::rows * Sizes::dq_columns;
#pragma unroll
      for (int column = of_warp; column < of_warp + Sizes::dq_columns; column += 16) {
        float acc[1][2][4] = {};
        multiply_tile_columns(acc, smem.ds, query, smem.k, column);
        add_slices<vector, padded>(&dq_sums[row * padded], query, column, acc);
      }
    }
  }
  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  device::multiply_by_factor(acc_dv, shape);
  float* flag = rows.flag(shape, batch, kv_head);
  const int key = first_key + 16 * warp;
  store_padded(dk, batch, kv_head, key, shape.seq_k, first_column, shape.dim, shape.scale, acc_dk[0], flag);
  store_padded(dv, batch, kv_head, key, shape.seq_k, first_column, shape.dim, 1.0f, acc_dv[0], flag);
}

// The sums of dQ begin at 0: a thread has four. Blocks of convert_threads.
template <int threads>
__global__ void __launch_bounds__(threads) zero_sums(float* sums, std::int64_t count) {
  const std::int64_t n = (std::int64_t{blockIdx.x} * threads + threadIdx.x) * 4;
  if (n < count) store(reinterpret_cast<float4*>(&sums[n]), make_float4(0.0f, 0.0f, 0.0f, 0.0f));
}

// dQ = scale · its sums, in blocks as convert_blocks has them, of rows of `padded` columns. A thread has an element. Grid: x
// over them, y over heads, z over the batch.
template <class T>
__global__ void __launch_bounds__(convert_threads)
    convert_padded(AttentionShape shape, const float* dq_sums, RowStatistics rows, int padded,
                   Heads<T> dq) {  // [batch, heads, seq_q, dim]
  const std::int64_t n = std::int64_t{blockIdx.x} * convert_threads + threadIdx.x;
  const int head = blockIdx.y, batch = blockIdx.z;
  const int i = static_cast<int>(n / shape.dim), t = static_cast<int>(n % shape.dim);
  if (i >= shape.seq_q) return;
  const int in_block = 16 * (i % 16) + t % 8 / 2 * 4 + t % 16 / 8 * 2 + t % 2;
  const float sum = dq_sums[rows.at(shape, batch, head, i / 16 * 16) * padded + t / 16 * sums_block + in_block];
  flag_non_finite(sum, rows.flag(shape, batch, shape.kv_head(head)));
  store(&dq.row(batch, head, i)[t], from_float<T>(shape.scale * sum));
}

}  // namespace backward
