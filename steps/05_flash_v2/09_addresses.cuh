// 05_flash_v2, addresses: addresses one operation away.
// Predecessor: 07_registers.cuh
//
// `registers` computes addresses beside its mma: each copy and each ldmatrix computes its own, from a row, a column, a stride
// of 64 bits and the swizzle, or keeps it in a register for the whole loop. But all of that repeats from tile to tile:
//
//   copies      one pointer for K and one for V, which move on by a tile. The rows of a thread's copies lie `period` rows
//               apart, and have the same swizzle: one addition each
//   fragments   the byte of a lane's row in the first 16 columns. The next 16 columns are one XOR away, or one addition: the
//               swizzle exchanges chunks within 128 bytes (64 bytes at dims 32 and 96), and never reaches the row
//
//   Smem   as in `registers`
//
// What to expect: little speed by itself, because other warps use the cycles of these instructions. But registers become free,
// because a lane keeps 6 addresses instead of one for each ldmatrix, and the next rung needs them.
#pragma once

#include "steps/05_flash_v2/07_registers.cuh"

namespace flash_v2 {

// The products of `registers`, with a lane's address one operation away.
template <class T, int dim>
__device__ void scores(float (&s)[score_frags][4], const std::uint32_t (&q_frag)[dim / 16][4], const T (&k)[tile_keys][dim],
                       int b_from) {
#pragma unroll
  for (int step = 0; step < dim / 16; ++step) {
#pragma unroll
    for (int p = 0; p < score_frags; p += 2) {
      std::uint32_t k_frag[4];
      ptx::ldmatrix_x4(k_frag, bytes_beyond(&k[8 * p][0], columns_beyond<dim>(b_from, step)));
      mma_two<T>(s[p], s[p + 1], q_frag[step], k_frag);
    }
  }
}
template <class T, int keys, int dim>
__device__ void add_values(float (&acc)[dim / 8][4], const float (&s)[keys / 8][4], const T (&v)[keys][dim], int a_from) {
#pragma unroll
  for (int step = 0; step < keys / 16; ++step) {
    std::uint32_t p_frag[4];
    as_operand<T>(p_frag, s, step);
#pragma unroll
    for (int p = 0; p < dim / 8; p += 2) {
      std::uint32_t v_frag[4];
      ptx::ldmatrix_x4_trans(v_frag, bytes_beyond(&v[16 * step][0], columns_beyond<dim>(a_from, p / 2)));
      mma_two<T>(acc[p], acc[p + 1], p_frag, v_frag);
    }
  }
}

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads) flash_addresses(AttentionShape shape,
                                                                Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<RecycledSmem<T, dim>>();
  const QueryTile tile = query_tile(shape, tile_rows);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  const int warp_row = __shfl_sync(all_lanes, threadIdx.x / 32, 0) * warp_rows;  // the same for all lanes: nvcc sees it
  const float scale_log2 = magnitude(shape.scale);
  RowKeys rows[2];
  visible_keys(shape, tile.first + warp_row, rows);

  const auto stage_of = [&](int j) -> auto& { return smem.stage[(tiles.end - 1 - j) % 2]; };  // the first tile has stage 0
  NextTile<T, dim, tile_keys> next_tile(k, v, tile, tiles.end - 2);
  const LaneRows<T, dim> lane;
  const auto copy_tile = [&](int j) {  // the first one, which may end early
    copy_rows(stage_of(j).k, k, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    copy_rows(stage_of(j).v, v, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    ptx::cp_async_commit_group();
  };
  float acc[dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  std::uint32_t q_frag[dim / 16][4];
  // ---- prologue ----
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
    if (j > tiles.begin) next_tile.load(stage_of(j - 1));
    ptx::cp_async_commit_group();
    next_tile.move(-1);

    // S = Q K^T
    float s[score_frags][4] = {};
    scores<T, dim>(s, q_frag, stage_of(j).k, lane.b_from);
    if constexpr (masked) mask_scores(s, rows, j * tile_keys);
    // row maximum, P = exp2(S - m), rescale
    softmax_folded(s, scale_log2, states, acc);
    guard.take_out(stage_of(j).v);
    // O += P V
    add_values<T>(acc, s, stage_of(j).v, lane.a_from);
  };
  for_each_tile(tiles, attend_tile);
  // ---- epilogue: O and LSE ----
  finish_rows<T, true>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
