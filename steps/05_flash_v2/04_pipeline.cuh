// 05_flash_v2, pipeline: copies beside the multiplications.
// Predecessor: 03_ldmatrix.cuh
//
// In `ldmatrix` a tile is a sequence: load, wait for global memory, store, barrier, multiply, barrier. cp.async (step 02,
// pipeline) needs no register and does not wait. With two stages the next tile of K and V is in flight while this tile is
// multiplied (double buffering). One barrier per tile is enough: after it, the tile has come for all threads, and all threads
// have finished with the previous tile, whose stage the next copies fill.
//
//   Smem   q[64][dim]
//          stage[2]     each with k[64][dim] and v[64][dim]; everything swizzled
//
// What to expect: the time of the copies disappears, because they are in flight during the mma. What remains are instructions
// beside the mma: a multiplication and a subtraction for each score before its exponential, comparisons for masks that most
// tiles do not need, votes about NaNs, and Q's ldmatrix again for every tile.
#pragma once

#include "common/device/flash_v2/tile.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "steps/05_flash_v2/03_ldmatrix.cuh"

namespace flash_v2 {

template <class T, int dim>
struct PipelineSmem {
  struct Stage {
    alignas(16) T k[tile_keys][dim];
    alignas(16) T v[tile_keys][dim];
  };
  alignas(16) T q[tile_rows][dim];
  Stage stage[2];
};

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads, 2) flash_pipeline(AttentionShape shape,
                                                                  Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                  Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                  Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                  Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                  float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<PipelineSmem<T, dim>>();
  const QueryTile tile = query_tile(shape, tile_rows);
  KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  tiles.free_begin = tiles.free_end = tiles.begin;    // until `edge_masks` every tile gets a mask
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

  // [doc: pipeline_loop]
  if (tiles.begin < tiles.end) {
    copy_rows(smem.q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    copy_tile(tiles.end - 1);
  }
  // ---- main loop ----
  for (int j = tiles.end - 1; j >= tiles.begin; --j) {
    auto& stage = smem.stage[j % 2];
    ptx::cp_async_wait_group<0>();  // this thread's part of the tile has come, and of Q
    guard.barrier<true>(stage.v);   // every tile has a mask
    // Behind this barrier everyone's part has come; and everyone has read the other stage, which is filled next.
    if (j > tiles.begin) copy_tile(j - 1);
    // [/doc: pipeline_loop]

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
    mask_scores(s, rows, j * tile_keys);
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
  }
  // ---- epilogue: O and LSE ----
  finish_rows<T, true>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
