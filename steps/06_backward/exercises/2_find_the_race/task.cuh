// Exercise 2 of step 06: the last block converts.
//
// In the step, a second kernel rounds dQ's sums. Here the main kernel does it: each block counts itself when it has added its
// part, and the block that finds all others counted converts the sums of its key/value head. The kernel has a race. Mend it.
// The products are made pair by pair, a warp a key, so that little distracts. `convert`, in exercise.cu, reads the sums by
// plain loads. Leave it so: to the simulator atomics never race, so atomic reads would hide the fault.
#pragma once

#include "steps/06_backward/exercises/exercise.h"
#include "steps/06_backward/exercises/pair.cuh"

namespace exercise {

using namespace backward;

constexpr int warps = 4;  // of a block: one for each of its keys

struct Smem {
  int earlier;  // how many blocks of this key/value head have counted themselves before this one
};

// Grid: x over keys, `warps` at a time, y over key/value heads, z over the batch. Blocks of 32 · warps.
__global__ void __launch_bounds__(32 * warps) gradients(AttentionShape shape,
                                                        Heads<const __half> q,    // [batch, heads, seq_q, dim]
                                                        Heads<const __half> k,    // [batch, kv_heads, seq_k, dim]
                                                        Heads<const __half> v,    // [batch, kv_heads, seq_k, dim]
                                                        Heads<const __half> d_o,  // [batch, heads, seq_q, dim]
                                                        RowStatistics rows,
                                                        float* dq_sums,      // [batch, heads, padded, dim], all 0
                                                        int* arrived,        // [batch, kv_heads], all 0
                                                        Heads<__half> dq,    // [batch, heads, seq_q, dim]
                                                        Heads<__half> dk,    // [batch, kv_heads, seq_k, dim]
                                                        Heads<__half> dv) {  // [batch, kv_heads, seq_k, dim]
  auto& smem = device::shared_storage<Smem>();
  const int lane = threadIdx.x % 32, dim = shape.dim;
  const int j = blockIdx.x * warps + threadIdx.x / 32, kv_head = blockIdx.y, batch = blockIdx.z;
  const int group = shape.heads / shape.kv_heads, first_head = kv_head * group;

  if (j < shape.seq_k) {
    const __half *k_row = k.row(batch, kv_head, j), *v_row = v.row(batch, kv_head, j);
    float acc_dk[exercise_dim / 32] = {}, acc_dv[exercise_dim / 32] = {};
    for (int head = first_head; head < first_head + group; ++head) {
      for (int i = shape.first_query(j); i < shape.end_query(j); ++i) {
        const std::int64_t at = rows.at(shape, batch, head, i);
        const __half *q_row = q.row(batch, head, i), *d_o_row = d_o.row(batch, head, i);
        const Pair<__half> of(shape, q_row, k_row, v_row, d_o_row, load(&rows.lse2[at]), load(&rows.minus_delta[at]));
        // dV += P^T dO, dK += dS^T Q, dQ += dS K
        add_row(acc_dv, of.p, d_o_row, dim);
        add_row(acc_dk, of.ds, q_row, dim);
        for (int t = lane; t < dim; t += 32) ptx::red_add_f32(&dq_sums[at * dim + t], of.ds * to_float(load(&k_row[t])));
      }
    }
    store_row(dk.row(batch, kv_head, j), shape.scale, acc_dk, dim);
    store_row(dv.row(batch, kv_head, j), 1.0f, acc_dv, dim);
  }

  // the last block of a key/value head: dQ = scale · its sums
  if (threadIdx.x == 0) {
    smem.earlier = atomicAdd(&arrived[batch * shape.kv_heads + kv_head], 1);
  }
  __syncthreads();  // the count is there before anyone reads it
  if (smem.earlier != static_cast<int>(gridDim.x) - 1) return;
  for (int head = first_head; head < first_head + group; ++head) convert<32 * warps>(shape, dq_sums, rows, batch, head, dq);
}

}  // namespace exercise
