// 07_block_sparse, backward_128: the lists of backward_64 in the kernel whose warps have two roles.
// Predecessor: 06_backward/10_tuned_128.cuh
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

#include "common/device/backward/role_warp.cuh"
#include "common/device/backward/stages.cuh"
#include "common/device/ptx/barrier.cuh"
#include "steps/07_block_sparse/key_plan.cuh"

namespace block_sparse {

template <class T, int dim, class Shape = AttentionShape>
__global__ void __launch_bounds__(role_threads, 1)
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
  const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const WorkItem item = load_item(&plan.work[blockIdx.x]);
  if (item.head < 0) return;
  const int first_key = item.first_of_tile, kv_head = item.head % shape.kv_heads, batch = item.head / shape.kv_heads;
  const float scale_log2 = shape.scale * device::log2_e;
  const int* at = plan.entries + item.first;
  int left = item.count();
  const bool any = left > 0;
  const int group_head = kv_head * (shape.heads / shape.kv_heads);
  int this_entry = item.entry, next_entry = left > 1 ? at[1] : 0, entry_after = 0;
  constexpr bool drops = device::drops<Shape>;
  RoleWarp<T, dim> self(warp);
  // To dV or dK, or to a part of it.
  const auto store_role = [&](const Heads<T>& to, float* parts_of_role, float factor) {
    const int part = load(&plan.work[blockIdx.x].part);
    if (part < 0) return self.store(to, batch, kv_head, first_key, shape.seq_k, factor, rows.flag(shape, batch, kv_head));
#pragma unroll
    for (int s = 0; s < role_slices; ++s) {
      leave_rows<dim>(&parts_of_role[std::int64_t{part} * role_keys * dim + self.column], self.key + 16 * s, self.acc[s]);
    }
  };

  // The entry after the next comes with a stage's copies, so that nobody waits for an index.
  const auto copy_entry = [&](int stage) {
    if (threadIdx.x == 0) ptx::cp_async_4(&smem.after[stage], at + 2, left > 2 ? 4 : 0);
  };
  // ---- prologue: K, V and the first tile ----
  TileOfHead next = tile_of(this_entry, group_head, plan.query_tiles, any);  // the tile that is copied next
  copy_tile<role_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
  copy_tile<role_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
  const StageCopies<role_threads, T, tile_rows, dim> copies(shape, q, d_o, rows, batch);
  copies.copy_share(smem.q[0], smem.d_o[0], next, 0, 1);
  copies.copy_statistics(smem.lse2[0], smem.minus_delta[0], next);
  copy_entry(0);
  ptx::cp_async_commit_group();
  int stage = 0;    // of dO, the statistics and dS
  int q_stage = 0;  // of Q, of three
  const auto q_next = [&] { return q_stage == 2 ? 0 : q_stage + 1; };
  const auto copy_share = [&](int step) { copies.copy_share(smem.q[q_next()], smem.d_o[stage ^ 1], next, step, dim / 16); };
  const auto begin_tile = [&] {
    ptx::cp_async_wait_group<0>();
    // The tile has come; dS of the tile before is written; everyone has left what is filled now.
    ptx::barrier_sync(1, role_threads);
    entry_after = __shfl_sync(all_lanes, load(&smem.after[stage]), 0);
    ++at;
    --left;
    next = tile_of(next_entry, group_head, plan.query_tiles, left > 0);
    copies.copy_statistics(smem.lse2[stage ^ 1], smem.minus_delta[stage ^ 1], next);
    copy_entry(stage ^ 1);
  };
  const auto end_tile = [&] {
    ptx::cp_async_commit_group();
    stage ^= 1;
    q_stage = q_next();
    this_entry = next_entry;
    next_entry = entry_after;
  };

