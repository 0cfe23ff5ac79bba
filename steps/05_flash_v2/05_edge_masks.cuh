// 05_flash_v2, edge_masks: masks only at the edges.
// Predecessor: 04_pipeline.cuh
//
// `pipeline` compares every score of every tile with the keys that its row sees, and votes about NaNs in V for every tile. Only
// the tiles on the edge of what the queries see need that: those that the causal diagonal, a window or the end of the keys
// cuts. for_each_tile (tile.cuh) peels these tiles off: it is one loop for the tiles on the right edge, one loop without any
// mask, and one loop for the left edge of a window. The compiler makes the body of a tile twice, with and without the mask.
//
//   Smem   as in `pipeline`
//
// What to expect: a tile without a mask saves two comparisons and a selection for each of a lane's 32 scores, and a look at its
// share of V: about 100 of 350 instructions. At 16,384 keys without a causal mask no tile is an edge tile, so all tiles save
// it.
#pragma once

#include "steps/05_flash_v2/04_pipeline.cuh"

namespace flash_v2 {

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads, 2) flash_edge_masks(AttentionShape shape,
                                                                    Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                    Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                    Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                    Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                    float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<PipelineSmem<T, dim>>();
  const QueryTile tile = query_tile(shape, tile_rows);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float scale_log2 = shape.scale * device::log2_e;
  RowKeys rows[2];
  visible_keys(shape, tile.first + warp_row, rows);

  const auto copy_tile = [&](int j) {
    auto& stage = smem.stage[j % 2];
    copy_rows(stage.k, k, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    copy_rows(stage.v, v, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    ptx::cp_async_commit_group();
  };

  float acc[dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  // ---- prologue ----
  if (tiles.begin < tiles.end) {
    copy_rows(smem.q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    copy_tile(tiles.end - 1);
  }
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](int j, auto masked) {
    auto& stage = smem.stage[j % 2];
    ptx::cp_async_wait_group<0>();   // this thread's part of the tile has come, and of Q
    guard.barrier<masked>(stage.v);  // __syncthreads(), with a vote on NaNs in V where keys are masked
    // Behind this barrier everyone's part has come; and everyone has read the other stage, which is filled next.
    if (j > tiles.begin) copy_tile(j - 1);

    // S = Q K^T
    float s[score_frags][4] = {};
#pragma unroll
    for (int step = 0; step < dim; step += 16) {
      std::uint32_t q_frag[4];
      load_q(q_frag, smem.q, warp_row, step);
#pragma unroll
      for (int p = 0; p < score_frags; p += 2) {
        std::uint32_t k_frag[4];
        load_k(k_frag, stage.k, 8 * p, step);
        mma_two<T>(s[p], s[p + 1], q_frag, k_frag);
      }
    }
    multiply_scores(s, scale_log2);
    if constexpr (masked) mask_scores(s, rows, j * tile_keys);
    // row maximum, P = exp2(S - m), rescale
    softmax_tile(s, states, acc);
    guard.take_out(stage.v);
    // O += P V
#pragma unroll
    for (int step = 0; step < tile_keys / 16; ++step) {
      std::uint32_t p_frag[4];
      as_operand<T>(p_frag, s, step);
#pragma unroll
      for (int p = 0; p < dim / 8; p += 2) {
        std::uint32_t v_frag[4];
        load_v(v_frag, stage.v, 16 * step, 8 * p);
        mma_two<T>(acc[p], acc[p + 1], p_frag, v_frag);
      }
    }
  };
  for_each_tile(tiles, attend_tile);
  // ---- epilogue: O and LSE ----
  finish_rows<T, true>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
