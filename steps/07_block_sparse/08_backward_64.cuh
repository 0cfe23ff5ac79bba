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

#include "common/device/backward/dropped.cuh"
#include "common/device/backward/stage_copies.cuh"
#include "common/device/backward/stages.cuh"
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
  const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const WorkItem item = load_item(&plan.work[blockIdx.x]);
  if (item.head < 0) return;
  const int first_key = item.first_of_tile, kv_head = item.head % shape.kv_heads, batch = item.head / shape.kv_heads;
  const float scale_log2 = shape.scale * device::log2_e;
  const int warp_key = 16 * key_slices * warp;
  const int* at = plan.entries + item.first;
  int left = item.count();
  const int group_head = kv_head * (shape.heads / shape.kv_heads);
  int this_entry = item.entry, next_entry = left > 1 ? at[1] : 0;
  constexpr bool drops = device::drops<Shape>;

  // The entry after the next comes with a stage's copies, so that nobody waits for an index.
  const auto copy_entry = [&](int stage) {
    if (threadIdx.x == 0) ptx::cp_async_4(&smem.after[stage], at + 2, left > 2 ? 4 : 0);
  };
  // ---- prologue: K, V and the first tile ----
  TileOfHead next = tile_of(this_entry, group_head, plan.query_tiles, left > 0);  // the tile that is copied next
  copy_tile<tile_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
  copy_tile<tile_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
  const StageCopies<tile_threads, T, tile_rows, dim> copies(shape, q, d_o, rows, batch);
  copies.copy_statistics(smem.stage[0].lse2, smem.stage[0].minus_delta, next);
  copies.copy_share(smem.stage[0].q, smem.stage[0].d_o, next, 0, 1);
  copy_entry(0);
  ptx::cp_async_commit_group();
  float* before = nullptr;  // sums of the tile whose dQ is left
  int stage_index = 0;      // of Q and dO, and of dS
  float acc_dk[key_slices][dim / 8][4] = {}, acc_dv[key_slices][dim / 8][4] = {};

  // dQ += dS K of a tile, whose dS lies in this buffer, to its sums: 32 queries × dim / 2 by each warp.
  const auto add_dq = [&](int buffer, float* sums) {
    const int row = warp / 2 * 32, column = warp % 2 * (dim / 2);
    float acc[key_slices][dim / 16][4] = {};
    multiply_tile_columns(acc, smem.ds[buffer], row, smem.k, column);
    add_slices<true, dim>(sums, row, column, acc);
  };

  const auto attend_tile = [&](auto is_masked) {
    const int head = next.head, tile = next.tile;
    auto& stage = smem.stage[stage_index];
    auto& next_stage = smem.stage[stage_index ^ 1];
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile has come for everyone; dS of the tile before is written; everyone has left what is filled now
    const int entry_after = __shfl_sync(all_lanes, load(&smem.after[stage_index]), 0);
    ++at;
    --left;
    next = tile_of(next_entry, group_head, plan.query_tiles, left > 0);
    copies.copy_statistics(next_stage.lse2, next_stage.minus_delta, next);
#pragma unroll
    for (int part = 0; part < tile_rows; part += part_rows) {
      float s[key_slices][part_rows / 8][4] = {}, dp[key_slices][part_rows / 8][4];
      std::uint32_t frag[part_rows / 16][key_slices][4];  // of P, later of dS

      // S^T = K Q^T, and the copies
      multiply_rows(s, smem.k, warp_key, stage.q, part, nullptr, [&](int step) {
        if (part == 0) copies.copy_share(next_stage.q, next_stage.d_o, next, step, dim / 16);
      });
      // P = exp2(S - LSE)
#pragma unroll
      for (int n = 0; n < key_slices; ++n) {
        exponentiate(s[n], &stage.lse2[part], scale_log2);
        if constexpr (decltype(is_masked)::value) {
          mask_sparse(s[n], shape, mask, head, this_entry, this_entry >> (warp_key / 64) & 1,
                      first_key + warp_key + 16 * n + lane / 4, tile * tile_rows + part);
        }
      }
      if constexpr (drops) {
        device::KeptTransposed kept[key_slices / 2];
        device::look_up(kept, shape.dropout, batch, head, tile * tile_rows + part, first_key + warp_key);
        device::negate_dropped(s, kept);
      }
      // dV += P^T dO
      pack_slices<T>(frag, s);
      if constexpr (drops) keep_positive<T>(frag);
      multiply_kept(acc_dv, frag, stage.d_o, part);
      // dP^T - D = V dO^T - D, dS = P (dP - D)
      if constexpr (drops) {
        zero(dp);
        multiply_rows(dp, smem.v, warp_key, stage.d_o, part);
        times_with_dropout(dp, s, &stage.minus_delta[part], shape.dropout.factor());
      } else {
        multiply_rows(dp, smem.v, warp_key, stage.d_o, part, stage.minus_delta, [](int) {});
        times(dp, s);
      }
      pack_slices<T>(frag, dp);
      store_slices(smem.ds[stage_index], warp_key, part, frag);
      // dK += dS^T Q
      multiply_kept(acc_dk, frag, stage.q, part);
    }
    copy_entry(stage_index ^ 1);
    ptx::cp_async_commit_group();
    if (before != nullptr) add_dq(stage_index ^ 1, before);
    before = &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim];
    stage_index ^= 1;
    this_entry = next_entry;
    next_entry = entry_after;
  };
#pragma unroll 1
  while (left > item.full) attend_tile(std::true_type{});
#pragma unroll 1
  while (left > 0) attend_tile(std::false_type{});

  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  if (before != nullptr) {
    __syncthreads();  // dS of the last tile is written
    add_dq(stage_index ^ 1, before);
  }
  device::multiply_by_factor(acc_dv, shape);
  const int part = load(&plan.work[blockIdx.x].part);
  if (part >= 0) {
    const std::int64_t first = std::int64_t{part} * wide_keys * dim;
#pragma unroll
    for (int s = 0; s < key_slices; ++s) {
      leave_rows<dim>(&parts.dk[first], warp_key + 16 * s, acc_dk[s]);
      leave_rows<dim>(&parts.dv[first], warp_key + 16 * s, acc_dv[s]);
    }
    return;
  }
  float* flag = rows.flag(shape, batch, kv_head);
#pragma unroll
  for (int s = 0; s < key_slices; ++s) {
    store_rows(dk, batch, kv_head, first_key + warp_key + 16 * s, shape.seq_k, shape.scale, acc_dk[s], flag);
    store_rows(dv, batch, kv_head, first_key + warp_key + 16 * s, shape.seq_k, 1.0f, acc_dv[s], flag);
  }
}

}  // namespace block_sparse
