// 06_backward, roles: four warps make P and dV, four make dS, dK and dQ.
// Predecessor: 10_column_split.cuh (option: head dims 96 and 128)
//
// Two costs of `column_split` are left: 2.1 wavefronts for an mma, more than the 1.525 cycles that the tensor cores need for
// it, and exponentials that all warps make at the same time. Here a warp keeps one of dV and dK, but of 64 keys × dim / 2
// columns: 128 accumulators again, and each fragment of B feeds eight mma. So the warps have two roles. While P-warps make
// exponentials, S-warps make dP.
//
//   P-warps   Sᵀ and P of 64 keys × 32 queries; P to shared memory; dV of 64 keys × dim / 2
//   S-warps   dPᵀ of 64 keys × 32 queries; P from shared memory; dS to shared memory; dK of 64 keys × dim / 2; dQ of 32
//             queries × dim / 2
//   barriers  1: all warps, at the top of each tile. 2: P is there for the S-warps. 3: and for the other P-warps. 4: dS is
//             there for the other S-warps
//   Smem      as in `column_split`
//
// What to expect: 300 TFLOP/s at dim 128, 1.1 times `column_split`, because an mma costs 1.5 wavefronts: shared memory is no
// longer the bound. But the S-warps have 384 mma a tile, the P-warps 256, and 256 of the 384 begin when P and dS are there.
#pragma once

#include "common/device/backward/split_warp.cuh"

namespace backward {

// Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of split_threads.
template <class T, int dim>
__global__ void __launch_bounds__(split_threads, 1) backward_roles(AttentionShape shape,
                                                                   Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                   Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                   Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                   Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                   RowStatistics rows,
                                                                   float* dq_sums,  // [batch, heads, padded, dim], in blocks
                                                                   Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                                                                   Heads<T> dv) {   // [batch, kv_heads, seq_k, dim]
  auto& smem = device::shared_storage<SplitSmem<T, dim>>();
  const int first_key = blockIdx.x * split_keys, kv_head = blockIdx.y, batch = blockIdx.z;
  const int first_head = kv_head * (shape.heads / shape.kv_heads), end_head = first_head + shape.heads / shape.kv_heads;
  const float scale_log2 = shape.scale * device::log2_e;
  const QueryTiles tiles = query_tiles(shape, first_key, split_keys, tile_rows);
  RoleWarp<T, dim, SplitSmem<T, dim>> warp(smem, __shfl_sync(all_lanes, threadIdx.x / 32, 0));

  // ---- prologue: K, V and the first tile ----
  TileOfHead next = first_tile(shape, tiles, kv_head);  // the tile that is copied next
  copy_tile<split_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
  copy_tile<split_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
  const StageCopies<split_threads, T, tile_rows, dim> copies(shape, q, d_o, rows, batch);
  copies.copy_share(smem.q[0], smem.d_o[0], next, 0, 1);
  copies.copy_statistics(smem.lse2[0], smem.minus_delta[0], next);
  ptx::cp_async_commit_group();
  int stage = 0;  // of Q, dO and the statistics
  const auto copy_share = [&](int step) { copies.copy_share(smem.q[stage ^ 1], smem.d_o[stage ^ 1], next, step, dim / 16); };
  const auto begin_tile = [&] {
    ptx::cp_async_wait_group<0>();
    // The tile has come; everyone has left the other stage, P and dS, which are filled now.
    ptx::barrier_sync(1, split_threads);
    advance(next, tiles);
    copies.copy_statistics(smem.lse2[stage ^ 1], smem.minus_delta[stage ^ 1], next);
  };
  const auto end_tile = [&] {
    ptx::cp_async_commit_group();
    stage ^= 1;
  };

  if (warp.makes_p) {
    // ================ P and dV ================
    const auto attend_tile = [&](int, int tile, auto is_masked) {
      RoleScores s = {};
      RoleOperands p;
      begin_tile();
      // S^T = K Q^T, and the copies; P = exp2(S - LSE); dV += P^T dO
      warp.scores(s, smem.q[stage], copy_share);
      warp.probabilities(p, s, stage, scale_log2, first_key, [&](auto& of_slice, int key) {
        if constexpr (decltype(is_masked)::value) mask_probabilities(of_slice, shape, key, tile * tile_rows + warp.query);
      });
      store_slices(smem.p, warp.key, warp.query, p);
      ptx::bar_arrive(2, split_threads);  // P is there: the S-warps may read it
      warp.add_dv(p, smem.d_o[stage]);
      end_tile();
    };
    for_each_tile(shape, tiles, kv_head, attend_tile);
    ptx::cp_async_wait_all();  // of K and V, where no query sees them
    warp.store(dv, batch, kv_head, first_key, shape.seq_k, 1.0f, warp.acc, rows.flag(shape, batch, kv_head));
  } else {
    // ================ dS, dK and dQ ================
    const auto attend_tile = [&](int head, int tile) {
      RoleScores dp;
      RoleOperands ds;
      begin_tile();
      // dP^T - D = V dO^T - D, and the copies; dS = P (dP - D)
      warp.dp(dp, stage, copy_share);
      ptx::bar_sync(2, split_threads);  // P is there
      warp.ds(ds, dp);
      store_slices(smem.ds[0], warp.key, warp.query, ds);
      ptx::bar_sync(4, split_threads / 2);  // dS is there: dK needs that of all queries, dQ that of all keys
      // dK += dS^T Q, dQ += dS K
      warp.add_dk(ds, smem.ds[0], smem.q[stage]);
      warp.add_dq(smem.ds[0], &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim]);
      end_tile();
    };
#pragma unroll 1
    for (int head = first_head; head < end_head; ++head) {
#pragma unroll 1
      for (int tile = tiles.begin; tile < tiles.end; ++tile) attend_tile(head, tile);
    }
    ptx::cp_async_wait_all();  // of K and V, where no query sees them
    warp.store(dk, batch, kv_head, first_key, shape.seq_k, shape.scale, warp.acc, rows.flag(shape, batch, kv_head));
  }
}

}  // namespace backward
