// 05_flash_v2, tuned: copies and exponentials between the mma.
// Predecessor: 11_lazy_rescale.cuh
//
// In `lazy_rescale` a tile has phases: all copies of the next tile, all mma of S, all exponentials, all mma of O. In each phase
// one unit works and the others wait, unless another warp is in another phase. Here the phases overlap within a warp: the
// copies of the next tile are issued between the mma of S = Q Kᵀ, and the exponentials of the next 16 keys between the mma of O
// += P V.
//
//   block   128 queries (64 at dim 256), 4 warps; two blocks on an SM run without a barrier between them, so that one's
//           softmax meets the other's mma
//   Smem    q[rows][dim], stage[2] each with k[keys][dim] and v[keys][dim]; swizzled. 96 KB at dim 128 and 256: a GPU with
//           99 KB of shared memory holds one block at a time
//
// Dims 96 and 256 are new: there, two or three chunks of a thread have different places in their rows (NextTile::bases).
//
// What to expect: as many instructions as `lazy_rescale`, but fewer cycles in which no tensor core works, because copies issued
// together stall in the queue to shared memory, and because the unit for exponentials needs two cycles for each quarter of a
// warp, in which the tensor core can work.
#pragma once

#include "common/device/flash_v2/score_options.cuh"
#include "common/device/flash_v2/tuned_tile.cuh"
#include "common/device/kept_pairs.cuh"

namespace flash_v2 {

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads. Rows begin at multiples of 16 bytes.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) flash_tuned(typename Tile::Shape shape,
                                                               Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                               Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                               Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                               Heads<T> o,        // [batch, heads, seq_q, dim]
                                                               float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<TunedSmem<T, Tile>>();
  constexpr int dim = Tile::dim, keys = Tile::keys, slices = Tile::slices;
  const QueryTile tile = query_tile(shape, Tile::rows);
  device::become_entry(shape, tile.batch);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, keys);
  const int warp_row = __shfl_sync(all_lanes, threadIdx.x / 32, 0) * 16 * slices;  // the same for all lanes: nvcc sees it
  const float scale_log2 = softmax_scale(shape);

  // ---- prologue ----
  if (tiles.begin < tiles.end) {
    copy_rows(smem.q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    copy_rows(smem.stage[0].k, k, tile.batch, tile.kv_head, (tiles.end - 1) * keys, shape.seq_k);
    copy_rows(smem.stage[0].v, v, tile.batch, tile.kv_head, (tiles.end - 1) * keys, shape.seq_k);
    ptx::cp_async_commit_group();
    if (shape.scale <= 0.0f) {
      ptx::cp_async_wait_group<0>();  // this thread's part of Q has come: it multiplies only that
      apply_sign<T, tile_threads>(smem.q, shape.scale);
    }
  }
  NextTile<T, dim, keys> next_tile(k, v, tile, tiles.end - 2);  // always a tile ahead of the loop
  float acc[slices][dim / 8][4] = {};                           // O, not yet divided
  SoftmaxState states[slices][2];
#pragma unroll
  for (int s = 0; s < slices; ++s) states[s][0] = states[s][1] = {lowest, 0.0f};
  WarpOperands<T, Tile> warp;
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  float to_base_2 = 1;           // as lazy_rescale leaves it where some m is beyond fma_limit: all m begin there
  int stage_index = 0;           // of this tile
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](int j, auto masked) {
    auto& stage = smem.stage[stage_index];
    auto& next_stage = smem.stage[stage_index ^ 1];
    ptx::cp_async_wait_group<0>();   // this thread's part of the tile has come, and of Q
    guard.barrier<masked>(stage.v);  // __syncthreads(), with a vote on NaNs in V where keys are masked
    // Behind this barrier everyone's part has come; and everyone has read the other stage, which is filled next.
    if (Tile::keeps_q && j == tiles.end - 1) warp.keep_q(smem.q, warp_row);

    // S = Q K^T, and between the mma the copies of the next tile (g++ 12 crashes at `slices` in this lambda)

    // [doc: tuned_scores]
    float s[Tile::slices][Tile::keys / 8][4] = {};
    scores<T, Tile>(s, warp, smem.q, warp_row, stage.k, [&](int step) {
      if (j == tiles.begin) return;
      next_tile.load(next_stage, copies_before<Tile>(step), copies_before<Tile>(step + 1));
    });
    // [/doc: tuned_scores]
    stage_index ^= 1;
    ptx::cp_async_commit_group();
    next_tile.move(-1);
    modify_scores(s, shape, tile, tile.first + warp_row, j * keys);
    if constexpr (masked) {
      mask_slices(s, shape, tile.first + warp_row, j * keys);
      guard.take_out(stage.v);
    }
    // row maximum; rescale where it has grown too far
    lazy_rescale(s, scale_log2, to_base_2, states, acc);
    // P = exp2(S - m) and O += P V
    device::KeptPairs<2 * Tile::slices> kept;  // of 32 keys
    accumulate<T, Tile>(acc, states, s, to_base_2, warp, stage.v, [&](auto& p_frag, int g) {
      device::drop_pairs(p_frag, kept, shape, tile.batch, tile.head, tile.first + warp_row, j * keys + 16 * g, g);
    });
  };
  for_each_tile(tiles, attend_tile);
  // ---- epilogue: O and LSE ----
  device::multiply_by_factor(acc, shape);
  finish_slices(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, keys, v, o);
}

}  // namespace flash_v2
