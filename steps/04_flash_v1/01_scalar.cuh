// 04_flash_v1, scalar: FlashAttention's Algorithm 1, as published.
//
// Step 01 wrote S and P to global memory and read them again: N² elements four times. Here a block of S exists only in shared
// memory. That needs only the softmax of step 03, which takes a row's scores block by block. The loops are the paper's: K and V
// in the outer loop, read once; Q in the inner loop. So each row's O, l and m must stay in global memory between two visits.
// The comments give the paper's line numbers.
//
//   block   one for each head and batch entry, 8 warps. The paper has one loop over heads, and does not say who runs it
//   warp    rows w, w + 8, … of the row block: a row's maximum and sum stay within one warp
//   lane    keys of a row of S and P; then elements of the row of O
//   Smem    q, o [Br][d]   k [Bc][d + 1] (a column of it lies in 32 banks)   v [Bc][d]   s [Br][Bc]: S, then P   ml [Br]
//
// What to expect: each pass over the queries moves Q once, and O twice in fp32. There are ⌈N / Bc⌉ passes, so more shared
// memory means less traffic. The time is 42 ms or more for 16 heads of 4096 tokens at d = 64, because each multiply-add takes
// 1.25 accesses of shared memory, and 16 heads keep 16 SMs of 132 busy.
#pragma once

#include "steps/04_flash_v1/paper.cuh"

namespace flash_v1 {

constexpr int scalar_warps = 8;
constexpr int scalar_threads = 32 * scalar_warps;

// The block sizes for this many bytes of shared memory and head dims up to max_dim.
template <int smem_bytes, int max_dim>
struct Budget {
  static constexpr int bytes = smem_bytes;
  static constexpr int dim = max_dim;
  static constexpr BlockSizes sizes = sizes_that_fit(smem_bytes / 4, max_dim);
  static constexpr int rows = sizes.rows;  // Br
  static constexpr int keys = sizes.keys;  // Bc
};

template <class Budget>
struct ScalarSmem {
  float k[Budget::keys][Budget::dim + 1];
  float v[Budget::keys][Budget::dim];
  float q[Budget::rows][Budget::dim];
  float o[Budget::rows][Budget::dim];
  float s[Budget::rows][Budget::keys];
  float2 ml[Budget::rows];
};

__device__ inline float warp_maximum(float x) {
  for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, distance));
  return x;
}
__device__ inline float warp_sum(float x) {
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffff, x, distance);
  return x;
}

// Line 12 for one element of O: joins the O of the earlier keys, whose sum is l_before, with P̃V of this block.
struct PapersUpdate {
  __device__ float operator()(const device::MergedSoftmax& merged, float l_before, float o, float pv) const {
    return (merged.first * l_before * o + merged.second * pv) * device::inverse_sum(merged.state.l);
  }
};

// Lines 9 to 13 for row r of the row block, query i, by one warp: the block's keys join the row's state.
template <class Budget, class Update>
__device__ void update_row(ScalarSmem<Budget>& smem, const AttentionShape& shape, int r, int i, int first_key, int keys,
                           float scale_log2, Update update) {
  const int lane = threadIdx.x % 32;
  const int visible = min(keys, shape.visible_keys(i) - first_key);
  if (visible <= 0) return;
  device::SoftmaxState tile;  // m̃, l̃: of this block's keys alone

  // [doc: update_row]
  // S = Q K^T, row maximum
  for (int c = lane; c < visible; c += 32) {
    float dot = 0.0f;
    for (int t = 0; t < shape.dim; ++t) dot += smem.q[r][t] * smem.k[c][t];
    smem.s[r][c] = scale_log2 * dot;  // line 9
    tile.m = fmaxf(tile.m, scale_log2 * dot);
  }
  tile.m = warp_maximum(tile.m);  // line 10, and the next two
  // P = exp2(S - m), row sum
  for (int c = lane; c < visible; c += 32) {
    const float p = device::exp2_fast(smem.s[r][c] - device::safe_maximum(tile.m));
    smem.s[r][c] = p;
    tile.l += p;
  }
  tile.l = warp_sum(tile.l);
  // [/doc: update_row]

  const float2 ml = load(&smem.ml[r]);
  const device::SoftmaxState before{ml.x, ml.y};
  const device::MergedSoftmax merged = device::merge(before, tile);  // line 11
  __syncwarp();  // the row of P is written before any lane reads it; every lane has read m and l before lane 0 writes them
  // O += P V, each rescaled to the new maximum
  for (int t = lane; t < shape.dim; t += 32) {
    float pv = 0.0f;
    for (int c = 0; c < visible; ++c) pv += smem.s[r][c] * smem.v[c][t];
    smem.o[r][t] = update(merged, before.l, smem.o[r][t], pv);  // line 12
  }
  store_if(lane == 0, &smem.ml[r], make_float2(merged.state.m, merged.state.l));  // line 13
}

