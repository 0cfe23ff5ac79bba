// 05_flash_v2, ldmatrix: ldmatrix, and a swizzle.
// Predecessor: 02_tensor_cores.cuh
//
// `tensor_cores` fills fragments register by register, those of V half by half, and the rows of a fragment meet on the same
// banks. ldmatrix fills four registers of every lane with one instruction. With .trans it hands out columns instead of rows,
// which is what P · V wants of V. The 16-byte chunks of a row lie in swizzled order (step 02, swizzle), so that the 8 rows of
// each matrix fall on all 32 banks.
//
//   Smem    as in `tensor_cores`; column t of row r lies at swizzled<dim>(r, t)
//
// For a tile of 64 keys and dim 64 a warp issues 4 ldmatrix.x4 for Q, 16 for K and 16 for V: 36. `tensor_cores` loads 80 words
// for Q and K and 128 half words for V.
//
// What to expect: no bank conflicts, because 8 rows are on 32 banks: 576 wavefronts of shared memory for the fragments of four
// warps and a tile, while the mma need 390 cycles of the tensor cores. But the block waits, because a tile is a sequence: load,
// barrier, multiply, barrier.
#pragma once

#include "common/device/ptx/shared_memory.cuh"
#include "steps/05_flash_v2/02_tensor_cores.cuh"

namespace flash_v2 {

// Four 8 × 8 matrices of a swizzled tile; this lane names the chunk that begins at `column` of `row`.
template <class T, int rows, int dim>
__device__ void load_fragments(std::uint32_t (&frag)[4], const T (&tile)[rows][dim], int row, int column) {
  ptx::ldmatrix_x4(frag, &tile[row][swizzled<dim>(row, column)]);
}

// Q's fragment of 16 rows from `row` on, at 16 columns from `step` on: lanes 0 to 15 name the left halves of the rows, lanes 16
// to 31 the right halves.
template <class T, int rows, int dim>
__device__ void load_q(std::uint32_t (&q_frag)[4], const T (&q)[rows][dim], int row, int step) {
  const int lane = threadIdx.x % 32;
  load_fragments(q_frag, q, row + lane % 16, step + lane / 16 * chunk);
}

// K's fragments for 16 keys from `key` on, at 16 columns from `step` on: words 0 and 1 are of the first 8 keys.
template <class T, int keys, int dim>
__device__ void load_k(std::uint32_t (&k_frag)[4], const T (&k)[keys][dim], int key, int step) {
  const int lane = threadIdx.x % 32;
  load_fragments(k_frag, k, key + lane / 16 * 8 + lane % 8, step + lane / 8 % 2 * chunk);
}

// V's fragments for 16 keys from `key` on, and 16 columns from `column` on: words 0 and 1 are of the first 8 columns.
template <class T, int keys, int dim>
__device__ void load_v(std::uint32_t (&v_frag)[4], const T (&v)[keys][dim], int key, int column) {
  const int lane = threadIdx.x % 32;
  const int row = key + lane % 16;
  ptx::ldmatrix_x4_trans(v_frag, &v[row][swizzled<dim>(row, column + lane / 16 * chunk)]);
}

// C += A · B for the two fragments of B that one ldmatrix.x4 brings.
template <class T>
__device__ void mma_two(float (&first)[4], float (&second)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[4]) {
  const std::uint32_t b_first[2] = {b[0], b[1]}, b_second[2] = {b[2], b[3]};
  ptx::mma_m16n8k16<T>(first, a, b_first);
  ptx::mma_m16n8k16<T>(second, a, b_second);
}

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads, dim <= 64 ? 4 : 3)
    flash_ldmatrix(AttentionShape shape,
                   Heads<const T> q,  // [batch, heads, seq_q, dim]
                   Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                   Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                   Heads<T> o,        // [batch, heads, seq_q, dim]
                   float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<TensorCoreSmem<T, dim>>();
  const QueryTile tile = query_tile(shape, tile_rows);
  KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  tiles.free_begin = tiles.free_end = tiles.begin;    // until `edge_masks` every tile gets a mask
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float scale_log2 = shape.scale * device::log2_e;

  // ---- prologue: Q ----
  for (int i = threadIdx.x; i < tile_rows * dim / chunk; i += tile_threads) {
    const int row = i / (dim / chunk), column = i % (dim / chunk) * chunk;
    store(reinterpret_cast<uint4*>(&smem.q[row][swizzled<dim>(row, column)]),
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
      store(reinterpret_cast<uint4*>(&smem.k[row][swizzled<dim>(row, column)]),
            chunk_or_zero(k, tile.batch, tile.kv_head, first + row, column, shape.seq_k));
      const uint4 values = chunk_or_zero(v, tile.batch, tile.kv_head, first + row, column, shape.seq_k);
      store(reinterpret_cast<uint4*>(&smem.v[row][swizzled<dim>(row, column)]), values);
      guard.look_at<T>(values);
    }
    guard.barrier();  // K and V, and before the first tile Q, are written before anyone reads them

    // S = Q K^T

    // [doc: ldmatrix_scores]
    float s[score_frags][4] = {};
#pragma unroll
    for (int step = 0; step < dim; step += 16) {
      std::uint32_t q_frag[4];
      load_q(q_frag, smem.q, warp_row, step);
#pragma unroll
      for (int p = 0; p < score_frags; p += 2) {
        std::uint32_t k_frag[4];
        load_k(k_frag, smem.k, 8 * p, step);
        mma_two<T>(s[p], s[p + 1], q_frag, k_frag);
      }
    }
    // [/doc: ldmatrix_scores]
    multiply_scores(s, scale_log2);
    RowKeys rows[2];
    visible_keys(shape, tile.first + warp_row, rows);  // computed anew for each tile: that frees registers
    mask_scores(s, rows, first);
    // row maximum, P = exp2(S - m), rescale
    softmax_tile(s, states, acc);
    guard.take_out(smem.v);
    // O += P V
#pragma unroll
    for (int step = 0; step < tile_keys / 16; ++step) {
      std::uint32_t p_frag[4];
      as_operand<T>(p_frag, s, step);
#pragma unroll
      for (int p = 0; p < dim / 8; p += 2) {
        std::uint32_t v_frag[4];
        load_v(v_frag, smem.v, 16 * step, 8 * p);
        mma_two<T>(acc[p], acc[p + 1], p_frag, v_frag);
      }
    }
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }
  // ---- epilogue: O and LSE ----
  finish_rows<T, true>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
