// 05_flash_v2, tuned: copies and exponentials between the mma.
// Predecessor: 11_lazy_rescale.cuh
//
// In `lazy_rescale` a tile has phases: all copies of the next tile, all mma of S, all exponentials, all mma of O. In each phase
// one unit works and the others wait, unless another warp is in another phase. Here the phases overlap within a warp: the
// copies of the next tile are issued between the mma of S = Q Kᵀ, and the exponentials of the next 16 keys between the mma of O
// += P V.
//
//   block   128 queries (64 at dim 256), 4 warps; two blocks on an SM run without a barrier between them, so that one's
//           softmax meets the other's mma
//   Smem    q[rows][dim], stage[2] each with k[keys][dim] and v[keys][dim]; swizzled. 96 KB at dim 128 and 256: that fits a GPU
//           with 99 KB, one block at a time
//
// Dims 96 and 256 are new: there, two or three chunks of a thread have different places in their rows (Tile::kinds).
//
// What to expect: as many instructions as `lazy_rescale`, but fewer cycles in which no tensor core works, because copies issued
// together stall in the queue to shared memory, and because the unit for exponentials needs two cycles for each quarter of a
// warp, in which the tensor core can work.
#pragma once

#include "common/device/flash_v2/addresses.cuh"
#include "common/device/flash_v2/copy_rows.cuh"
#include "common/device/flash_v2/lazy_rescale.cuh"
#include "common/device/flash_v2/tuned_tile.cuh"
#include "common/device/kept_pairs.cuh"

namespace flash_v2 {

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads. Rows begin at multiples of 16 bytes.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) flash_tuned(typename Tile::Shape shape,
                                                               Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                               Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                               Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                               Heads<T> o,        // [batch, heads, seq_q, dim]
                                                               float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<TunedSmem<T, Tile>>();
  constexpr int dim = Tile::dim, keys = Tile::keys, slices = Tile::slices;
  constexpr int steps = dim / 16, groups = keys / 16;  // of 16 columns of Q and K; of 16 keys
  const QueryTile tile = query_tile(shape, Tile::rows);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, keys);
  const int lane = threadIdx.x % 32;
  const int warp_row = __shfl_sync(all_lanes, threadIdx.x / 32, 0) * 16 * slices;  // the same for all lanes: nvcc sees it
  const float scale_log2 = magnitude(shape.scale);

  // ---- prologue ----
  if (tiles.begin < tiles.end) {
    copy_rows(smem.q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    copy_rows(smem.stage[0].k, k, tile.batch, tile.kv_head, (tiles.end - 1) * keys, shape.seq_k);
    copy_rows(smem.stage[0].v, v, tile.batch, tile.kv_head, (tiles.end - 1) * keys, shape.seq_k);
    ptx::cp_async_commit_group();
    if (shape.scale <= 0.0f) {
      ptx::cp_async_wait_group<0>();  // this thread's part of Q has come: it multiplies only that
      apply_sign<T, tile_threads>(smem.q, shape.scale);
    }
  }
  // The source of this thread's first chunks of the next tile, and their place in a stage. All tiles but the first are whole.
  const T *k_next[Tile::kinds], *v_next[Tile::kinds];
  int to[Tile::kinds];  // element of stage.k, and of stage.v
#pragma unroll
  for (int i = 0; i < Tile::kinds; ++i) {
    const int n = threadIdx.x + i * tile_threads, row = n / Tile::chunks, column = n % Tile::chunks * chunk;
    const std::int64_t key = static_cast<std::int64_t>(tiles.end - 2) * keys + row;
    k_next[i] = k.row(tile.batch, tile.kv_head, 0) + key * k.row_stride + column;
    v_next[i] = v.row(tile.batch, tile.kv_head, 0) + key * v.row_stride + column;
    to[i] = row * dim + swizzled<dim>(row, column);
  }
  constexpr int element = sizeof(T);
  const int k_pass = static_cast<int>(k.row_stride) * Tile::pass * element;  // bytes
  const int v_pass = static_cast<int>(v.row_stride) * Tile::pass * element;
  const auto copy = [&](auto& next, int n) {  // n < kinds · copies: one chunk of K and one of V
    const int i = n % Tile::kinds, down = n / Tile::kinds;
    ptx::cp_async_16(&next.k[down * Tile::pass][0] + to[i], bytes_beyond(k_next[i], std::int64_t{down} * k_pass));
    ptx::cp_async_16(&next.v[down * Tile::pass][0] + to[i], bytes_beyond(v_next[i], std::int64_t{down} * v_pass));
  };

  float acc[slices][dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[slices][2];
#pragma unroll
  for (int s = 0; s < slices; ++s) states[s][0] = states[s][1] = {lowest, 0.0f};
  std::uint32_t q_frag[Tile::keeps_q ? steps : 1][slices][4];
  // The byte of this lane's row in a fragment: a_from for Q, and for V by columns; b_from for K.
  const int a_from = ((lane % 16) * dim + swizzled<dim>(lane % 16, lane / 16 * chunk)) * element;
  const int b_from = ((lane / 16 * 8 + lane % 8) * dim + swizzled<dim>(lane % 8, lane / 8 % 2 * chunk)) * element;
  const auto load_q_fragments = [&](int step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) {
      ptx::ldmatrix_x4(q_frag[Tile::keeps_q ? step : 0][s],
                       bytes_beyond(&smem.q[warp_row + 16 * s][0], columns_beyond<dim>(a_from, step)));
    }
  };
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  float to_base_2 = 1;  // what scores are multiplied by: scale_log2, or 1 where some m is beyond fma_limit, as `lowest` is
  int stage_index = 0;  // of this tile
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](int j, auto masked) {
    auto& stage = smem.stage[stage_index];
    auto& next = smem.stage[stage_index ^ 1];
    ptx::cp_async_wait_group<0>();  // this thread's part of the tile has come, and of Q
    guard.barrier<masked>(stage.v);
    // Behind this barrier everyone's part has come; and everyone has read the other stage, which is filled next.
    if (Tile::keeps_q && j == tiles.end - 1) {
#pragma unroll
      for (int step = 0; step < steps; ++step) load_q_fragments(step);
    }

    // S = Q K^T, and between the mma the copies of the next tile

    // [doc: tuned_scores]
    float s[slices][keys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if (!Tile::keeps_q) load_q_fragments(step);
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        std::uint32_t k_frag[4];
        ptx::ldmatrix_x4(k_frag, bytes_beyond(&stage.k[16 * g][0], columns_beyond<dim>(b_from, step)));
        mma_slices<T>(s, 2 * g, q_frag[Tile::keeps_q ? step : 0], k_frag);
      }
      if (j > tiles.begin) {
#pragma unroll
        for (int n = copies_before<Tile>(step); n < copies_before<Tile>(step + 1); ++n) copy(next, n);
      }
    }
    // [/doc: tuned_scores]
    stage_index ^= 1;
    ptx::cp_async_commit_group();
