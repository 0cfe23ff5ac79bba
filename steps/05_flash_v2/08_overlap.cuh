// 05_flash_v2, overlap: the next tile's scores before this tile's softmax.
// Predecessor: 07_registers.cuh (tried: slower than it)
//
// In `registers` a warp's tensor core waits while the warp's softmax runs: the mma of P · V need the exponentials, and the mma
// of the next scores come after them in the program. But the next scores need nothing of this tile. So `overlap` first issues
// S(next) = Q K(next)ᵀ, and then does the softmax of the scores that it already has, while the tensor core works.
//
// A tile needs K of the next tile and V of its own. K is therefore copied one tile ahead of V:
//
//   tile j    waits for K(j − 1) and V(j);   asks for K(j − 2) and V(j − 1);   S(j − 1), softmax(j), O += P(j) V(j)
//
//   Smem   stage[2]   each with k[64][dim] and v[64][dim]; K and V of tile j lie in the stage of the same number. The memory of
//                     v in stage 1 holds Q at first
//
// What to expect: other warps fill the pauses of a tensor core, too, so only the pauses that they leave can be won. The price
// is a second set of scores: 32 registers a lane. Only a measurement can say whether that pays.
#pragma once

#include "steps/05_flash_v2/07_registers.cuh"

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
  const float scale_log2 = magnitude(shape.scale);
  RowKeys rows[2];
  visible_keys(shape, tile.first + warp_row, rows);

  const auto stage_of = [&](int j) -> auto& { return smem.stage[(tiles.end - 1 - j) % 2]; };  // the first tile has stage 0
  const auto copy_k = [&](int j) {  // nothing where there is no such tile
    if (j >= tiles.begin) copy_rows(stage_of(j).k, k, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
  };
  const auto copy_v = [&](int j) {
    if (j >= tiles.begin) copy_rows(stage_of(j).v, v, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
  };

  float acc[dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  std::uint32_t q_frag[dim / 16][4];
  float s[score_frags][4] = {};
  // ---- prologue ----

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
    __syncthreads();  // all of Q and of the first K has come; the rest may still be in flight
    keep_q(q_frag, smem.stage[1].q, warp_row, shape.scale);
    scores<T, dim>(s, q_frag, stage_of(last).k);
  }
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](int j, auto masked) {
    ptx::cp_async_wait_group<0>();         // this thread's parts of K(j − 1) and V(j) have come
    guard.barrier<masked>(stage_of(j).v);  // __syncthreads(), with a vote on NaNs in V where keys are masked
    // So have everyone's; and everyone has read K(j) and V(j + 1), or Q in its place: these are filled next.
    copy_k(j - 2);
    copy_v(j - 1);
    ptx::cp_async_commit_group();
    // S(next) = Q K(next)^T
    float next[score_frags][4] = {};
    if (j > tiles.begin) scores<T, dim>(next, q_frag, stage_of(j - 1).k);
    if constexpr (masked) mask_scores(s, rows, j * tile_keys);
    // row maximum, P = exp2(S - m), rescale
    softmax_folded(s, scale_log2, states, acc);
    guard.take_out(stage_of(j).v);
    // O += P V
    add_values<T>(acc, s, stage_of(j).v);
#pragma unroll
    for (int p = 0; p < score_frags; ++p) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[p][e] = next[p][e];
    }
  };
  // [/doc: overlap_loop]
  for_each_tile(tiles, attend_tile);
  // ---- epilogue: O and LSE ----
  finish_rows<T, true>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
