// 04_flash_v1: what all rungs share, which is the state of the rows in global memory and the kernels around Algorithm 1.
//
// FlashAttention (Dao et al. 2022), Algorithm 1, keeps three things of every query row in global memory, in fp32: m, the
// largest score among the keys seen so far; l, the sum of their exponentials; and O, the output over these keys, already
// divided by l. Its kernel reads and rewrites all three for every block of keys. `initialise` writes what a row has before it
// has seen a key, and `finish` turns the state into the output. Scores and m are in base 2 (common/device/online_softmax.cuh).
#pragma once

#include "common/device/dialect.h"
#include "common/device/online_softmax.cuh"
#include "common/device/shapes.h"
#include "steps/04_flash_v1/block_sizes.h"

namespace flash_v1 {

using device::AttentionShape;
using device::from_float;
using device::Heads;
using device::load;
using device::load_if;
using device::packed;
using device::store;
using device::store_if;
using device::to_float;

// ---- the rows' state ----

struct RowState {
  float* o;    // [batch, heads, seq_q, dim]
  float2* ml;  // [batch, heads, seq_q]: m, base 2, and l, side by side: what is read together lies together
};

// The index of a query among those of all heads.
__device__ inline std::int64_t state_row(const AttentionShape& shape, int batch, int head, int i) {
  return (std::int64_t(batch) * shape.heads + head) * shape.seq_q + i;
}

// The first row block with a query that sees `key` (line 7 begins there). Causal rows above it would be read and written back
// as they are.
__host__ __device__ inline int first_row_block(const AttentionShape& shape, int key, int block_rows) {
  const int first = shape.causal ? key + (shape.seq_q - shape.seq_k) : 0;
  return first > 0 ? first / block_rows * block_rows : 0;
}

// ---- the kernels around Algorithm 1 ----

constexpr int element_threads = 256;  // per block, where a thread takes an element of O

// Line 2. Grid: x over the elements of O; `rows` are those of all heads.
template <int threads>
__global__ void initialise(std::int64_t rows, int dim, RowState state) {
  const std::int64_t element = std::int64_t(blockIdx.x) * threads + threadIdx.x;
  if (element >= rows * dim) return;
  state.o[element] = 0.0f;
  if (element >= rows) return;
  store(&state.ml[element], make_float2(-INFINITY, 0.0f));
}

// O in the problem's dtype, and LSE. Grid: x over the elements of O.
template <class T, int threads>
__global__ void finish(AttentionShape shape, RowState state,
                       Heads<T> o,    // [batch, heads, seq_q, dim]
                       float* lse) {  // [batch, heads, seq_q]
  const std::int64_t rows = std::int64_t(shape.batch) * shape.heads * shape.seq_q;
  const std::int64_t element = std::int64_t(blockIdx.x) * threads + threadIdx.x;
  if (element >= rows * shape.dim) return;
  const std::int64_t row = element / shape.dim;
  const int t = element % shape.dim;
  const int i = row % shape.seq_q;
  const int head = row / shape.seq_q % shape.heads;
  const int batch = row / shape.seq_q / shape.heads;
  store(&o.row(batch, head, i)[t], from_float<T>(state.o[element]));
  if (element >= rows) return;
  const float2 ml = load(&state.ml[element]);
  lse[element] = device::log_sum_exp({ml.x, ml.y});
}

}  // namespace flash_v1
