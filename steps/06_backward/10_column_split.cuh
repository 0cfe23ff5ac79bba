// 06_backward, column_split: eight warps, each with half of the columns of dK and dV.
// Predecessor: 09_tuned_64.cuh (option: head dims 96 and 128)
//
// Above dim 64 no warp has room for dK and dV of 32 keys: 256 accumulators a lane at dim 128. `pipeline` has 16 keys a warp. So
// every fragment of Q and dO feeds two mma only, an mma costs 3.1 wavefronts, and shared memory is busy for 77 % of the time.
// Here two warps have the same 32 keys. Each makes P and dS of half of the queries, and dV and dK of half of the columns: 128
// accumulators, and each fragment of B feeds four mma. dV and dK need P and dS of all queries. Those of the warp's own are in
// its registers, those of the other half come from the other warp through shared memory.
//
//   warp   32 keys × 32 queries of Sᵀ and dPᵀ; dV and dK of these keys × dim / 2; dQ of 16 queries × dim / 2
//   Smem   k, v[128][dim], q, d_o[2][64][dim], p, ds[128][64]
//
// All warps wait for P and dS at the second barrier of a tile. So dQ need not be a tile late.
//
// What to expect: 270 TFLOP/s at dim 128, 1.15 times `pipeline`, because wavefronts fall from 3.1 to 2.1 for an mma. They alone
// would allow 1.5 times. But all warps make their exponentials between the same two barriers, and the tensor cores rest.
#pragma once

#include "common/device/backward/split_warp.cuh"

namespace backward {

// Grid: x over tiles of keys, y over key/value heads, z over the batch. Blocks of split_threads.
template <class T, int dim>
__global__ void __launch_bounds__(split_threads, 1)
    backward_column_split(AttentionShape shape,
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
  const float scale_log2 = shape.scale * device::log2_e;
  const QueryTiles tiles = query_tiles(shape, first_key, split_keys, tile_rows);
  ColumnsWarp<T, dim> warp(smem, __shfl_sync(all_lanes, threadIdx.x / 32, 0));

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
  const auto attend_tile = [&](int head, int tile, auto is_masked) {
    SplitScores<2> p = {}, dp;  // p: first S
    SplitOperands<2> p_operands, ds;
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile has come for everyone; everyone has left the other stage, P and dS, which are filled now
    advance(next, tiles);
    copies.copy_statistics(smem.lse2[stage ^ 1], smem.minus_delta[stage ^ 1], next);
    // S^T = K Q^T, and the copies; P = exp2(S - LSE)
    warp.scores(p, smem.q[stage], copy_share);
    warp.probabilities(p_operands, p, stage, scale_log2, first_key, [&](auto& of_slice, int key) {
      if constexpr (decltype(is_masked)::value) mask_probabilities(of_slice, shape, key, tile * tile_rows + warp.query);
    });
    store_slices(smem.p, warp.key, warp.query, p_operands);
    // dP^T - D = V dO^T - D; dS = P (dP - D)
    warp.dp(dp, stage, [](int) {});
    warp.ds(ds, dp, p);
    store_slices(smem.ds[0], warp.key, warp.query, ds);
    ptx::cp_async_commit_group();
    __syncthreads();  // P and dS are written: dV and dK need those of all queries, dQ needs dS of all keys
    // dV += P^T dO; dK += dS^T Q; dQ += dS K
    warp.add_dv(p_operands, smem.d_o[stage]);
    warp.add_dk(ds, smem.q[stage]);
    warp.add_dq(smem.ds[0], &dq_sums[rows.at(shape, batch, head, tile * tile_rows) * dim]);
    stage ^= 1;
  };
  for_each_tile(shape, tiles, kv_head, attend_tile);

  ptx::cp_async_wait_all();  // of K and V, where no query sees them
  float* flag = rows.flag(shape, batch, kv_head);
  warp.store(dk, batch, kv_head, first_key, shape.seq_k, shape.scale, warp.acc_dk, flag);
  warp.store(dv, batch, kv_head, first_key, shape.seq_k, 1.0f, warp.acc_dv, flag);
}

}  // namespace backward