#pragma unroll
    for (int i = 0; i < Tile::kinds; ++i) {
      k_next[i] = bytes_beyond(k_next[i], -std::int64_t{Tile::copies} * k_pass);
      v_next[i] = bytes_beyond(v_next[i], -std::int64_t{Tile::copies} * v_pass);
    }
    if constexpr (masked) {
      mask_slices(s, shape, tile.first + warp_row, j * keys);
      guard.take_out(stage.v);
    }
    // row maximum; rescale where it has grown too far
    lazy_rescale(s, scale_log2, to_base_2, states, acc);
    // P = exp2(S - m) of the first 16 keys
    std::uint32_t p_frag[2][slices][4];  // of these 16 keys, and of the next
    constexpr int pairs = 4 * slices;
#pragma unroll
    for (int i = 0; i < pairs; ++i) exponentials<T>(p_frag[0], states, s, to_base_2, 0, i);
    // O += P V, and between the mma P = exp2(S - m) of the next 16 keys

    // [doc: tuned_values]
    device::KeptPairs<2 * slices> kept;  // of 32 keys
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      device::drop_pairs(p_frag[g % 2], kept, shape, tile.batch, tile.head, tile.first + warp_row, j * keys + 16 * g, g);
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        std::uint32_t v_frag[4];
        ptx::ldmatrix_x4_trans(v_frag, bytes_beyond(&stage.v[16 * g][0], columns_beyond<dim>(a_from, step)));
        if (g + 1 < groups) {
#pragma unroll
          for (int i = pairs * step / steps; i < pairs * (step + 1) / steps; ++i) {
            exponentials<T>(p_frag[(g + 1) % 2], states, s, to_base_2, g + 1, i);
          }
        }
        mma_slices<T>(acc, 2 * step, p_frag[g % 2], v_frag);
      }
    }
    // [/doc: tuned_values]
  };
  for_each_tile(tiles, attend_tile);
  // ---- epilogue: O and LSE ----
  device::multiply_by_factor(acc, shape);
  finish_slices(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, keys, v, o);
}

}  // namespace flash_v2