  if (warp < 4) {
    // ================ P and dV ================
    const auto attend_tile = [&](auto is_masked) {
      [[maybe_unused]] const int head = next.head, tile = next.tile;
      begin_tile();
      [[maybe_unused]] device::KeptTransposed kept[role_slices / 2];  // before the mma, which leave cycles for it
      if constexpr (drops) {
        device::look_up(kept, shape.dropout, batch, head, tile * tile_rows + self.query, first_key + self.key);
      }
      // S^T = K Q^T
      float s[role_slices][role_queries / 8][4] = {};
      multiply_rows(s, smem.k, self.key, smem.q[q_stage], self.query, nullptr, copy_share);
      // P = exp2(S - LSE)
#pragma unroll
      for (int n = 0; n < role_slices; ++n) {
        exponentiate(s[n], &smem.lse2[stage][self.query], scale_log2);
        if constexpr (decltype(is_masked)::value) {
          mask_sparse(s[n], shape, mask, head, this_entry, this_entry >> (self.key / 64) & 1,
                      first_key + self.key + 16 * n + lane / 4, tile * tile_rows + self.query);
        }
      }
      std::uint32_t frag[role_steps][role_slices][4];
      pack_slices<T>(frag, s);
      if constexpr (drops) device::negate_dropped(frag, kept);
      store_slices(smem.p, self.key, self.query, frag);
      ptx::bar_arrive(2, role_threads);  // P is there: the S-warps may read it
      // dV += P^T dO
      if constexpr (drops) keep_positive<T>(frag);
      self.add_own(frag, smem.d_o[stage]);
      ptx::bar_sync(3, role_threads / 2);  // the other P-warps' P is there, too
      self.template add_other<drops>(smem.p, smem.d_o[stage]);
      end_tile();
    };
#pragma unroll 1
    while (left > item.full) attend_tile(std::true_type{});
#pragma unroll 1
    while (left > 0) attend_tile(std::false_type{});
    ptx::cp_async_wait_all();                     // of K and V, where no query sees them
    if (any) ptx::barrier_sync(1, role_threads);  // the S-warps' last wait
    device::multiply_by_factor(self.acc, shape);
    store_role(dv, parts.dv, 1.0f);
  } else {
    // ================ dS, dK and dQ ================
    std::uint32_t frag[role_steps][role_slices][4];  // of dS of the warp's own queries
    bool is_behind = false;                          // dK and dQ of a tile are left
    float* before = nullptr;                         // its sums of dQ
    int q_before = 0;
    const auto finish_tile = [&](int buffer) {
      // dK += dS^T Q
      self.add_own(frag, smem.q[q_before]);
      self.add_other(smem.ds[buffer], smem.q[q_before]);
      // dQ += dS K: 32 queries × dim / 2
      const int row = warp % 4 / 2 * 32, column = warp % 2 * (dim / 2);
      float acc[2][dim / 16][4] = {};
      multiply_tile_columns(acc, smem.ds[buffer], row, smem.k, column);
      add_slices<true, dim>(before, row, column, acc);
    };
    const auto attend_tile = [&] {
      const int head = next.head, tile = next.tile;
      begin_tile();
      if (is_behind) finish_tile(stage ^ 1);
      // dP^T - D = V dO^T - D
      float dp[role_slices][role_queries / 8][4];
      if constexpr (drops) zero(dp);
      multiply_rows(dp, smem.v, self.key, smem.d_o[stage], self.query, drops ? nullptr : smem.minus_delta[stage], copy_share);
      ptx::bar_sync(2, role_threads);  // P is there
      // dS = P (dP - D)
      if constexpr (drops) {
        self.times_stored(frag, dp, smem.p, smem.minus_delta[stage], shape.dropout.factor());
      } else {
        self.times_stored(frag, dp, smem.p);
      }
      store_slices(smem.ds[stage], self.key, self.query, frag);
      is_behind = true;
      before = &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim];
      q_before = q_stage;
      end_tile();
    };
#pragma unroll 1
    while (left > 0) attend_tile();
    ptx::cp_async_wait_all();  // of K and V, where no query sees them
    if (any) {
      ptx::barrier_sync(1, role_threads);  // dS of the last tile is written
      finish_tile(stage ^ 1);
    }
    store_role(dk, parts.dk, shape.scale);
  }
}

}  // namespace block_sparse
