// Step 06: NaN and infinity reach the rows that depend on them, and no others.
//
// A masked pair has P = dS = 0. But a product of tiles multiplies these zeros with rows of dO, Q and K, and 0 · NaN is NaN: an
// element that is not finite reaches every row of its tile. It always leaves a NaN behind, and so a kernel can see that
// something may have happened: where dQ, dK or dV is not finite, it raises a flag for the key/value head. One more kernel looks
// at the flags. Nearly always they are 0, and it ends. Otherwise it computes the rows of that head again, a warp a row, pair by
// pair, without the masked ones.
#pragma once

#include "common/device/backward/scalar_tile.cuh"

namespace backward {

constexpr int repair_warps = 8;
constexpr int repair_blocks = 16;  // of a key/value head
constexpr int repair_columns = 8;  // of a lane: head dims up to 256

// What a warp does with a pair that query i, of this head, and key j make: P and dS, the same in all lanes. `kept`: what
// dropout multiplies P by.
template <class T>
struct Pair {
  float p, ds;
  __device__ Pair(const AttentionShape& shape, const T* q, const T* k, const T* v, const T* d_o, float lse2, float minus_delta,
                  float kept = 1.0f) {
    float s = 0.0f, dp = 0.0f;
    for (int t = threadIdx.x % 32; t < shape.dim; t += 32) {
      s += to_float(load(&q[t])) * to_float(load(&k[t]));
      dp += to_float(load(&d_o[t])) * to_float(load(&v[t]));
    }
    p = device::exp2_fast(warp_sum(s) * (shape.scale * device::log2_e) - lse2);
    ds = p * (kept * warp_sum(dp) + minus_delta);
    p *= kept;
  }
};

// Grid: x over repair_blocks, which share the rows, y over key/value heads, z over the batch. Blocks of 32 · repair_warps.
template <class T, class Shape = AttentionShape>
__global__ void __launch_bounds__(32 * repair_warps) repair_non_finite(Shape shape,
                                                                       Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                       Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                       Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                       Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                       RowStatistics rows,
                                                                       Heads<T> dq,    // [batch, heads, seq_q, dim]
                                                                       Heads<T> dk,    // [batch, kv_heads, seq_k, dim]
                                                                       Heads<T> dv) {  // [batch, kv_heads, seq_k, dim]
  const int kv_head = blockIdx.y, batch = blockIdx.z;
  if (load(rows.flag(shape, batch, kv_head)) == 0.0f) return;
  const int group = shape.heads / shape.kv_heads;
  const auto pair = [&](int head, int i, int j) {
    const std::int64_t at = rows.at(shape, batch, head, i);
    return Pair<T>(shape, q.row(batch, head, i), k.row(batch, kv_head, j), v.row(batch, kv_head, j), d_o.row(batch, head, i),
                   load(&rows.lse2[at]), load(&rows.minus_delta[at]), device::kept_weight(shape, batch, head, i, j));
  };
  const int first = blockIdx.x * repair_warps + threadIdx.x / 32, step = repair_blocks * repair_warps;
  for (int j = first; j < shape.seq_k; j += step) {  // dK and dV of a key
    float acc_dk[repair_columns] = {}, acc_dv[repair_columns] = {};
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int i = shape.first_query(j); i < shape.end_query(j); ++i) {
        const Pair<T> of = pair(head, i, j);
        add_row(acc_dk, of.ds, q.row(batch, head, i), shape.dim);
        add_row(acc_dv, of.p, d_o.row(batch, head, i), shape.dim);
      }
    }
    store_row(dk.row(batch, kv_head, j), shape.scale, acc_dk, shape.dim);
    store_row(dv.row(batch, kv_head, j), 1.0f, acc_dv, shape.dim);
  }
  for (int n = first; n < group * shape.seq_q; n += step) {  // dQ of a query of one of the heads
    const int head = kv_head * group + n / shape.seq_q, i = n % shape.seq_q;
    float acc[repair_columns] = {};
    for (int j = shape.first_key(i); j < shape.end_key(i); ++j) {
      add_row(acc, pair(head, i, j).ds, k.row(batch, kv_head, j), shape.dim);
    }
    store_row(dq.row(batch, head, i), shape.scale, acc, shape.dim);
  }
}

}  // namespace backward
