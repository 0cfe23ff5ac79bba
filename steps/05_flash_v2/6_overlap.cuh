// Step 05, file 6: the next tile's scores before this tile's softmax.
//
// In file 5 a warp's tensor core waits while the warp's softmax runs: the mma of P · V need the exponentials, and the mma of
// the next scores come behind them in the program. But the next scores need nothing of this tile. So a round first issues
// S(next) = Q K(next)ᵀ, then does the softmax of the scores it already has, while the tensor core works.
//
// A round reads K of the next tile and V of this one. K is therefore copied one round ahead of V:
//
//   round j    waits for K(j − 1) and V(j);   asks for K(j − 2) and V(j − 1);   S(j − 1), softmax(j), O += P(j) V(j)
//
//   Smem   stage[2]   each with k[64][dim] and v[64][dim]; tile j's K and V in the stage of the same number; V's memory of
//   stage 1
//                     holds Q at first
//
// What to expect: other warps fill a tensor core's pauses, too, so what is won is what they leave. The price is a second set of
// scores: 32 registers a lane. Whether that pays is for measurements to say.
#pragma once

#include "steps/05_flash_v2/5_registers.cuh"

namespace flash_v2 {

template <class T, int dim>
struct OverlapSmem {
  struct Stage {
    alignas(16) T k[tile_keys][dim];
    union {
      alignas(16) T v[tile_keys][dim];
      alignas(16) T q[tile_rows][dim];  // of stage 1, until it is in registers
    };
  };
  Stage stage[2];
};

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads, 2) flash_overlap(AttentionShape shape,
                                                                 Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                 Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                 Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                 Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                 float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<OverlapSmem<T, dim>>();
  const QueryTile tile = query_tile(shape, tile_rows);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float c = magnitude(shape.scale);
  RowKeys rows[2];
  visible_keys(shape, tile.first + warp_row, rows);

  const auto stage_of = [&](int j) -> auto& { return smem.stage[(tiles.end - 1 - j) % 2]; };  // the first tile has stage 0
  const auto copy_k = [&](int j) {  // nothing where there is no such tile
    if (j >= tiles.begin) copy_rows(stage_of(j).k, k, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
  };
  const auto copy_v = [&](int j) {
    if (j >= tiles.begin) copy_rows(stage_of(j).v, v, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
  };

  float sums[dim / 8][4] = {};  // of O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  std::uint32_t q_pieces[dim / 16][4];
  float s[score_pieces][4] = {};
  // [doc: overlap_loop]
  if (tiles.begin < tiles.end) {
    const int last = tiles.end - 1;
    copy_rows(smem.stage[1].q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    copy_k(last);
    ptx::cp_async_commit_group();
    copy_k(last - 1);
    copy_v(last);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<1>();
    __syncthreads();  // all of Q and of the first K has come; the rest may still be under way
    keep_q(q_pieces, smem.stage[1].q, warp_row, shape.scale);
    scores<T, dim>(s, q_pieces, stage_of(last).k);
  }
  const auto round = [&](int j, auto masked) {
    ptx::cp_async_wait_group<0>();  // this thread's parts of K(j − 1) and V(j) have come
    guard.barrier<masked>(stage_of(j).v);
    // So have everyone's; and everyone has read K(j) and V(j + 1), or Q in its place: these are filled next.
    copy_k(j - 2);
    copy_v(j - 1);
    ptx::cp_async_commit_group();
    float next[score_pieces][4] = {};
    if (j > tiles.begin) scores<T, dim>(next, q_pieces, stage_of(j - 1).k);
    if constexpr (masked) mask_scores(s, rows, j * tile_keys);
    softmax_folded(s, c, states, sums);
    guard.take_out(stage_of(j).v);
    add_values<T>(sums, s, stage_of(j).v);
#pragma unroll
    for (int p = 0; p < score_pieces; ++p) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[p][e] = next[p][e];
    }
  };
  // [/doc: overlap_loop]
  for_each_tile(tiles, round);
  finish_rows<T, true>(sums, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
