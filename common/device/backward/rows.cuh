// What all rungs of step 06 share: what is known of a row before the backward pass, and the kernels around it.
//
//     S = scale · Q Kᵀ     P = exp(S − LSE)     O = P V                       forward: O and LSE are kept, S and P are not
//     dV = Pᵀ dO     dP = dO Vᵀ     dS = P ∘ (dP − D)     dQ = scale · dS K     dK = scale · dSᵀ Q
//
//     Q, O, dO, dQ [batch, heads, seq_q, dim]     K, V, dK, dV [batch, kv_heads, seq_k, dim]
//     P, dP, dS of a head [seq_q, seq_k]
//
// D = rowsum(dO ∘ O) is one number for each query, as LSE is. Both are made ready once: LSE in base 2, because the hardware's
// exponential is 2^x; D with its sign turned, so that it can be added. Queries are padded to whole tiles. A query that sees no
// key, or does not exist, has LSE = +∞: then every probability 2^(s − LSE) is 0, and no kernel needs a mask for such rows.
#pragma once

#include "common/device/dialect.h"
#include "common/device/dropout.h"
#include "common/device/online_softmax.cuh"
#include "common/device/ptx/red.cuh"
#include "common/device/shapes.h"

namespace backward {

using device::AttentionShape;
using device::ceil_div;
using device::from_float;
using device::Heads;
using device::load;
using device::load_if;
using device::packed;
using device::store;
using device::store_if;
using device::to_float;

constexpr unsigned all_lanes = ~0u;
// Queries are padded to a multiple of so many. Every tile divides it but the 256 queries of `deterministic` (look_up).
constexpr int row_padding = 128;

// [batch, heads, padded].
struct RowStatistics {
  float* lse2;         // LSE · log2(e); +∞: the row has no probabilities
  float* minus_delta;  // −D
  int padded;          // queries of a head
  float* not_finite;   // [batch, kv_heads]: above 0 where some dQ, dK or dV may not be finite (non_finite.cuh)