// Grid: x over heads, y over the batch. Blocks of scalar_threads.
template <class T, class Budget, class Update>
__global__ void __launch_bounds__(scalar_threads) algorithm_1(AttentionShape shape,
                                                              Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                              Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                              Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                              RowState state) {
  static_assert(sizeof(ScalarSmem<Budget>) == 4 * all_words(Budget::sizes, Budget::dim) &&
                sizeof(ScalarSmem<Budget>) <= Budget::bytes && Budget::keys > 0 && Budget::rows <= scalar_threads);
  auto& smem = device::shared_storage<ScalarSmem<Budget>>();
  const int head = blockIdx.x;
  const int batch = blockIdx.y;
  const int warp = threadIdx.x / 32;
  const int dim = shape.dim;
  const float scale_log2 = shape.scale * device::log2_e;  // scores are in base 2

  for (int first_key = 0; first_key < shape.seq_k; first_key += Budget::keys) {  // line 5: j
    const int keys = min(Budget::keys, shape.seq_k - first_key);
    for (int e = threadIdx.x; e < keys * dim; e += scalar_threads) {  // line 6: K_j, V_j
      const int c = e / dim, t = e % dim;
      smem.k[c][t] = to_float(load(&k.row(batch, shape.kv_head(head), first_key + c)[t]));
      smem.v[c][t] = to_float(load(&v.row(batch, shape.kv_head(head), first_key + c)[t]));
    }
    for (int first_row = first_row_block(shape, first_key, Budget::rows); first_row < shape.seq_q;
         first_row += Budget::rows) {  // line 7: i
      const int rows = min(Budget::rows, shape.seq_q - first_row);
      const std::int64_t block = state_row(shape, batch, head, first_row);

      // [doc: row_block]
      for (int e = threadIdx.x; e < rows * dim; e += scalar_threads) {  // line 8: Q_i, O_i
        smem.q[e / dim][e % dim] = to_float(load(&q.row(batch, head, first_row + e / dim)[e % dim]));
        smem.o[e / dim][e % dim] = state.o[block * dim + e];
      }
      const int own = threadIdx.x;  // row of l_i and m_i: there are fewer rows than threads
      store_if(own < rows, &smem.ml[own], load_if(own < rows, &state.ml[block + own]));
      __syncthreads();  // K_j, V_j, Q_i, O_i, l_i and m_i are written before any warp reads them
      for (int r = warp; r < rows; r += scalar_warps)
        update_row(smem, shape, r, first_row + r, first_key, keys, scale_log2, Update{});
      __syncthreads();  // all rows are updated before they are stored; nobody reads Q_i, K_j or V_j when they are overwritten
      for (int e = threadIdx.x; e < rows * dim; e += scalar_threads) {  // line 12: O_i
        state.o[block * dim + e] = smem.o[e / dim][e % dim];
      }
      store_if(own < rows, &state.ml[block + own], load_if(own < rows, &smem.ml[own]));  // line 13: l_i, m_i
      // [/doc: row_block]
    }
  }
}

}  // namespace flash_v1
