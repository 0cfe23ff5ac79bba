// 06_backward, tuned_128: the two roles, with dK and dQ one tile late.
// Predecessor: 11_roles.cuh (option: head dims 96 and 128)
//
// In `roles` an S-warp stops twice in a tile: until the P-warps have P, and until all S-warps have dS. Two thirds of its mma,
// dK and dQ, come after both stops. Here dK and dQ wait for a tile, as dQ does in `keys_32`. An S-warp begins a tile with dK
// and dQ of the tile before. Their dS was written before barrier 1. Meanwhile the P-warps make P of this tile.
//
//   P-warps   as in `roles`
//   S-warps   dK and dQ of the tile before; then dPᵀ, and dS, to the other of two buffers
//   barriers  1: all warps, at the top of each tile; it also says that dS of the tile before is there. 2, 3: P is there, as in
//             `roles`
//   Smem      k, v[128][dim], q[3], d_o[2][64][dim], p, ds[2][128][64]: dK of the tile before still needs its Q
//
// What to expect: 335 TFLOP/s, 1.7 times `pipeline`, because 1.5 wavefronts for an mma are no bound (1.525 at the roof), and P
// is there when an S-warp asks for it. The bound is latency, because registers allow each scheduler only two warps.
#pragma once

#include "common/device/backward/split_warp.cuh"

namespace backward {

// with_dq: false for `deterministic`, which makes dQ elsewhere.
// Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of split_threads.
template <class T, int dim, bool with_dq = true, class Shape = AttentionShape>
__global__ void __launch_bounds__(split_threads, 1)
    backward_tuned_128(Shape shape,
                       Heads<const T> q,    // [batch, heads, seq_q, dim]
                       Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                       Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                       Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                       RowStatistics rows,
                       float* dq_sums,  // [batch, heads, padded, dim], in blocks
                       Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                       Heads<T> dv) {   // [batch, kv_heads, seq_k, dim]
  auto& smem = device::shared_storage<RolesSmem<T, dim>>();
  const int first_key = blockIdx.x * split_keys, kv_head = blockIdx.y, batch = blockIdx.z;
  const int first_head = kv_head * (shape.heads / shape.kv_heads), end_head = first_head + shape.heads / shape.kv_heads;
  const float scale_log2 = shape.scale * device::log2_e;
  const QueryTiles tiles = query_tiles(shape, first_key, split_keys, tile_rows);
  const bool any = tiles.begin < tiles.end;
  constexpr bool drops = device::drops<Shape>;
  TunedRoleWarp<T, dim, Shape> warp(smem, __shfl_sync(all_lanes, threadIdx.x / 32, 0));

  // ---- prologue: K, V and the first tile ----
  TileOfHead next = first_tile(shape, tiles, kv_head);  // the tile that is copied next
  copy_tile<split_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
  copy_tile<split_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
  const StageCopies<split_threads, T, tile_rows, dim> copies(shape, q, d_o, rows, batch);
  copies.copy_share(smem.q[0], smem.d_o[0], next, 0, 1);
  copies.copy_statistics(smem.lse2[0], smem.minus_delta[0], next);
  ptx::cp_async_commit_group();
  RoleStage at;  // of this tile
  const auto copy_share = [&](int step) {
    copies.copy_share(smem.q[at.next_q()], smem.d_o[at.next_d_o()], next, step, dim / 16);
  };
  const auto begin_tile = [&] {
    ptx::cp_async_wait_group<0>();
    // The tile has come; dS of the tile before is written; everyone has left what is filled now.
    ptx::barrier_sync(1, split_threads);
    advance(next, tiles);
    copies.copy_statistics(smem.lse2[at.next_d_o()], smem.minus_delta[at.next_d_o()], next);
  };
  const auto end_tile = [&] {
    ptx::cp_async_commit_group();
    at.advance();
  };

  if (warp.makes_p) {
    // ================ P and dV ================
    const auto attend_tile = [&]([[maybe_unused]] int head, int tile, auto is_masked) {
      const int query = tile * tile_rows + warp.query;
      RoleScores s = {};
      RoleOperands p;
      begin_tile();
      [[maybe_unused]] device::KeptTransposed kept[role_slices / 2];  // before the mma, which leave cycles for it
      if constexpr (drops) device::look_up(kept, shape.dropout, batch, head, query, first_key + warp.key);
      // S^T = K Q^T, and the copies; P = exp2(S - LSE); dV += P^T dO
      warp.scores(s, smem.q[at.q], copy_share);
      warp.probabilities(p, s, at.d_o, scale_log2, first_key, [&](auto& of_slice, int key) {
        if constexpr (decltype(is_masked)::value) mask_probabilities(of_slice, shape, key, query);
      });
      if constexpr (drops) device::negate_dropped(p, kept);
      store_slices(smem.p, warp.key, warp.query, p);
      ptx::bar_arrive(2, split_threads);  // P is there: the S-warps may read it
      warp.add_dv(p, smem.d_o[at.d_o]);
      end_tile();
    };
    for_each_tile(shape, tiles, kv_head, attend_tile);
    ptx::cp_async_wait_all();                      // of K and V, where no query sees them
    if (any) ptx::barrier_sync(1, split_threads);  // the S-warps' last wait
    device::multiply_by_factor(warp.acc, shape);
    warp.store(dv, batch, kv_head, first_key, shape.seq_k, 1.0f, warp.acc, rows.flag(shape, batch, kv_head));
  } else {
    // ================ dS, dK and dQ ================
    RoleOperands ds;             // of the warp's own queries
    bool is_behind = false;      // dK and dQ of a tile are left
    float* dq_before = nullptr;  // where dQ of the tile before goes, which is not added yet
    int q_before = 0;
    const auto finish_tile = [&](int stage) {
      // dK += dS^T Q, dQ += dS K
      warp.add_dk(ds, smem.ds[stage], smem.q[q_before]);
      if constexpr (with_dq) warp.add_dq(smem.ds[stage], dq_before);
    };
    const auto attend_tile = [&](int head, int tile) {
      RoleScores dp;
      begin_tile();
      if (is_behind) finish_tile(at.next_d_o());
      // dP^T - D = V dO^T - D, and the copies; dS = P (dP - D)
      warp.dp(dp, at.d_o, copy_share);
      ptx::bar_sync(2, split_threads);  // P is there
      warp.ds(ds, dp, at.d_o, shape);
      store_slices(smem.ds[at.d_o], warp.key, warp.query, ds);
      is_behind = true;
      if constexpr (with_dq) dq_before = &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim];
      q_before = at.q;
      end_tile();
    };
#pragma unroll 1
    for (int head = first_head; head < end_head; ++head) {
#pragma unroll 1
      for (int tile = tiles.begin; tile < tiles.end; ++tile) attend_tile(head, tile);
    }
    ptx::cp_async_wait_all();  // of K and V, where no query sees them
    if (any) {
      ptx::barrier_sync(1, split_threads);  // dS of the last tile is written
      finish_tile(at.next_d_o());
    }
    warp.store(dk, batch, kv_head, first_key, shape.seq_k, shape.scale, warp.acc, rows.flag(shape, batch, kv_head));
  }
}

}  // namespace backward
