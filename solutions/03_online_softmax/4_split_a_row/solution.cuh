// Exercise 4 of step 03, solved: a lane has the score of one key, then some elements of O. ⊕ is written for one element of O.
#pragma once

#include "common/device/dialect.h"
#include "common/device/shapes.h"

namespace exercise {

using device::AttentionShape;
using device::Heads;
using device::load;
using device::store;

constexpr int part_keys = 32;

struct Smem {
  float p[part_keys];  // exp(x − m) of the part's keys
};

// Whose row it is: rows are counted over batch entries, heads and queries.
struct Query {
  int batch, head, i;
};
__device__ inline Query query_of(const AttentionShape& shape, int row) {
  return {row / (shape.heads * shape.seq_q), row / shape.seq_q % shape.heads, row % shape.seq_q};
}

// The score of a query and a key: scale · q · k.
__device__ inline float score(const AttentionShape& shape, const float* q_row, const float* k_row) {
  float dot = 0.0f;
  for (int t = 0; t < shape.dim; ++t) dot += q_row[t] * k_row[t];
  return shape.scale * dot;
}

// What to subtract from scores whose maximum is m: 0 if there are none, since −∞ − (−∞) would be NaN and exp(−∞ − 0) is 0.
__device__ inline float subtracted(float m) { return m == -INFINITY ? 0.0f : m; }

// Grid: over rows · parts. Blocks of 32 threads. Block row · parts + p computes the state of part p of a row.
__global__ void part_states(AttentionShape shape, int parts,
                            Heads<const float> q,  // [batch, heads, seq_q, dim]
                            Heads<const float> k,  // [batch, kv_heads, seq_k, dim]
                            Heads<const float> v,  // [batch, kv_heads, seq_k, dim]
                            float2* ml,            // [rows, parts]: m and l
                            float* o_parts) {      // [rows, parts, dim]: O, not divided by l
  auto& smem = device::shared_storage<Smem>();
  const int lane = threadIdx.x;
  const int row = blockIdx.x / parts, part = blockIdx.x % parts;
  const Query query = query_of(shape, row);
  const int kv_head = shape.kv_head(query.head);
  const int first_key = part * part_keys;
  const int keys = min(part_keys, shape.visible_keys(query.i) - first_key);  // of the part that the query sees; 0 or less: none

  float x = -INFINITY;
  if (lane < keys) x = score(shape, q.row(query.batch, query.head, query.i), k.row(query.batch, kv_head, first_key + lane));
  // row maximum
  float m = x;
  for (int distance = 16; distance > 0; distance /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, distance));
  // P = exp(S - m), row sum
  const float p = expf(x - subtracted(m));
  float l = p;
  for (int distance = 16; distance > 0; distance /= 2) l += __shfl_xor_sync(0xffffffffu, l, distance);
  smem.p[lane] = p;
  __syncwarp();  // all of P is written before any lane reads it
  // O = P V
  for (int t = lane; t < shape.dim; t += 32) {
    float o = 0.0f;
    for (int c = 0; c < keys; ++c) o += smem.p[c] * v.row(query.batch, kv_head, first_key + c)[t];
    o_parts[std::int64_t(blockIdx.x) * shape.dim + t] = o;
  }
  if (lane == 0) store(&ml[blockIdx.x], make_float2(m, l));
}

struct State {
  float m, l, o;  // o: one element of O
};
__device__ inline State merge(State a, State b) {
  const float m = fmaxf(a.m, b.m);
  const float f_a = expf(a.m - subtracted(m)), f_b = expf(b.m - subtracted(m));
  return {m, f_a * a.l + f_b * b.l, f_a * a.o + f_b * b.o};
}

// Grid: over rows. Blocks of 32 threads.
__global__ void merge_parts(AttentionShape shape, int parts,
                            const float2* ml,      // [rows, parts]: m and l
                            const float* o_parts,  // [rows, parts, dim]: O, not divided by l
                            Heads<float> o,        // [batch, heads, seq_q, dim]
                            float* lse) {          // [batch, heads, seq_q], which is [rows]
  const int row = blockIdx.x;
  const Query query = query_of(shape, row);
  for (int t = threadIdx.x; t < shape.dim; t += 32) {
    State state = {-INFINITY, 0.0f, 0.0f};
    for (int p = 0; p < parts; ++p) {
      const std::int64_t at = std::int64_t(row) * parts + p;
      const float2 part = load(&ml[at]);
      state = merge(state, {part.x, part.y, o_parts[at * shape.dim + t]});
    }
    o.row(query.batch, query.head, query.i)[t] = state.l == 0.0f ? 0.0f : state.o / state.l;
    if (t == 0) lse[row] = state.l == 0.0f ? -INFINITY : state.m + logf(state.l);
  }
}

}  // namespace exercise
