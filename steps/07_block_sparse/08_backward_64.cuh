// 07_block_sparse, backward_64: a tile of keys visits the tiles of queries in its list.
// Predecessor: 06_backward/09_tuned_64.cuh
//
// `tuned_64` visits all tiles of queries between a first and a last one, head by head of its group. With a mask of blocks most
// of these visits multiply zeros. Here a tile of 128 keys has a list of the tiles of 64 queries in which some query sees some
// of its keys, of all heads of the group: partial tiles first, then full ones, in two loops. The indices come with the copies,
// as in `prefetch`. A long list is split: each part leaves its sums of dK and dV in fp32, and merge_columns adds them.
//
//   block   one work item: 128 keys of a key/value head, or a part of their list. 4 warps
//   warp    32 keys: Sᵀ and dPᵀ of them and a tile's queries, then dK and dV; 32 queries × dim / 2 columns of dQ
//   Smem    k, v[128][dim]; stage[2] each with q and d_o[64][dim] and their statistics; ds[2][128][64]; after[2]
//
// What to expect: `tuned_64`'s time times the share of live tiles, because the products stay; and the plan's three launches.
#pragma once

#include "common/device/backward/keys_warp.cuh"
#include "steps/07_block_sparse/key_plan.cuh"

namespace block_sparse {

template <class T, int dim, class Shape = AttentionShape>
__global__ void __launch_bounds__(tile_threads, 2) sparse_backward_64(Shape shape, Mask mask, KeyPlan plan,
                                                                      Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                      Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                      Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                      Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                      RowStatistics rows,
                                                                      float* dq_sums,  // [batch, heads, padded, dim], in blocks
                                                                      Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                                                                      Heads<T> dv,     // [batch, kv_heads, seq_k, dim]
                                                                      KeyParts parts) {
  auto& smem = device::shared_storage<SparseKeysSmem<Keys32Smem<T, dim>>>();
  const WorkItem item = load_item(&plan.work[blockIdx.x]);
  if (item.head < 0) return;
  const int first_key = item.first_of_tile, kv_head = item.head % shape.kv_heads, batch = item.head / shape.kv_heads;
  const float scale_log2 = shape.scale * device::log2_e;
  TunedKeysWarp<T, dim, Shape> warp(smem);
  KeyListWalk walk(plan, item, kv_head * (shape.heads / shape.kv_heads));

  // ---- prologue: K, V and the first tile ----
  copy_tile<tile_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
  copy_tile<tile_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
  const StageCopies<tile_threads, T, tile_rows, dim> copies(shape, q, d_o, rows, batch);
  copies.copy_statistics(smem.stage[0].lse2, smem.stage[0].minus_delta, walk.next);
  copies.copy_share(smem.stage[0].q, smem.stage[0].d_o, walk.next, 0, 1);
  walk.copy_entry(smem.after[0]);
  ptx::cp_async_commit_group();
  float* dq_before = nullptr;  // where dQ of the tile before goes, which is not added yet
  int stage_index = 0;         // of Q and dO, and of dS

  const auto attend_tile = [&](auto is_masked) {
    const int head = walk.next.head, tile = walk.next.tile;
    auto &stage = smem.stage[stage_index], &next_stage = smem.stage[stage_index ^ 1];
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile has come for everyone; dS of the tile before is written; everyone has left what is filled now
    walk.advance(smem.after[stage_index]);
    copies.copy_statistics(next_stage.lse2, next_stage.minus_delta, walk.next);
#pragma unroll
    for (int part = 0; part < tile_rows; part += part_rows) {
      const int query = tile * tile_rows + part;
      KeysScores p = {}, acc_dp;
      KeysOperands ds_frag;
      // S^T = K Q^T, and the copies; P = exp2(S - LSE); dV += P^T dO
      warp.scores(p, stage.q, part, [&](int step) {
        if (part == 0) copies.copy_share(next_stage.q, next_stage.d_o, walk.next, step, dim / 16);
      });
      warp.probabilities(p, &stage.lse2[part], scale_log2, first_key, [&](auto& of_slice, int key) {
        if constexpr (decltype(is_masked)::value)
          mask_sparse(of_slice, shape, mask, head, walk.entry, warp.key / 64, key, query);
      });
      drop(p, shape, batch, head, query, first_key + warp.key);
      warp.add_dv(p, stage.d_o, part);
      // dP^T - D = V dO^T - D; dS = P (dP - D); dK += dS^T Q
      warp.dp(acc_dp, stage.d_o, part, stage.minus_delta);
      warp.ds(ds_frag, acc_dp, p, shape, &stage.minus_delta[part]);
      store_slices(smem.ds[stage_index], warp.key, part, ds_frag);
      warp.add_dk(ds_frag, stage.q, part);
    }
    walk.copy_entry(smem.after[stage_index ^ 1]);
    ptx::cp_async_commit_group();
    if (dq_before != nullptr) warp.add_dq(stage_index ^ 1, dq_before);
    dq_before = &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim];
    stage_index ^= 1;
    walk.end_tile();
  };
#pragma unroll 1
  while (walk.remaining > item.full) attend_tile(std::true_type{});
#pragma unroll 1
  while (walk.remaining > 0) attend_tile(std::false_type{});

  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  if (dq_before != nullptr) {
    __syncthreads();  // dS of the last tile is written
    warp.add_dq(stage_index ^ 1, dq_before);
  }
  device::multiply_by_factor(warp.acc_dv, shape);
  const int part = load(&plan.work[blockIdx.x].part);
  if (part >= 0) {
    leave_slices<dim>(&parts.dk[std::int64_t{part} * wide_keys * dim], warp.key, warp.acc_dk);
    leave_slices<dim>(&parts.dv[std::int64_t{part} * wide_keys * dim], warp.key, warp.acc_dv);
    return;
  }
  float* flag = rows.flag(shape, batch, kv_head);
  store_rows(dk, batch, kv_head, first_key + warp.key, shape.seq_k, shape.scale, warp.acc_dk, flag);
  store_rows(dv, batch, kv_head, first_key + warp.key, shape.seq_k, 1.0f, warp.acc_dv, flag);
}

}  // namespace block_sparse
