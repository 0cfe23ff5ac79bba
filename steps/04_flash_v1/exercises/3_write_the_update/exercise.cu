// Exercise 3 of step 04: the loops of `scalar`, with the update of O that you write in task.cuh.
#include "../exercise.h"

#include EXERCISE_KERNEL

namespace {

using namespace flash_v1;

// Grid: x over heads, y over the batch. Blocks of scalar_threads.
__global__ void algorithm_1(AttentionShape shape,
                            Heads<const float> q,  // [batch, heads, seq_q, dim]
                            Heads<const float> k,  // [batch, kv_heads, seq_k, dim]
                            Heads<const float> v,  // [batch, kv_heads, seq_k, dim]
                            RowState state) {
  constexpr int keys_of_block = SmallBlocks::keys;
  auto& smem = device::shared_storage<SmallSmem>();
  const int head = blockIdx.x;
  const int batch = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const float scale_log2 = shape.scale * device::log2_e;

  for (int first_key = 0; first_key < shape.seq_k; first_key += keys_of_block) {
    const int keys = min(keys_of_block, shape.seq_k - first_key);
    for (int e = threadIdx.x; e < keys * shape.dim; e += scalar_threads) {
      const int c = e / shape.dim, t = e % shape.dim;
      smem.k[c][t] = k.row(batch, shape.kv_head(head), first_key + c)[t];
      smem.v[c][t] = v.row(batch, shape.kv_head(head), first_key + c)[t];
    }
    __syncthreads();  // K_j and V_j are written before any warp reads them
    for (int i = warp; i < shape.seq_q; i += scalar_warps) {
      const float* q_row = q.row(batch, head, i);  // [dim]
      const std::int64_t at = state_row(shape, batch, head, i);
      const int visible = min(keys, shape.visible_keys(i) - first_key);
      if (visible <= 0) continue;
      float score = -INFINITY;
      if (lane < visible) {
        float dot = 0.0f;
        for (int t = 0; t < shape.dim; ++t) dot += q_row[t] * smem.k[lane][t];
        score = scale_log2 * dot;
      }
      const float m_tile = warp_maximum(score);
      const float p = device::exp2_fast(score - device::safe_maximum(m_tile));
      const float l_tile = warp_sum(p);
      smem.s[warp][lane] = p;
      const float2 ml = load(&state.ml[at]);
      const device::SoftmaxState joined = device::merge({ml.x, ml.y}, {m_tile, l_tile}).state;
      __syncwarp();  // the row of P is written, and m and l are read, before other lanes go on
      exercise::update_o({ml.x, ml.y, m_tile, joined.m, joined.l}, visible, shape.dim, smem.s[warp], smem.v,
                         &state.o[at * shape.dim]);
      if (lane == 0) store(&state.ml[at], make_float2(joined.m, joined.l));
      __syncwarp();  // the row of P is read before the next one overwrites it
    }
    __syncthreads();  // everyone has read K_j and V_j before they are overwritten
  }
}

}  // namespace

run::AnyStep run::this_step() {
  static const AttentionStep step = [] {
    AttentionVariant variant;
    variant.name = "yours";
    variant.idea = "Algorithm 1 with your update of O";
    return exercise_step("exercise_04_3", "How does O follow a block of keys?", variant, algorithm_1);
  }();
  return &step;
}