  __host__ __device__ std::int64_t at(const AttentionShape& shape, int batch, int head, int i) const {
    return (std::int64_t{batch} * shape.heads + head) * padded + i;
  }
  __host__ __device__ float* flag(const AttentionShape& shape, int batch, int kv_head) const {
    return &not_finite[batch * shape.kv_heads + kv_head];
  }
};

// Raises the flag where x is NaN or infinite.
__device__ inline void flag_non_finite(float x, float* flag) {
  if (!(fabsf(x) < INFINITY)) device::raise(flag);
}

// The keys that a query sees: first … end − 1.
struct RowKeys {
  int first, end;
  __device__ bool has(int key) const { return key >= first && key < end; }
};
template <class Shape>
__device__ inline RowKeys keys_of(const Shape& shape, int i) {
  if (i >= shape.seq_q) return {0, 0};
  return {shape.first_key(i), shape.end_key(i)};
}

__device__ inline float warp_sum(float x) {
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(all_lanes, x, distance);
  return x;
}

// What is known of row i. The forward pass gives −∞ to a row that sees no key; a row that does not exist has no LSE. Both get
// +∞ here.
__device__ inline void write_statistics(const AttentionShape& shape, const float* lse, const RowStatistics& rows, int batch,
                                        int head, int i, float delta) {
  const float row_lse = i < shape.seq_q ? load(&lse[(std::int64_t{batch} * shape.heads + head) * shape.seq_q + i]) : -INFINITY;
  const bool empty = row_lse == -INFINITY;
  const std::int64_t at = rows.at(shape, batch, head, i);
  store(&rows.lse2[at], empty ? INFINITY : row_lse == INFINITY ? NAN : row_lse * device::log2_e);
  store(&rows.minus_delta[at], empty ? 0.0f : -delta);
}

// A word of 32 bits as two numbers.
template <class T>
__device__ inline float2 unpacked(std::uint32_t word) {
  T pair[2];
  memcpy(static_cast<void*>(pair), &word, sizeof(word));
  return make_float2(to_float(pair[0]), to_float(pair[1]));
}

// a · b of two words that hold two numbers each.
template <class T>
__device__ inline float pair_products(std::uint32_t a, std::uint32_t b) {
  const float2 x = unpacked<T>(a), y = unpacked<T>(b);
  return x.x * y.x + x.y * y.y;
}

constexpr int prepare_warps = 8;

// A warp has a row: D, and LSE in base 2; dQ's sums of that row begin at 0, where there are any, and the flags at 0.
// Grid: x over padded rows, y over heads, z over the batch. Blocks of 32 · prepare_warps.
template <class T>
__global__ void __launch_bounds__(32 * prepare_warps) prepare_rows(AttentionShape shape,
                                                                   Heads<const T> o,    // [batch, heads, seq_q, dim]
                                                                   Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                   const float* lse,    // [batch, heads, seq_q]
                                                                   RowStatistics rows,
                                                                   float* dq_sums) {  // [batch, heads, padded, dim], or null
  const int lane = threadIdx.x % 32, i = blockIdx.x * prepare_warps + threadIdx.x / 32;
  const int head = blockIdx.y, batch = blockIdx.z;
  const bool inside = i < shape.seq_q;
  if (blockIdx.x == 0 && threadIdx.x == 0 && head < shape.kv_heads) store(rows.flag(shape, batch, head), 0.0f);
  float delta = 0.0f;
  for (int t = lane; inside && t < shape.dim; t += 32) {
    delta += to_float(load(&o.row(batch, head, i)[t])) * to_float(load(&d_o.row(batch, head, i)[t]));
  }
  delta = warp_sum(delta);
  const std::int64_t at = rows.at(shape, batch, head, i);
  if (lane == 0) write_statistics(shape, lse, rows, batch, head, i, delta);
  for (int t = lane; dq_sums != nullptr && t < shape.dim; t += 32) dq_sums[at * shape.dim + t] = 0.0f;
}

// The same for rows at multiples of 16 bytes: a thread has 8 columns, and `lanes` threads beside each other have a row.
// Grid: x over padded rows, y over heads, z over the batch. Blocks of 32 · prepare_warps. dim: at most 8 · lanes.
template <class T, int lanes>
__global__ void __launch_bounds__(32 * prepare_warps) prepare_chunks(AttentionShape shape,
                                                                     Heads<const T> o,    // [batch, heads, seq_q, dim]
                                                                     Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                     const float* lse,    // [batch, heads, seq_q]
                                                                     RowStatistics rows,
                                                                     float* dq_sums) {  // [batch, heads, padded, dim], or null
  const int i = (blockIdx.x * 32 * prepare_warps + threadIdx.x) / lanes, t = threadIdx.x % lanes * 8;
  const int head = blockIdx.y, batch = blockIdx.z;
  const bool inside = i < shape.seq_q;
  if (blockIdx.x == 0 && threadIdx.x == 0 && head < shape.kv_heads) store(rows.flag(shape, batch, head), 0.0f);
  float delta = 0.0f;
  if (inside && t < shape.dim) {
    const uint4 of_o = load(reinterpret_cast<const uint4*>(&o.row(batch, head, i)[t]));
    const uint4 of_d_o = load(reinterpret_cast<const uint4*>(&d_o.row(batch, head, i)[t]));
    delta = pair_products<T>(of_o.x, of_d_o.x) + pair_products<T>(of_o.y, of_d_o.y) + pair_products<T>(of_o.z, of_d_o.z) +
            pair_products<T>(of_o.w, of_d_o.w);
  }
  for (int distance = lanes / 2; distance > 0; distance /= 2) delta += __shfl_xor_sync(all_lanes, delta, distance);
  const std::int64_t at = rows.at(shape, batch, head, i);
  if (t == 0) write_statistics(shape, lse, rows, batch, head, i, delta);
  if (dq_sums != nullptr && t < shape.dim) {
    float4* sums = reinterpret_cast<float4*>(&dq_sums[at * shape.dim + t]);
    store(sums, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
    store(sums + 1, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
  }
}

constexpr int convert_threads = 256;

// dQ = scale · its sums. Grid: x over elements of a head, y over heads, z over the batch.
template <class T>
__global__ void __launch_bounds__(convert_threads) convert_dq(AttentionShape shape,
                                                              const float* dq_sums,  // [batch, heads, padded, dim]
                                                              RowStatistics rows,
                                                              Heads<T> dq) {  // [batch, heads, seq_q, dim]
  const std::int64_t e = std::int64_t{blockIdx.x} * convert_threads + threadIdx.x;
  const int head = blockIdx.y, batch = blockIdx.z, i = static_cast<int>(e / shape.dim), t = static_cast<int>(e % shape.dim);
  if (i >= shape.seq_q) return;
  const float sum = shape.scale * dq_sums[rows.at(shape, batch, head, i) * shape.dim + t];
  flag_non_finite(sum, rows.flag(shape, batch, shape.kv_head(head)));
  store(&dq.row(batch, head, i)[t], from_float<T>(sum));
}

// ---- dQ's sums in the order in which lanes hold them ----

// Of 06_backward/05_fragment_order.cuh: a block of 16 × 16 sums lies as `fragment_order` says.
constexpr int sums_block = 16 * 16;  // elements

// Of 06_backward/05_fragment_order.cuh: where a lane's numbers of a block begin.
__device__ inline int lane_in_block() { return threadIdx.x % 32 * 4; }
// A lane's eight numbers of a block: the accumulators of columns 0 … 7 and of 8 … 15. `vector`: by one instruction for each
// half.
template <bool vector>
__device__ void add_lane(float* place, const float (&left)[4], const float (&right)[4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float* to = place + 128 * r;
    if constexpr (vector) {
      ptx::red_add_v4_f32(to, left[2 * r], left[2 * r + 1], right[2 * r], right[2 * r + 1]);
    } else {
      ptx::red_add_f32(to, left[2 * r]);
      ptx::red_add_f32(to + 1, left[2 * r + 1]);
      ptx::red_add_f32(to + 2, right[2 * r]);
      ptx::red_add_f32(to + 3, right[2 * r + 1]);
    }
  }
}
template <bool vector>
__device__ void add_block(float* block, const float (&left)[4], const float (&right)[4]) {
  add_lane<vector>(block + lane_in_block(), left, right);
}

// Of 06_backward/05_fragment_order.cuh: the kernel that makes dQ of them.
// dQ = scale · its sums. A thread has 16 columns of a row. Grid: x over them, y over heads, z over the batch. dim: a multiple
// of 16.
template <class T>
__global__ void __launch_bounds__(convert_threads)
    convert_blocks(AttentionShape shape, const float* dq_sums, RowStatistics rows,
                   Heads<T> dq) {  // [batch, heads, seq_q, dim]
  const std::int64_t n = std::int64_t{blockIdx.x} * convert_threads + threadIdx.x;
  const int head = blockIdx.y, batch = blockIdx.z;
  const int blocks = shape.dim / 16, i = static_cast<int>(n / blocks), block = static_cast<int>(n % blocks);
  if (i >= shape.seq_q) return;
  const float* from = &dq_sums[rows.at(shape, batch, head, i / 16 * 16) * shape.dim + block * 16 * 16 + i % 16 * 16];
  std::uint32_t words[2][4];  // columns 0 … 7 and 8 … 15
  float sum = 0.0f;           // not finite where one of them is not
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const float4 sums = load(reinterpret_cast<const float4*>(from) + t);
    sum += sums.x + sums.y + sums.z + sums.w;
    words[0][t] = packed<T>(shape.scale * sums.x, shape.scale * sums.y);
    words[1][t] = packed<T>(shape.scale * sums.z, shape.scale * sums.w);
  }
  flag_non_finite(sum, rows.flag(shape, batch, shape.kv_head(head)));
  uint4* to = reinterpret_cast<uint4*>(&dq.row(batch, head, i)[16 * block]);
  store(to, make_uint4(words[0][0], words[0][1], words[0][2], words[0][3]));
  store(to + 1, make_uint4(words[1][0], words[1][1], words[1][2], words[1][3]));
}

}  // namespace backward
