// 06_backward, tuned_128: four warps make P and dV, four make dS, dK and dQ.
// Predecessor: 09_tuned_64.cuh (option: head dims 96 and 128)
//
// Above dim 64 no warp has room for dK and dV of 32 keys: 256 accumulators a lane at dim 128. With 16 keys, as in `pipeline`,
// every fragment of Q and dO feeds two mma only, and shared memory is the bound. Here a warp keeps one of the two, of 64 keys ×
// dim / 2 columns: 128 accumulators, and each fragment of B feeds four slices. The warps of a block have two roles.
//
//   P-warps   Sᵀ and P of 64 keys × 32 queries; P to shared memory; dV of 64 keys × 64 columns. P of the warp's own queries is
//             in its registers; P of the other half comes from shared memory
//   S-warps   dK and dQ of the tile before; dPᵀ of 64 keys × 32 queries; P from shared memory; dS to shared memory
//   barriers  1: all warps, at the top of each tile. 2: P is there for the S-warps. 3: and for the other P-warps
//   Smem      k, v[128][dim], q[3], d_o[2][64][dim], p, ds[2][128][64]: dK of the tile before still needs its Q
//
// What to expect: 1.5 wavefronts for an mma: shared memory is no longer the bound (1.525 at the roof). 1.7 times `pipeline` at
// dim 128, 335 TFLOP/s. The bound is latency, because registers allow each scheduler only two warps.
#pragma once

#include "common/device/backward/role_warp.cuh"
#include "common/device/ptx/barrier.cuh"

namespace backward {

// with_dq: false for `deterministic`, which makes dQ elsewhere.
// Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of role_threads.
template <class T, int dim, bool with_dq = true, class Shape = AttentionShape>
__global__ void __launch_bounds__(role_threads, 1) backward_tuned_128(Shape shape,
                                                                      Heads<const T> q,    // [batch, heads, seq_q, dim]
                                                                      Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                                                                      Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                                                                      Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                                                                      RowStatistics rows,
                                                                      float* dq_sums,  // [batch, heads, padded, dim], in blocks
                                                                      Heads<T> dk,     // [batch, kv_heads, seq_k, dim]
                                                                      Heads<T> dv) {   // [batch, kv_heads, seq_k, dim]
  auto& smem = device::shared_storage<RolesSmem<T, dim>>();
  const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int first_key = blockIdx.x * role_keys, kv_head = blockIdx.y, batch = blockIdx.z;
  const int first_head = kv_head * (shape.heads / shape.kv_heads), end_head = first_head + shape.heads / shape.kv_heads;
  const float scale_log2 = shape.scale * device::log2_e;
  const QueryTiles tiles = query_tiles(shape, first_key, role_keys, tile_rows);
  const bool any = tiles.begin < tiles.end;
  constexpr bool drops = device::drops<Shape>;
  RoleWarp<T, dim> self(warp);

  // ---- prologue: K, V and the first tile ----
  TileOfHead next = first_tile(shape, tiles, kv_head);  // the tile that is copied next
  copy_tile<role_threads>(smem.k, k, batch, kv_head, first_key, shape.seq_k);
  copy_tile<role_threads>(smem.v, v, batch, kv_head, first_key, shape.seq_k);
  const StageCopies<role_threads, T, tile_rows, dim> copies(shape, q, d_o, rows, batch);
  copies.copy_share(smem.q[0], smem.d_o[0], next, 0, 1);
  copies.copy_statistics(smem.lse2[0], smem.minus_delta[0], next);
  ptx::cp_async_commit_group();
  int stage = 0;    // of dO, the statistics and dS
  int q_stage = 0;  // of Q, of three
  const auto q_next = [&] { return q_stage == 2 ? 0 : q_stage + 1; };
  const auto copy_share = [&](int step) { copies.copy_share(smem.q[q_next()], smem.d_o[stage ^ 1], next, step, dim / 16); };
  const auto begin_tile = [&] {
    ptx::cp_async_wait_group<0>();
    // The tile has come; dS of the tile before is written; everyone has left what is filled now.
    ptx::barrier_sync(1, role_threads);
    advance(next, tiles);
    copies.copy_statistics(smem.lse2[stage ^ 1], smem.minus_delta[stage ^ 1], next);
  };
  const auto end_tile = [&] {
    ptx::cp_async_commit_group();
    stage ^= 1;
    q_stage = q_next();
  };

  if (warp < 4) {
    // ================ P and dV ================
    const auto attend_tile = [&]([[maybe_unused]] int head, int tile, auto is_masked) {
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
          mask_probabilities(s[n], shape, first_key + self.key + 16 * n + lane / 4, tile * tile_rows + self.query);
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
    for_each_tile(shape, tiles, kv_head, attend_tile);
    ptx::cp_async_wait_all();                     // of K and V, where no query sees them
    if (any) ptx::barrier_sync(1, role_threads);  // the S-warps' last wait
    device::multiply_by_factor(self.acc, shape);
    self.store(dv, batch, kv_head, first_key, shape.seq_k, 1.0f, rows.flag(shape, batch, kv_head));
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
      if (!with_dq) return;
      // dQ += dS K: 32 queries × dim / 2
      const int row = warp % 4 / 2 * 32, column = warp % 2 * (dim / 2);
      float acc[2][dim / 16][4] = {};
      multiply_tile_columns(acc, smem.ds[buffer], row, smem.k, column);
      add_slices<true, dim>(before, row, column, acc);
    };
    const auto attend_tile = [&](int head, int tile) {
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
      if constexpr (with_dq) before = &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim];
      q_before = q_stage;
      end_tile();
    };
#pragma unroll 1
    for (int head = first_head; head < end_head; ++head) {
#pragma unroll 1
      for (int tile = tiles.begin; tile < tiles.end; ++tile) attend_tile(head, tile);
    }
    ptx::cp_async_wait_all();  // of K and V, where no query sees them
    if (any) {
      ptx::barrier_sync(1, role_threads);  // dS of the last tile is written
      finish_tile(stage ^ 1);
    }
    self.store(dk, batch, kv_head, first_key, shape.seq_k, shape.scale, rows.flag(shape, batch, kv_head));
  }
}

}  // namespace backward
