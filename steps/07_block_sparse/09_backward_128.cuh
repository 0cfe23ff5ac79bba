// 07_block_sparse, backward_128: the lists of backward_64 in the kernel whose warps have two roles.
// Predecessor: 06_backward/12_tuned_128.cuh
//
// `tuned_128` has the same cost as `tuned_64`: visits that multiply zeros. Both roles walk along one list here. The S-warps are
// a tile behind the P-warps in dK and dQ, so they keep where the sums of the tile before begin. Only the P-warps mask: P of a
// pair that is masked is 0, and so is its dS. So the S-warps need no second loop.
//
//   block   one work item: 128 keys of a key/value head, or a part of their list. 4 P-warps and 4 S-warps
//   warp    as in `tuned_128`: P-warps make P and dV, S-warps make dS, dK and dQ of the tile before
//   Smem    k, v[128][dim]; q[3], d_o[2][64][dim]; p, ds[2][128][64]; statistics[2]; after[2]
//
// What to expect: `tuned_128`'s time times the share of live tiles. One block fits on an SM, so nothing hides a block's first
// copies: a short list pays for them in full.
#pragma once

#include "common/device/backward/split_warp.cuh"
#include "steps/07_block_sparse/key_plan.cuh"

namespace block_sparse {

template <class T, int dim, class Shape = AttentionShape>
__global__ void __launch_bounds__(split_threads, 1)
    sparse_backward_128(Shape shape, Mask mask, KeyPlan plan,
                        Heads<const T> q,    // [batch, heads, seq_q, dim]
                        Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                        Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                        Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                        RowStatistics rows,
                        float* dq_sums,  // [batch, heads, padded, dim], in blocks
                        Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                        Heads<T> dv,     // [batch, kv_heads, seq_k, dim]
                        KeyParts parts) {
  auto& smem = device::shared_storage<SparseKeysSmem<RolesSmem<T, dim>>>();
  const WorkItem item = load_item(&plan.work[blockIdx.x]);
  if (item.head < 0) return;
  const int first_key = item.first_of_tile, kv_head = item.head % shape.kv_heads, batch = item.head / shape.kv_heads;
  const float scale_log2 = shape.scale * device::log2_e;
  constexpr bool drops = device::drops<Shape>;
  TunedRoleWarp<T, dim, Shape> warp(smem, __shfl_sync(all_lanes, threadIdx.x / 32, 0));
  KeyListWalk walk(plan, item, kv_head * (shape.heads / shape.kv_heads));
  const bool any = walk.remaining > 0;
  // To dV or dK, or to a part of it.
  const auto store = [&](const Heads<T>& to, float* to_parts, float factor) {
    const int part = load(&plan.work[blockIdx.x].part);
    if (part < 0)
      return warp.store(to, batch, kv_head, first_key, shape.seq_k, factor, warp.acc, rows.flag(shape, batch, kv_head));
    leave_slices<dim>(&to_parts[std::int64_t{part} * split_keys * dim + warp.column], warp.key, warp.acc);
  };

  // ---- prologue: K, V and the first tile ----
  copy_tile<split_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
  copy_tile<split_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
  const StageCopies<split_threads, T, tile_rows, dim> copies(shape, q, d_o, rows, batch);
  copies.copy_share(smem.q[0], smem.d_o[0], walk.next, 0, 1);
  copies.copy_statistics(smem.lse2[0], smem.minus_delta[0], walk.next);
  walk.copy_entry(smem.after[0]);
  ptx::cp_async_commit_group();
  RoleStage at;  // of this tile
  const auto copy_share = [&](int step) {
    copies.copy_share(smem.q[at.next_q()], smem.d_o[at.next_d_o()], walk.next, step, dim / 16);
  };
  const auto begin_tile = [&] {
    ptx::cp_async_wait_group<0>();
    // The tile has come; dS of the tile before is written; everyone has left what is filled now.
    ptx::barrier_sync(1, split_threads);
    walk.advance(smem.after[at.d_o]);
    copies.copy_statistics(smem.lse2[at.next_d_o()], smem.minus_delta[at.next_d_o()], walk.next);
    walk.copy_entry(smem.after[at.next_d_o()]);
  };
  const auto end_tile = [&] {
    ptx::cp_async_commit_group();
    at.advance();
    walk.end_tile();
  };

  if (warp.makes_p) {
    // ================ P and dV ================
    const auto attend_tile = [&](auto is_masked) {
      [[maybe_unused]] const int head = walk.next.head, query = walk.next.tile * tile_rows + warp.query;
      RoleScores s = {};
      RoleOperands p;
      begin_tile();
      [[maybe_unused]] device::KeptTransposed kept[role_slices / 2];  // before the mma, which leave cycles for it
      if constexpr (drops) device::look_up(kept, shape.dropout, batch, head, query, first_key + warp.key);
      // S^T = K Q^T, and the copies; P = exp2(S - LSE); dV += P^T dO
      warp.scores(s, smem.q[at.q], copy_share);
      warp.probabilities(p, s, at.d_o, scale_log2, first_key, [&](auto& of_slice, int key) {
        if constexpr (decltype(is_masked)::value)
          mask_sparse(of_slice, shape, mask, head, walk.entry, warp.key / 64, key, query);
      });
      if constexpr (drops) device::negate_dropped(p, kept);
      store_slices(smem.p, warp.key, warp.query, p);
      ptx::bar_arrive(2, split_threads);  // P is there: the S-warps may read it
      warp.add_dv(p, smem.d_o[at.d_o]);
      end_tile();
    };
#pragma unroll 1
    while (walk.remaining > item.full) attend_tile(std::true_type{});
#pragma unroll 1
    while (walk.remaining > 0) attend_tile(std::false_type{});
    ptx::cp_async_wait_all();                      // of K and V, where no query sees them
    if (any) ptx::barrier_sync(1, split_threads);  // the S-warps' last wait
    device::multiply_by_factor(warp.acc, shape);
    store(dv, parts.dv, 1.0f);
  } else {
    // ================ dS, dK and dQ ================
    RoleOperands ds;             // of the warp's own queries
    bool is_behind = false;      // dK and dQ of a tile are left
    float* dq_before = nullptr;  // where dQ of the tile before goes, which is not added yet
    int q_before = 0;
    const auto finish_tile = [&](int stage) {
      // dK += dS^T Q, dQ += dS K
      warp.add_dk(ds, smem.ds[stage], smem.q[q_before]);
      warp.add_dq(smem.ds[stage], dq_before);
    };
    const auto attend_tile = [&] {
      const int head = walk.next.head, tile = walk.next.tile;
      RoleScores dp;
      begin_tile();
      if (is_behind) finish_tile(at.next_d_o());
      // dP^T - D = V dO^T - D, and the copies; dS = P (dP - D)
      warp.dp(dp, at.d_o, copy_share);
      ptx::bar_sync(2, split_threads);  // P is there
      warp.ds(ds, dp, at.d_o, shape);
      store_slices(smem.ds[at.d_o], warp.key, warp.query, ds);
      is_behind = true;
      dq_before = &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim];
      q_before = at.q;
      end_tile();
    };
#pragma unroll 1
    while (walk.remaining > 0) attend_tile();
    ptx::cp_async_wait_all();  // of K and V, where no query sees them
    if (any) {
      ptx::barrier_sync(1, split_threads);  // dS of the last tile is written
      finish_tile(at.next_d_o());
    }
    store(dk, parts.dk, shape.scale);
  }
}

}  // namespace block_sparse
