// Exercise 2 of step 05, solved: a barrier between the last reader of Q and the first copy of K to its place.
#pragma once

#include "steps/05_flash_v2/exercises/exercise.h"

namespace exercise {

using namespace flash_v2;

using Smem = RecycledSmem<__half, exercise_dim>;

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
__global__ void __launch_bounds__(tile_threads) flash(AttentionShape shape,
                                                      Heads<const __half> q,  // [batch, heads, seq_q, dim]
                                                      Heads<const __half> k,  // [batch, kv_heads, seq_k, dim]
                                                      Heads<const __half> v,  // [batch, kv_heads, seq_k, dim]
                                                      Heads<__half> o,        // [batch, heads, seq_q, dim]
                                                      float* lse) {           // [batch, heads, seq_q]
  auto& smem = device::shared_storage<Smem>();
  const QueryTile tile = query_tile(shape, tile_rows);
  KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  tiles.free_begin = tiles.free_end = tiles.begin;    // every tile gets a mask
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float scale_log2 = magnitude(shape.scale);
  RowKeys rows[2];
  visible_keys(shape, tile.first + warp_row, rows);

  const auto stage_of = [&](int j) -> auto& { return smem.stage[(tiles.end - 1 - j) % 2]; };
  const auto copy_tile = [&](int j) {  // nothing where there is no such tile; a group in any case
    if (j >= tiles.begin) {
      copy_rows(stage_of(j).k, k, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
      copy_rows(stage_of(j).v, v, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    }
    ptx::cp_async_commit_group();
  };

  float acc[exercise_dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  std::uint32_t q_frag[exercise_dim / 16][4];
  copy_rows(smem.stage[1].q, q, tile.batch, tile.head, tile.first, shape.seq_q);
  ptx::cp_async_commit_group();
  copy_tile(tiles.end - 1);
  ptx::cp_async_wait_group<1>();
  __syncthreads();  // all of Q has come
  keep_q(q_frag, smem.stage[1].q, warp_row, shape.scale);
  __syncthreads();  // every warp has its rows of Q in registers before K overwrites them
  copy_tile(tiles.end - 2);
  for (int j = tiles.end - 1; j >= tiles.begin; --j) {
    ptx::cp_async_wait_group<1>();  // this thread's part of the tile has come; the next one may be in flight
    guard.barrier<true>(stage_of(j).v);
    // So has everyone's.
    float s[score_frags][4] = {};
    scores<__half, exercise_dim>(s, q_frag, stage_of(j).k);
    mask_scores(s, rows, j * tile_keys);
    softmax_folded(s, scale_log2, states, acc);
    guard.take_out(stage_of(j).v);
    add_values<__half>(acc, s, stage_of(j).v);
    __syncthreads();  // everyone has read the tile before the one after the next overwrites it
    copy_tile(j - 2);
  }
  finish_rows<__half, true>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace exercise
