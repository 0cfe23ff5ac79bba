// Step 05, file 2: tensor cores.
//
// File 1 reads five words of shared memory for four multiply-adds of each lane. mma.sync (step 02, file 4) does 2048
// multiply-adds with three registers of operands for each lane. The scores come out of S = Q Kᵀ as a fragment of C, and P goes
// into P · V as a fragment of A: these are the same elements in the same lanes, so P never leaves the registers.
//
//   block   64 queries, 4 warps; tiles of 64 keys
//   warp    16 queries, all 64 keys, all of O: the softmax of a row stays within the four lanes that share it
//   lane    rows g and g + 8: 32 scores, dim / 2 sums of O
//   Smem    q[64][dim], k[64][dim], v[64][dim]   16 bits wide, as they lie in device memory
//
// A fragment of Q or K is words of neighbouring elements along dim. One of V is pairs along the keys, in different rows: two
// loads of 16 bits for each word.
//
// What to expect: the banks are the bound. Rows of 128 or 256 bytes begin at the same bank, so the 8 rows that a warp reads at
// once take 8 wavefronts, for each word of Q and K, and 4 for each half word of V.
#pragma once

#include "common/device/ptx/mma.cuh"
#include "steps/05_flash_v2/non_finite.cuh"
#include "steps/05_flash_v2/tile.cuh"

namespace flash_v2 {

constexpr int tile_rows = 64;  // queries of a block
constexpr int tile_keys = 64;
constexpr int tile_threads = 128;
constexpr int warp_rows = 16;
constexpr int score_pieces = tile_keys / 8;  // of 8 keys

template <class T, int dim>
struct TensorCoreSmem {
  alignas(16) T q[tile_rows][dim];
  alignas(16) T k[tile_keys][dim];
  alignas(16) T v[tile_keys][dim];
};

// Elements t … t + 7 of row i of a head, zeros from row `rows` on.
template <class T>
__device__ uint4 chunk_or_zero(const Heads<const T>& matrix, int batch, int head, int i, int t, int rows) {
  if (i >= rows) return make_uint4(0, 0, 0, 0);
  return load(reinterpret_cast<const uint4*>(&matrix.row(batch, head, i)[t]));
}

// Two neighbouring elements of shared memory as a word.
template <class T>
__device__ std::uint32_t word_at(const T* pair) {
  return load(reinterpret_cast<const std::uint32_t*>(pair));
}
// Two elements of neighbouring rows as a word.
template <class T, int dim>
__device__ std::uint32_t word_of_column(const T (&v)[tile_keys][dim], int key, int column) {
  const T pair[2] = {load(&v[key][column]), load(&v[key + 1][column])};
  std::uint32_t word;
  memcpy(&word, pair, sizeof(word));
  return word;
}

// The step of the online softmax: scores of a tile, in base 2, become exponentials; the states take them in, and O is brought
// to the new maxima.
// [doc: softmax_tile]
template <int pieces, int columns>
__device__ void softmax_tile(float (&s)[pieces][4], SoftmaxState (&states)[2], float (&o)[columns][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float m = states[r].m;
#pragma unroll
    for (int p = 0; p < pieces; ++p) m = fmaxf(m, fmaxf(s[p][2 * r], s[p][2 * r + 1]));
    m = quad_maximum(m);
    const float factor = device::rescale_factor(states[r].m, m), subtract = device::safe_maximum(m);
    float l = states[r].l * factor;  // of this lane's keys; added up at the end
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
#pragma unroll
      for (int e = 2 * r; e < 2 * r + 2; ++e) {
        s[p][e] = device::exp2_fast(s[p][e] - subtract);
        l += s[p][e];
      }
    }
    states[r] = {m, l};
#pragma unroll
    for (int p = 0; p < columns; ++p) {
      o[p][2 * r] *= factor;
      o[p][2 * r + 1] *= factor;
    }
  }
}
// [/doc: softmax_tile]

// The fragment of A for P · V, of 16 keys: two neighbouring fragments of C, rounded to 16 bits.
template <class T, int pieces>
__device__ void as_operand(std::uint32_t (&p)[4], const float (&s)[pieces][4], int step) {
#pragma unroll
  for (int w = 0; w < 4; ++w) p[w] = packed<T>(s[2 * step + w / 2][w % 2 * 2], s[2 * step + w / 2][w % 2 * 2 + 1]);
}

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
  tiles.free_begin = tiles.free_end = tiles.begin;  // until file 5 every tile gets a mask
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float scale = shape.scale * device::log2_e;

  for (int i = threadIdx.x; i < tile_rows * dim / chunk; i += tile_threads) {
    const int row = i / (dim / chunk), column = i % (dim / chunk) * chunk;
    store(reinterpret_cast<uint4*>(&smem.q[row][column]),
          chunk_or_zero(q, tile.batch, tile.head, tile.first + row, column, shape.seq_q));
  }
  float sums[dim / 8][4] = {};  // of O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  for (int j = tiles.end - 1; j >= tiles.begin; --j) {
    const int first = j * tile_keys;
    for (int i = threadIdx.x; i < tile_keys * dim / chunk; i += tile_threads) {
      const int row = i / (dim / chunk), column = i % (dim / chunk) * chunk;
      store(reinterpret_cast<uint4*>(&smem.k[row][column]),
            chunk_or_zero(k, tile.batch, tile.kv_head, first + row, column, shape.seq_k));
      const uint4 values = chunk_or_zero(v, tile.batch, tile.kv_head, first + row, column, shape.seq_k);
      store(reinterpret_cast<uint4*>(&smem.v[row][column]), values);
      guard.look_at<T>(values);
    }
    guard.barrier();  // the tiles, and in the first round Q, are written before anyone reads them

    // [doc: tensor_core_scores]
    float s[score_pieces][4] = {};
#pragma unroll
    for (int step = 0; step < dim; step += 16) {
      std::uint32_t q_piece[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        q_piece[w] = word_at(&smem.q[warp_row + g + w % 2 * 8][step + 2 * t + w / 2 * 8]);
      }
#pragma unroll
      for (int p = 0; p < score_pieces; ++p) {
        const T* k_row = smem.k[8 * p + g];
        const std::uint32_t k_piece[2] = {word_at(&k_row[step + 2 * t]), word_at(&k_row[step + 2 * t + 8])};
        ptx::mma_m16n8k16<T>(s[p], q_piece, k_piece);
      }
    }
    // [/doc: tensor_core_scores]
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
    // [doc: tensor_core_values]
#pragma unroll
    for (int step = 0; step < tile_keys / 16; ++step) {
      std::uint32_t p_piece[4];
      as_operand<T>(p_piece, s, step);
#pragma unroll
      for (int p = 0; p < dim / 8; ++p) {
        const int key = 16 * step + 2 * t, column = 8 * p + g;
        const std::uint32_t v_piece[2] = {word_of_column(smem.v, key, column), word_of_column(smem.v, key + 8, column)};
        ptx::mma_m16n8k16<T>(sums[p], p_piece, v_piece);
      }
    }
    // [/doc: tensor_core_values]
    __syncthreads();  // everyone has read the tiles before the next ones overwrite them
  }
  finish_rows<T, true>(sums, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
