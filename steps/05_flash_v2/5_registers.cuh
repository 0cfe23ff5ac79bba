// Step 05, file 5: less beside the mma.
//
// What file 4 does for every tile, and need not:
//
//   Q's ldmatrix           Q stays in registers: dim / 4 of them. Its shared memory is then free: the second stage of K takes
//   it a multiplication by the scale, and a subtraction, for each score
//                          2^(s·c − m) is one FMA and one ex2, with c = |scale| · log2(e) and m the maximum of s·c. The maximum
//                          is found among the scores as they are, so c must be positive: Q takes the sign of the scale
//   masks, and votes about NaNs
//                          only tiles on the edge of what is seen need them. They are peeled off: one loop for the tiles on
//                          the right edge, one without any mask, one for the left edge of a window
//
//   Smem   stage[2]   each with k[64][dim], whose memory holds Q at first (stage 1), and v[64][dim]; swizzled
//
// What to expect: for a tile of 64 keys and dim 64, 36 ldmatrix become 32. Each score loses a multiplication, and in most tiles
// the comparisons of its mask: about half of all instructions beside the mma. Q's 16 KB (dim 128) are saved, too: 64 KB instead
// of 80.
#pragma once

#include "steps/05_flash_v2/4_pipeline.cuh"
#include "steps/05_flash_v2/scale.cuh"

namespace flash_v2 {

template <class T, int dim>
struct RecycledSmem {
  struct Stage {
    union {
      alignas(16) T k[tile_keys][dim];
      alignas(16) T q[tile_rows][dim];  // of stage 1, until it is in registers
    };
    alignas(16) T v[tile_keys][dim];
  };
  Stage stage[2];
};

// Q's fragments of a warp, times the sign of the scale.
template <class T, int dim>
__device__ void keep_q(std::uint32_t (&q_pieces)[dim / 16][4], const T (&q)[tile_rows][dim], int warp_row, float scale) {
#pragma unroll
  for (int step = 0; step < dim / 16; ++step) {
    load_q(q_pieces[step], q, warp_row, 16 * step);
#pragma unroll
    for (int w = 0; w < 4; ++w) q_pieces[step][w] = times_sign<T>(q_pieces[step][w], scale);
  }
}

// S = Q Kᵀ for a warp's rows and a tile of keys, with Q in registers.
template <class T, int dim>
__device__ void scores(float (&s)[score_pieces][4], const std::uint32_t (&q_pieces)[dim / 16][4],
                       const T (&k)[tile_keys][dim]) {
#pragma unroll
  for (int step = 0; step < dim / 16; ++step) {
#pragma unroll
    for (int p = 0; p < score_pieces; p += 2) {
      std::uint32_t k_pieces[4];
      load_k(k_pieces, k, 8 * p, 16 * step);
      mma_two<T>(s[p], s[p + 1], q_pieces[step], k_pieces);
    }
  }
}

// File 2's softmax_tile for scores as the mma left them: c > 0 brings them to base 2, in the same FMA that subtracts.
// [doc: softmax_folded]
template <int pieces, int columns>
__device__ void softmax_folded(float (&s)[pieces][4], float c, SoftmaxState (&states)[2], float (&o)[columns][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = -INFINITY;
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      largest = fmaxf(largest, fmaxf(s[p][2 * r], s[p][2 * r + 1]));
    }
    float m = states[r].m;
    m = fmaxf(m, quad_maximum(largest) * c);
    const float factor = device::rescale_factor(states[r].m, m), subtract = device::safe_maximum(m);
    float to_base_2 = c;
    if (fabsf(m) > fma_limit) {
      round_products(s, r, c);
      to_base_2 = 1.0f;
    }
    float l = states[r].l * factor;  // of this lane's keys; added up at the end
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[p][2 * r + e] = device::exp2_fast(fmaf(s[p][2 * r + e], to_base_2, -subtract));
        l += s[p][2 * r + e];
      }
    }
    states[r].m = m;
    states[r].l = l;
#pragma unroll
    for (int p = 0; p < columns; ++p) {
#pragma unroll
      for (int e = 0; e < 2; ++e) o[p][2 * r + e] *= factor;
    }
  }
}
// [/doc: softmax_folded]

// O += P V for a warp's rows and a tile of keys.
template <class T, int keys, int dim>
__device__ void add_values(float (&sums)[dim / 8][4], const float (&s)[keys / 8][4], const T (&v)[keys][dim]) {
#pragma unroll
  for (int step = 0; step < keys / 16; ++step) {
    std::uint32_t p_piece[4];
    as_operand<T>(p_piece, s, step);
#pragma unroll
    for (int p = 0; p < dim / 8; p += 2) {
      std::uint32_t v_pieces[4];
      load_v(v_pieces, v, 16 * step, 8 * p);
      mma_two<T>(sums[p], sums[p + 1], p_piece, v_pieces);
    }
  }
}

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads) flash_registers(AttentionShape shape,
                                                                Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<RecycledSmem<T, dim>>();
  const QueryTile tile = query_tile(shape, tile_rows);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float c = magnitude(shape.scale);
  RowKeys rows[2];
  visible_keys(shape, tile.first + warp_row, rows);

  const auto stage_of = [&](int j) -> auto& { return smem.stage[(tiles.end - 1 - j) % 2]; };  // the first tile has stage 0
  const auto copy_tile = [&](int j) {
    copy_rows(stage_of(j).k, k, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    copy_rows(stage_of(j).v, v, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    ptx::cp_async_commit_group();
  };

  float sums[dim / 8][4] = {};  // of O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  std::uint32_t q_pieces[dim / 16][4];
  // [doc: recycled_q]
  if (tiles.begin < tiles.end) {
    copy_rows(smem.stage[1].q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    ptx::cp_async_commit_group();
    copy_tile(tiles.end - 1);
    ptx::cp_async_wait_group<1>();
    __syncthreads();  // all of Q has come; the first tile may still be under way
    keep_q(q_pieces, smem.stage[1].q, warp_row, shape.scale);
  }
  const auto round = [&](int j, auto masked) {
    ptx::cp_async_wait_group<0>();  // this thread's part of the tile has come
    guard.barrier<masked>(stage_of(j).v);
    // So has everyone's; and everyone has read the other stage, or Q there: it is filled next.
    if (j > tiles.begin) copy_tile(j - 1);
    // [/doc: recycled_q]
    float s[score_pieces][4] = {};
    scores<T, dim>(s, q_pieces, stage_of(j).k);
    if constexpr (masked) mask_scores(s, rows, j * tile_keys);
    softmax_folded(s, c, states, sums);
    guard.take_out(stage_of(j).v);
    add_values<T>(sums, s, stage_of(j).v);
  };
  for_each_tile(tiles, round);
  finish_rows<T, true>(sums, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace flash_v2
