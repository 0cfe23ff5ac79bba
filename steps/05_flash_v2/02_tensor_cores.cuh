// 05_flash_v2, tensor_cores: both products by mma.sync.
// Predecessor: 01_scalar.cuh
//
// `scalar` reads five words of shared memory for four multiply-adds of each lane. One mma.sync (step 02, tensor_cores) does
// 2048 multiply-adds with six registers of operands for each lane. The scores come out of S = Q Kᵀ as an accumulator. P goes
// into P · V as a fragment of A. Both have the same elements in the same lanes, so P never leaves the registers.
//
//   block   64 queries, 4 warps; tiles of 64 keys
//   warp    16 queries, all 64 keys, all of O: the softmax of a row stays within the four lanes that share the row
//   lane    rows g and g + 8: 32 scores, dim / 2 accumulators of O
//   Smem    q[64][dim], k[64][dim], v[64][dim]   16 bits wide, in the order of global memory
//
// A register of a fragment of Q or K holds two neighbours along dim: one load of 32 bits. A register of a fragment of V holds
// two neighbours along the keys, which lie in different rows: two loads of 16 bits.
//
// What to expect: bank conflicts are the bound, because rows of 128 or 256 bytes begin at the same bank. The 8 rows that a warp
// reads at once take 8 wavefronts for each register of Q and K, and 4 wavefronts for each half of a register of V.
#pragma once

#include "common/device/flash_v2/warp_tile.cuh"
#include "common/device/ptx/arithmetic.cuh"

namespace flash_v2 {

template <class T, int dim>
struct TensorCoreSmem {
  alignas(16) T q[tile_rows][dim];
  alignas(16) T k[tile_keys][dim];
  alignas(16) T v[tile_keys][dim];
};

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads, dim <= 64 ? 4 : 3)
    flash_tensor_cores(AttentionShape shape,
                       Heads<const T> q,  // [batch, heads, seq_q, dim]
                       Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                       Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                       Heads<T> o,        // [batch, heads, seq_q, dim]
                       float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<TensorCoreSmem<T, dim>>();
  const QueryTile tile = query_tile(shape, tile_rows);
  KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  tiles.free_begin = tiles.free_end = tiles.begin;  // until `edge_masks` every tile gets a mask
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float scale_log2 = shape.scale * device::log2_e;

  // ---- prologue: Q ----
  for (int i = threadIdx.x; i < tile_rows * dim / chunk; i += tile_threads) {
    const int row = i / (dim / chunk), column = i % (dim / chunk) * chunk;
    store(reinterpret_cast<uint4*>(&smem.q[row][column]),
          chunk_or_zero(q, tile.batch, tile.head, tile.first + row, column, shape.seq_q));
  }
  float acc[dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  // ---- main loop ----
  for (int j = tiles.end - 1; j >= tiles.begin; --j) {
    const int first = j * tile_keys;
    // K, V
    for (int i = threadIdx.x; i < tile_keys * dim / chunk; i += tile_threads) {
      const int row = i / (dim / chunk), column = i % (dim / chunk) * chunk;
      store(reinterpret_cast<uint4*>(&smem.k[row][column]),
            chunk_or_zero(k, tile.batch, tile.kv_head, first + row, column, shape.seq_k));
      const uint4 values = chunk_or_zero(v, tile.batch, tile.kv_head, first + row, column, shape.seq_k);
      store(reinterpret_cast<uint4*>(&smem.v[row][column]), values);
      guard.look_at<T>(values);
    }
    guard.barrier();  // K and V, and before the first tile Q, are written before anyone reads them

    // [doc: tensor_core_scores]
    // S = Q K^T
    float s[score_frags][4] = {};
#pragma unroll
    for (int step = 0; step < dim; step += 16) {
      std::uint32_t q_frag[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) q_frag[w] = word_at(&smem.q[warp_row + g + w % 2 * 8][step + 2 * t + w / 2 * 8]);
#pragma unroll
      for (int p = 0; p < score_frags; ++p) {
        const std::uint32_t k_frag[2] = {word_at(&smem.k[8 * p + g][step + 2 * t]),
                                         word_at(&smem.k[8 * p + g][step + 2 * t + 8])};
        ptx::mma_m16n8k16<T>(s[p], q_frag, k_frag);
      }
    }
    // [/doc: tensor_core_scores]
    multiply_scores(s, scale_log2);
    RowKeys rows[2];
    visible_keys(shape, tile.first + warp_row, rows);  // computed anew for each tile: that frees registers
    mask_scores(s, rows, first);
    // row maximum, P = exp2(S - m), rescale
    softmax_tile(s, states, acc);
    guard.take_out(smem.v);
    // [doc: tensor_core_values]
    // O += P V
#pragma unroll
    for (int step = 0; step < tile_keys / 16; ++step) {
      std::uint32_t p_frag[4];
      as_operand<T>(p_frag, s, step);
#pragma unroll
      for (int p = 0; p < dim / 8; ++p) {
        const int key = 16 * step + 2 * t, column = 8 * p + g;
        const std::uint32_t v_frag[2] = {word_of_column(smem.v, key, column), word_of_column(smem.v, key + 8, column)};
        ptx::mma_m16n8k16<T>(acc[p], p_frag, v_frag);
      }
    }
    // [/doc: tensor_core_values]
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }
  // ---- epilogue: O and LSE ----
  finish_rows<T, true>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
