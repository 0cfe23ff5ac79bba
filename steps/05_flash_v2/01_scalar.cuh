// 05_flash_v2, scalar: the algorithm alone.
//
// Step 04 walks over the keys in the outer loop and over the queries in the inner loop. So O, m and l go to global memory and
// back for every tile of keys. FlashAttention-2 exchanges the loops: a block keeps its tile of queries, with O, m and l in
// registers, and walks over the keys. O is divided by l once, in the epilogue. No block needs anything of another block. All
// arithmetic is fp32 and plain multiply-adds.
//
//   block   32 queries, 8 warps; tiles of 32 keys
//   warp    4 queries; a lane has the score of one key, and every 32nd column of O
//   Smem    q[32][dim]        in fp32, for the whole kernel
//           k[32][dim + 1]    one tile; a padded row begins one bank further, so that 32 lanes read 32 keys from 32 banks
//           v[32][dim]        the same tile
//
// What to expect: K and V are read once for 32 queries: 2 · Tr · seq_k · dim elements for Tr tiles of queries. O, m and l are
// never read. Shared memory is the bound, because four multiply-adds need five loads: at 128 bytes per cycle that is 0.8
// multiply-adds of a warp per cycle, where the SM can do four.
#pragma once

#include "common/device/flash_v2/tile.cuh"

namespace flash_v2 {

constexpr int scalar_rows = 32;  // queries of a block
constexpr int scalar_keys = 32;  // of a tile: one for each lane
constexpr int scalar_threads = 256;
constexpr int rows_of_warp = scalar_rows / (scalar_threads / 32);

template <int columns>
struct ScalarSmem {
  float q[scalar_rows][32 * columns];
  float k[scalar_keys][32 * columns + 1];
  float v[scalar_keys][32 * columns];
};

// Element t of row i of a head, as fp32; zero from row `rows` on.
template <class T>
__device__ float element_or_zero(const Heads<const T>& matrix, int batch, int head, int i, int t, int rows) {
  return i < rows ? to_float(load(&matrix.row(batch, head, i)[t])) : 0.0f;
}

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of scalar_threads. dim ≤ 32 · columns.
template <class T, int columns, class Shape = AttentionShape>
__global__ void __launch_bounds__(scalar_threads) flash_scalar(Shape shape,
                                                               Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                               Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                               Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                               Heads<T> o,        // [batch, heads, seq_q, dim]
                                                               float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<ScalarSmem<columns>>();
  const QueryTile tile = query_tile(shape, scalar_rows);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, scalar_keys);
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * rows_of_warp;        // the warp's first, within the tile
  const float scale_log2 = shape.scale * device::log2_e;  // of scores in base 2
  RowKeys rows[rows_of_warp];
#pragma unroll
  for (int r = 0; r < rows_of_warp; ++r) rows[r] = keys_of(shape, tile.first + row + r);

  // ---- prologue: Q ----
  for (int i = threadIdx.x / 32; i < scalar_rows; i += scalar_threads / 32) {
    for (int t = lane; t < shape.dim; t += 32) {
      smem.q[i][t] = element_or_zero(q, tile.batch, tile.head, tile.first + i, t, shape.seq_q);
    }
  }
  float acc[rows_of_warp][columns] = {};  // O, not yet divided
  SoftmaxState states[rows_of_warp];
  // [doc: scalar_loop]
  for (int j = tiles.end - 1; j >= tiles.begin; --j) {  // from right to left
    const int first = j * scalar_keys;
    // K, V
    for (int i = threadIdx.x / 32; i < scalar_keys; i += scalar_threads / 32) {
      for (int t = lane; t < shape.dim; t += 32) {
        smem.k[i][t] = element_or_zero(k, tile.batch, tile.kv_head, first + i, t, shape.seq_k);
        smem.v[i][t] = element_or_zero(v, tile.batch, tile.kv_head, first + i, t, shape.seq_k);
      }
    }
    __syncthreads();  // K and V, and before the first tile Q, are written before anyone reads them

    // S = Q K^T
    float p[rows_of_warp] = {};  // the scores of key first + lane; later their exponentials
    for (int t = 0; t < shape.dim; ++t) {
      const float key = smem.k[lane][t];
#pragma unroll
      for (int r = 0; r < rows_of_warp; ++r) p[r] += smem.q[row + r][t] * key;
    }
#pragma unroll
    for (int r = 0; r < rows_of_warp; ++r) {
      // row maximum
      const float score = rows[r].has(first + lane) ? p[r] * scale_log2 : -INFINITY;
      float row_max = fmaxf(states[r].m, score);
      for (int other = 16; other > 0; other /= 2) row_max = fmaxf(row_max, __shfl_xor_sync(all_lanes, row_max, other));
      const float factor = device::rescale_factor(states[r].m, row_max);
      // P = exp2(S - m); l, of this lane's keys, to which the epilogue adds the other lanes'
      p[r] = device::exp2_fast(score - device::safe_maximum(row_max));
      states[r] = {row_max, states[r].l * factor + p[r]};
      // dropout: P of some pairs becomes 0, l does not
      if constexpr (device::drops<Shape>) {
        if (!shape.dropout.keeps(tile.batch, tile.head, tile.first + row + r, first + lane)) p[r] = 0.0f;
      }
      // rescale
#pragma unroll
      for (int c = 0; c < columns; ++c) acc[r][c] *= factor;
    }
    // O += P V
    for (int key = 0; key < scalar_keys; ++key) {
      float value[columns];
#pragma unroll
      for (int c = 0; c < columns; ++c) value[c] = 32 * c + lane < shape.dim ? smem.v[key][32 * c + lane] : 0.0f;
#pragma unroll
      for (int r = 0; r < rows_of_warp; ++r) {
        const float probability = __shfl_sync(all_lanes, p[r], key);
        if (!rows[r].has(first + key)) continue;  // a key that the row does not see adds nothing, not even 0 · NaN
#pragma unroll
        for (int c = 0; c < columns; ++c) acc[r][c] += probability * value[c];
      }
    }
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }
  // [/doc: scalar_loop]

  // ---- epilogue: O and LSE ----
#pragma unroll
  for (int r = 0; r < rows_of_warp; ++r) {
    SoftmaxState state = states[r];
    for (int other = 16; other > 0; other /= 2) state.l += __shfl_xor_sync(all_lanes, state.l, other);
    const int i = tile.first + row + r;
    if (i >= shape.seq_q) continue;
    float inverse = device::inverse_sum(state.l);
    if constexpr (device::drops<Shape>) inverse *= shape.dropout.factor();
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const int column = 32 * c + lane;
      if (column < shape.dim) store(&o.row(tile.batch, tile.head, i)[column], from_float<T>(acc[r][c] * inverse));
    }
    if (lane == 0) {
      lse[(static_cast<std::int64_t>(tile.batch) * shape.heads + tile.head) * shape.seq_q + i] = device::log_sum_exp(state);
    }
  }
}

}  // namespace flash_v2
