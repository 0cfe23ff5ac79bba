// 05_flash_v2, registers: Q in registers.
// Predecessor: 06_folded_scale.cuh
//
// `folded_scale` loads the fragments of Q again for every tile of keys, though Q never changes. Here they stay in registers:
// dim / 4 of them a lane. The shared memory of Q is then free, and the second stage of K takes it.
//
//   Smem   stage[2]   each with k[64][dim] and v[64][dim]; swizzled. The memory of k in stage 1 holds Q at first
//
// What to expect: 32 ldmatrix a tile instead of 36 at dim 64, because Q's 4 are gone. 16 KB of shared memory less at dim 128:
// 64 KB instead of 80, which lets a third block onto an SM if its registers fit.
#pragma once

#include "steps/05_flash_v2/06_folded_scale.cuh"

namespace flash_v2 {

template <class T, int dim>
struct RecycledSmem {
  struct Stage {
    union {
      alignas(16) T k[tile_keys][dim];
      alignas(16) T q[tile_rows][dim];  // of stage 1, until it is in registers
    };
    alignas(16) T v[tile_keys][dim];
  };
  Stage stage[2];
};

// The fragments of Q for a warp's rows, times the sign of the scale.
template <class T, int dim>
__device__ void keep_q(std::uint32_t (&q_frag)[dim / 16][4], const T (&q)[tile_rows][dim], int warp_row, float scale) {
#pragma unroll
  for (int step = 0; step < dim / 16; ++step) {
    load_q(q_frag[step], q, warp_row, 16 * step);
#pragma unroll
    for (int w = 0; w < 4; ++w) q_frag[step][w] = times_sign<T>(q_frag[step][w], scale);
  }
}

// S = Q Kᵀ for a warp's rows and a tile of keys, with Q in registers. Adds to s.
template <class T, int dim>
__device__ void scores(float (&s)[score_frags][4], const std::uint32_t (&q_frag)[dim / 16][4], const T (&k)[tile_keys][dim]) {
#pragma unroll
  for (int step = 0; step < dim / 16; ++step) {
#pragma unroll
    for (int p = 0; p < score_frags; p += 2) {
      std::uint32_t k_frag[4];
      load_k(k_frag, k, 8 * p, 16 * step);
      mma_two<T>(s[p], s[p + 1], q_frag[step], k_frag);
    }
  }
}

// O += P V for a warp's rows and a tile of keys.
template <class T, int keys, int dim>
__device__ void add_values(float (&acc)[dim / 8][4], const float (&s)[keys / 8][4], const T (&v)[keys][dim]) {
#pragma unroll
  for (int step = 0; step < keys / 16; ++step) {
    std::uint32_t p_frag[4];
    as_operand<T>(p_frag, s, step);
#pragma unroll
    for (int p = 0; p < dim / 8; p += 2) {
      std::uint32_t v_frag[4];
      load_v(v_frag, v, 16 * step, 8 * p);
      mma_two<T>(acc[p], acc[p + 1], p_frag, v_frag);
    }
  }
}

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads) flash_registers(AttentionShape shape,
                                                                Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<RecycledSmem<T, dim>>();
  const QueryTile tile = query_tile(shape, tile_rows);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float scale_log2 = magnitude(shape.scale);
  RowKeys rows[2];
  visible_keys(shape, tile.first + warp_row, rows);

  const auto stage_of = [&](int j) -> auto& { return smem.stage[(tiles.end - 1 - j) % 2]; };  // the first tile has stage 0
  const auto copy_tile = [&](int j) {
    copy_rows(stage_of(j).k, k, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    copy_rows(stage_of(j).v, v, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    ptx::cp_async_commit_group();
  };

  float acc[dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  std::uint32_t q_frag[dim / 16][4];
  // ---- prologue ----

  // [doc: recycled_q]
  if (tiles.begin < tiles.end) {
    copy_rows(smem.stage[1].q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    ptx::cp_async_commit_group();
    copy_tile(tiles.end - 1);
    ptx::cp_async_wait_group<1>();
    __syncthreads();  // all of Q has come, from everyone; the first tile may still be in flight
    keep_q(q_frag, smem.stage[1].q, warp_row, shape.scale);
  }
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](int j, auto masked) {
    ptx::cp_async_wait_group<0>();         // this thread's part of the tile has come
    guard.barrier<masked>(stage_of(j).v);  // __syncthreads(), with a vote on NaNs in V where keys are masked
    // So has everyone's; and everyone has read the other stage, or Q there: it is filled next.
    if (j > tiles.begin) copy_tile(j - 1);
    // [/doc: recycled_q]

    // S = Q K^T
    float s[score_frags][4] = {};
    scores<T, dim>(s, q_frag, stage_of(j).k);
    if constexpr (masked) mask_scores(s, rows, j * tile_keys);
    // row maximum, P = exp2(S - m), rescale
    softmax_folded(s, scale_log2, states, acc);
    guard.take_out(stage_of(j).v);
    // O += P V
    add_values<T>(acc, s, stage_of(j).v);
  };
  for_each_tile(tiles, attend_tile);
  // ---- epilogue: O and LSE ----
  finish_rows<T, true>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
