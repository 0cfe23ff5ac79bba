// Exercise 4 of step 01: attention in one kernel, with five faults. The simulator reports each. Two show at the default shape,
// three where the queries, the keys or the columns do not fill a tile.
//
// S and P need no memory if each score is computed twice. A block takes 8 queries, 16 lanes each. It walks over the keys in
// tiles of 32, two times: first for the largest score of each row, then for exp(score − maximum), its sum, and O.
//
//   Smem   q[8][64]        the block's queries
//          k_tile[32][65]  keys; the spare column puts the keys that 16 lanes read on 16 banks
//          v_tile[32][64]  their values
//          p[8][32]        exp(score − maximum) of the queries with these keys
//
// Columns from dim to the next multiple of 16 are zero, and so are queries beyond seq_q: threads without a query go along, and
// store nothing.
#pragma once

#include "common/device/dialect.h"
#include "common/device/shapes.h"

namespace exercise {

using device::AttentionShape;
using device::Heads;

constexpr int queries = 8;     // of a block
constexpr int row_lanes = 16;  // threads that share a query: half a warp
constexpr int threads = queries * row_lanes;
constexpr int tile_keys = 32;
constexpr int max_dim = 64;  // a multiple of row_lanes

struct Smem {
  float q[queries][max_dim];
  float k_tile[tile_keys][max_dim + 1];
  float v_tile[tile_keys][max_dim];
  float p[queries][tile_keys];
};

struct Maximum {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Combines one value per lane of a row; each lane of the row gets the result. All lanes of the warp must call it.
template <class Combine>
__device__ float row_reduce(float value, Combine combine) {
  for (int distance = row_lanes / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// Query `row` of the block times key j of the tile.
__device__ float dot(const Smem& smem, int row, int j, int columns) {
  float sum = 0.0f;
  for (int t = 0; t < columns; ++t) sum += smem.q[row][t] * smem.k_tile[j][t];
  return sum;
}

// Grid: x over blocks of `queries` queries, y over heads, z over the batch. Blocks of `threads`.
__global__ void attention(AttentionShape shape,
                          Heads<const float> q,  // [batch, heads, seq_q, dim]
                          Heads<const float> k,  // [batch, kv_heads, seq_k, dim]
                          Heads<const float> v,  // [batch, kv_heads, seq_k, dim]
                          Heads<float> o,        // [batch, heads, seq_q, dim]
                          float* lse) {          // [batch, heads, seq_q]
  auto& smem = device::shared_storage<Smem>();
  const int row = threadIdx.x / row_lanes;
  const int lane = threadIdx.x % row_lanes;
  const int i = blockIdx.x * queries + row;
  const int head = blockIdx.y;
  const int kv_head = shape.kv_head(head);
  const int batch = blockIdx.z;
  const int visible = shape.visible_keys(i);
  const int columns = device::ceil_div(shape.dim, row_lanes) * row_lanes;  // of the tiles; those from dim on are zero

  const float* q_row = q.row(batch, head, i);         // [dim], if there is such a query
  const int given = i < shape.seq_q ? shape.dim : 0;  // columns; the others are zero
  for (int t = lane; t < shape.dim; t += row_lanes) smem.q[row][t] = t < given ? q_row[t] : 0.0f;

  float row_max = -INFINITY;
  for (int first = 0; first < shape.seq_k; first += tile_keys) {
    for (int j = row; j < tile_keys && first + j < shape.seq_k; j += queries) {
      const float* k_row = k.row(batch, kv_head, first + j);  // [dim]
      for (int t = lane; t < columns; t += row_lanes) smem.k_tile[j][t] = t < shape.dim ? k_row[t] : 0.0f;
    }
    __syncthreads();  // the queries and the keys are written before anyone reads them
    for (int j = lane; j < tile_keys && first + j < visible; j += row_lanes) {
      row_max = fmaxf(row_max, shape.scale * dot(smem, row, j, columns));
    }
  }
  if (i < shape.seq_q) row_max = row_reduce(row_max, Maximum{});
  if (row_max == -INFINITY) row_max = 0.0f;  // no visible key: −∞ − (−∞) would be NaN, −∞ − 0 is still −∞

  float row_sum = 0.0f;
  float o_sums[max_dim / row_lanes] = {};  // of columns lane, lane + row_lanes, …
  for (int first = 0; first < shape.seq_k; first += tile_keys) {
    __syncthreads();  // everyone has read the keys and values before these overwrite them
    for (int j = row; j < tile_keys && first + j < shape.seq_k; j += queries) {
      const float* k_row = k.row(batch, kv_head, first + j);  // [dim]
      for (int t = lane; t < columns; t += row_lanes) smem.k_tile[j][t] = t < shape.dim ? k_row[t] : 0.0f;
    }
    for (int j = row; j < tile_keys && first + j <= shape.seq_k; j += queries) {
      const float* v_row = v.row(batch, kv_head, first + j);  // [dim]
      for (int t = lane; t < columns; t += row_lanes) smem.v_tile[j][t] = t < shape.dim ? v_row[t] : 0.0f;
    }
    __syncthreads();  // the keys and values are written before anyone reads them
    for (int j = lane; j < tile_keys && first + j < visible; j += row_lanes) {
      const float p = expf(shape.scale * dot(smem, row, j, columns) - row_max);
      smem.p[row][j] = p;
      row_sum += p;
    }
    for (int j = 0; j < tile_keys && first + j < visible; ++j) {
      for (int n = 0; n < columns / row_lanes; ++n) o_sums[n] += smem.p[row][j] * smem.v_tile[j][lane + n * row_lanes];
    }
  }
  row_sum = row_reduce(row_sum, Sum{});

  if (i < shape.seq_q) {
    const float factor = row_sum == 0.0f ? 0.0f : 1.0f / row_sum;  // a row that sees no key has O = 0
    for (int t = lane; t < shape.dim; t += row_lanes) o.row(batch, head, i)[t] = o_sums[t / row_lanes] * factor;
    if (lane == 0) lse[(std::size_t(batch) * shape.heads + head) * shape.seq_q + i] = row_max + logf(row_sum);
  }
}

}  // namespace exercise
