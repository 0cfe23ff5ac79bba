// Step 05, file 3: ldmatrix, and a swizzle.
//
// File 2 fills fragments word by word, V's even half word by half word, and rows of 64 bytes and more meet on the same banks.
// ldmatrix fills four registers of every lane with one instruction; with .trans it hands out columns instead of rows, which is
// what P · V wants of V. And the chunks of 16 bytes of a row lie in another order (step 02, file 6), so that the 8 rows of each
// matrix fall on all 32 banks.
//
//   Smem    as in file 2; column t of row r lies at swizzled<dim>(r, t)
//
// For a tile of 64 keys and dim 64 a warp needs 4 ldmatrix.x4 for Q, 16 for K, 16 for V: 36, where file 2 loads 80 words for Q
// and K and 128 half words for V.
//
// What to expect: no bank conflicts: 576 wavefronts of shared memory for the fragments of four warps and a tile, where the mma
// take the tensor cores 390 cycles. But the block waits: load, barrier, multiply, barrier, one after the other. File 4 is about
// that.
#pragma once

#include "common/device/ptx/shared_memory.cuh"
#include "steps/05_flash_v2/2_tensor_cores.cuh"

namespace flash_v2 {

// Four 8 × 8 matrices of a swizzled tile; this lane names the chunk that begins at `column` of `row`.
template <class T, int rows, int dim>
__device__ void load_pieces(std::uint32_t (&pieces)[4], const T (&tile)[rows][dim], int row, int column) {
  ptx::ldmatrix_x4(pieces, &tile[row][swizzled<dim>(row, column)]);
}

// Q's fragment of a warp, at 16 columns from `step` on: lanes 0 to 15 name the rows' left halves, lanes 16 to 31 the right
// ones.
template <class T, int dim>
__device__ void load_q(std::uint32_t (&q_piece)[4], const T (&q)[tile_rows][dim], int warp_row, int step) {
  const int lane = threadIdx.x % 32;
  load_pieces(q_piece, q, warp_row + lane % 16, step + lane / 16 * chunk);
}

// K's fragments for 16 keys from `key` on, at 16 columns from `step` on: words 0 and 1 are of the first 8 keys.
template <class T, int keys, int dim>
__device__ void load_k(std::uint32_t (&k_pieces)[4], const T (&k)[keys][dim], int key, int step) {
  const int lane = threadIdx.x % 32;
  load_pieces(k_pieces, k, key + lane / 16 * 8 + lane % 8, step + lane / 8 % 2 * chunk);
}

// V's fragments for 16 keys from `key` on, and 16 columns from `column` on: words 0 and 1 are of the first 8 columns.
template <class T, int keys, int dim>
__device__ void load_v(std::uint32_t (&v_pieces)[4], const T (&v)[keys][dim], int key, int column) {
  const int lane = threadIdx.x % 32;
  const int row = key + lane % 16;
  ptx::ldmatrix_x4_trans(v_pieces, &v[row][swizzled<dim>(row, column + lane / 16 * chunk)]);
}

// C += A · B for two pieces of B as ldmatrix.x4 brings them.
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
  tiles.free_begin = tiles.free_end = tiles.begin;    // until file 5 every tile gets a mask
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float scale = shape.scale * device::log2_e;

  for (int i = threadIdx.x; i < tile_rows * dim / chunk; i += tile_threads) {
    const int row = i / (dim / chunk), column = i % (dim / chunk) * chunk;
    store(reinterpret_cast<uint4*>(&smem.q[row][swizzled<dim>(row, column)]),
          chunk_or_zero(q, tile.batch, tile.head, tile.first + row, column, shape.seq_q));
  }
  float sums[dim / 8][4] = {};  // of O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  for (int j = tiles.end - 1; j >= tiles.begin; --j) {
    const int first = j * tile_keys;
    for (int i = threadIdx.x; i < tile_keys * dim / chunk; i += tile_threads) {
      const int row = i / (dim / chunk), column = i % (dim / chunk) * chunk;
      store(reinterpret_cast<uint4*>(&smem.k[row][swizzled<dim>(row, column)]),
            chunk_or_zero(k, tile.batch, tile.kv_head, first + row, column, shape.seq_k));
      const uint4 values = chunk_or_zero(v, tile.batch, tile.kv_head, first + row, column, shape.seq_k);
      store(reinterpret_cast<uint4*>(&smem.v[row][swizzled<dim>(row, column)]), values);
      guard.look_at<T>(values);
    }
    guard.barrier();  // the tiles, and in the first round Q, are written before anyone reads them

    // [doc: ldmatrix_round]
    float s[score_pieces][4] = {};
#pragma unroll
    for (int step = 0; step < dim; step += 16) {
      std::uint32_t q_piece[4];
      load_q(q_piece, smem.q, warp_row, step);
#pragma unroll
      for (int p = 0; p < score_pieces; p += 2) {
        std::uint32_t k_pieces[4];
        load_k(k_pieces, smem.k, 8 * p, step);
        mma_two<T>(s[p], s[p + 1], q_piece, k_pieces);
      }
    }
#pragma unroll
    for (int p = 0; p < score_pieces; ++p) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[p][e] *= scale;
    }
    RowKeys rows[2];
    visible_keys(shape, tile.first + warp_row, rows);  // anew in each round: that frees registers
    mask_scores(s, rows, first);
    softmax_tile(s, states, sums);
    guard.take_out(smem.v);
#pragma unroll
    for (int step = 0; step < tile_keys / 16; ++step) {
      std::uint32_t p_piece[4];
      as_operand<T>(p_piece, s, step);
#pragma unroll
      for (int p = 0; p < dim / 8; p += 2) {
        std::uint32_t v_pieces[4];
        load_v(v_pieces, smem.v, 16 * step, 8 * p);
        mma_two<T>(sums[p], sums[p + 1], p_piece, v_pieces);
      }
    }
    // [/doc: ldmatrix_round]
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }
  finish_rows<T, true>(sums, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
