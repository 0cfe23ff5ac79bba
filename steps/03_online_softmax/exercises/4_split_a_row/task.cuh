// Exercise 4 of step 03: one row, several blocks.
//
// While a model writes a text it has one query and thousands of keys. With one block per query most SMs are idle. So the keys
// of each query are cut into parts of 32, a block of one warp for each. You write two kernels.
//
//   part_states   computes the state of a part, over the keys j of it that the query sees:
//                 m = max x_j,  l = Σ exp(x_j − m),  O = Σ exp(x_j − m) V_j.  The scores x_j come from score()
//   merge_parts   merges the states of each row's parts by ⊕, and stores O / l, and LSE = m + log l
//
// Between the two lies the end of a kernel: the only barrier for all blocks that a launch has for free. Write ⊕ yourself, with
// expf; do not call device::merge.
//
// A query sees the keys 0 … shape.visible_keys(i) − 1. So a part may be empty, with the state (−∞, 0, 0). And all parts of a
// row may be empty; then O is 0 and LSE is −∞.
//
// The grader checks O and LSE, also with a causal mask. At the default shape it counts the sectors of global memory, too: every
// part must read its own keys and values, and no others, and store its state once.
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

// Grid: over rows · parts. Blocks of 32 threads. Block row · parts + p computes the state of part p of a row.
__global__ void part_states(AttentionShape shape, int parts,
                            Heads<const float> q,  // [batch, heads, seq_q, dim]
                            Heads<const float> k,  // [batch, kv_heads, seq_k, dim]
                            Heads<const float> v,  // [batch, kv_heads, seq_k, dim]
                            float2* ml,            // [rows, parts]: m and l
                            float* o_parts) {      // [rows, parts, dim]: O, not divided by l
  auto& smem = device::shared_storage<Smem>();
  const int row = blockIdx.x / parts, part = blockIdx.x % parts;
  // Yours to write.
  (void)smem, (void)row, (void)part, (void)shape, (void)q, (void)k, (void)v, (void)ml, (void)o_parts;
}

// Grid: over rows. Blocks of 32 threads.
__global__ void merge_parts(AttentionShape shape, int parts,
                            const float2* ml,      // [rows, parts]: m and l
                            const float* o_parts,  // [rows, parts, dim]: O, not divided by l
                            Heads<float> o,        // [batch, heads, seq_q, dim]
                            float* lse) {          // [batch, heads, seq_q], which is [rows]
  const int row = blockIdx.x;
  // Yours to write.
  (void)row, (void)shape, (void)parts, (void)ml, (void)o_parts, (void)o, (void)lse;
}

}  // namespace exercise
