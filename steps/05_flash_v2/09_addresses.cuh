// 05_flash_v2, addresses: addresses one operation away.
// Predecessor: 07_registers.cuh
//
// `registers` computes addresses beside its mma: each copy and each ldmatrix computes its own, from a row, a column, a stride
// of 64 bits and the swizzle, or keeps it in a register for the whole loop. But all of that repeats from tile to tile:
//
//   copies      one pointer for K and one for V, which move on by a tile. The rows of a thread's copies lie `pass` rows apart,
//               and have the same swizzle: one addition each
//   fragments   the byte of a lane's row in the first 16 columns. The next 16 columns are one XOR away, or one addition: the
//               swizzle exchanges chunks within 128 bytes (64 bytes at dims 32 and 96), and never reaches the row
//
//   Smem   as in `registers`
//
// What to expect: little speed by itself, because other warps use the cycles of these instructions. But registers become free,
// because a lane keeps 6 addresses instead of one for each ldmatrix, and the next rung needs them.
#pragma once

#include "common/device/flash_v2/addresses.cuh"
#include "steps/05_flash_v2/07_registers.cuh"

namespace flash_v2 {

// Rows lie at most most_row_stride elements apart, so that 32 bits count the bytes between two rows of a thread's copies. The
// host refuses others by name.

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int dim>
__global__ void __launch_bounds__(tile_threads) flash_addresses(AttentionShape shape,
                                                                Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                float* lse) {      // [batch, heads, seq_q]
  auto& smem = device::shared_storage<RecycledSmem<T, dim>>();
  const QueryTile tile = query_tile(shape, tile_rows);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, tile_keys);
  const int lane = threadIdx.x % 32;
  const int warp_row = __shfl_sync(all_lanes, threadIdx.x / 32, 0) * warp_rows;  // the same for all lanes: nvcc sees it
  const float scale_log2 = magnitude(shape.scale);
  RowKeys rows[2];
  visible_keys(shape, tile.first + warp_row, rows);

  // The source of this thread's first chunks of the next tile, and their place in a stage. All tiles but the first are whole.
  constexpr int element = sizeof(T), pass = tile_threads / (dim / chunk);  // rows that all threads copy at once
  const int copy_row = threadIdx.x / (dim / chunk), copy_column = threadIdx.x % (dim / chunk) * chunk;
  const std::int64_t copy_key = static_cast<std::int64_t>(tiles.end - 2) * tile_keys + copy_row;
  const T* k_next = k.row(tile.batch, tile.kv_head, 0) + copy_key * k.row_stride + copy_column;
  const T* v_next = v.row(tile.batch, tile.kv_head, 0) + copy_key * v.row_stride + copy_column;
  const int to = copy_row * dim + swizzled<dim>(copy_row, copy_column);  // element of stage.k, and of stage.v
  const int k_pass = static_cast<int>(k.row_stride) * pass * element;    // bytes
  const int v_pass = static_cast<int>(v.row_stride) * pass * element;
  const auto copy = [&](auto& next, int n) {  // one chunk of K and one of V
    ptx::cp_async_16(&next.k[n * pass][0] + to, bytes_beyond(k_next, std::int64_t{n} * k_pass));
    ptx::cp_async_16(&next.v[n * pass][0] + to, bytes_beyond(v_next, std::int64_t{n} * v_pass));
  };
  // The byte of this lane's row in a fragment: a_from for V, by columns; b_from for K.
  const int a_from = ((lane % 16) * dim + swizzled<dim>(lane % 16, lane / 16 * chunk)) * element;
  const int b_from = ((lane / 16 * 8 + lane % 8) * dim + swizzled<dim>(lane % 8, lane / 8 % 2 * chunk)) * element;

  float acc[dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  std::uint32_t q_frag[dim / 16][4];
  // ---- prologue ----
  if (tiles.begin < tiles.end) {
    copy_rows(smem.stage[1].q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    ptx::cp_async_commit_group();
    copy_rows(smem.stage[0].k, k, tile.batch, tile.kv_head, (tiles.end - 1) * tile_keys, shape.seq_k);
    copy_rows(smem.stage[0].v, v, tile.batch, tile.kv_head, (tiles.end - 1) * tile_keys, shape.seq_k);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<1>();
    __syncthreads();  // all of Q has come, from everyone; the first tile may still be in flight
    keep_q(q_frag, smem.stage[1].q, warp_row, shape.scale);
  }
  int stage_index = 0;  // of this tile
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](int j, auto masked) {
    auto& stage = smem.stage[stage_index];
    auto& next = smem.stage[stage_index ^ 1];
    ptx::cp_async_wait_group<0>();  // this thread's part of the tile has come
    guard.barrier<masked>(stage.v);
    // So has everyone's; and everyone has read the other stage, or Q there: it is filled next.
    if (j > tiles.begin) {
#pragma unroll
      for (int n = 0; n < tile_keys / pass; ++n) copy(next, n);
    }
    ptx::cp_async_commit_group();
    stage_index ^= 1;
    k_next = bytes_beyond(k_next, -std::int64_t{tile_keys / pass} * k_pass);
    v_next = bytes_beyond(v_next, -std::int64_t{tile_keys / pass} * v_pass);

    // S = Q K^T
    float s[score_frags][4] = {};
#pragma unroll
    for (int step = 0; step < dim / 16; ++step) {
#pragma unroll
      for (int p = 0; p < score_frags; p += 2) {
        std::uint32_t k_frag[4];
        ptx::ldmatrix_x4(k_frag, bytes_beyond(&stage.k[8 * p][0], columns_beyond<dim>(b_from, step)));
        mma_two<T>(s[p], s[p + 1], q_frag[step], k_frag);
      }
    }
    if constexpr (masked) mask_scores(s, rows, j * tile_keys);
    // row maximum, P = exp2(S - m), rescale
    softmax_folded(s, scale_log2, states, acc);
    guard.take_out(stage.v);
    // O += P V
#pragma unroll
    for (int g = 0; g < tile_keys / 16; ++g) {
      std::uint32_t p_frag[4];
      as_operand<T>(p_frag, s, g);
#pragma unroll
      for (int p = 0; p < dim / 8; p += 2) {
        std::uint32_t v_frag[4];
        ptx::ldmatrix_x4_trans(v_frag, bytes_beyond(&stage.v[16 * g][0], columns_beyond<dim>(a_from, p / 2)));
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
