// 05_flash_v2, rows_32: 32 rows a warp.
// Predecessor: 09_addresses.cuh
//
// Every instruction beside an mma takes time from the tensor core (step 02 measured it). In `registers` a warp of 16 rows loads
// a fragment of K or V for one mma. Here a warp has 32 rows, two slices of 16, and each fragment of K and V feeds two mma.
//
//   block   128 queries, 4 warps; two blocks on an SM
//   Smem    q[128][dim]   up to dim 64 the fragments of Q stay in registers. At dim 128 the accumulator of O needs these
//                         registers, so the fragments of Q are loaded again for each tile of keys
//           stage[2]      each with k[64][dim] and v[64][dim]; swizzled. 96 KB in all at dim 128
//
// What to expect: half as many ldmatrix for each mma of K and V, because a fragment is used twice as often: 32 ldmatrix for 128
// mma at dim 64, where `addresses` has 32 for 64. And half as many copies, because K and V are read once for 128 queries.
#pragma once

#include "common/device/flash_v2/addresses.cuh"
#include "common/device/flash_v2/tuned_tile.cuh"
#include "steps/05_flash_v2/06_folded_scale.cuh"

namespace flash_v2 {

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) flash_rows_32(AttentionShape shape,
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
  constexpr int element = sizeof(T), pass = tile_threads / (dim / chunk);  // rows that all threads copy at once
  const int copy_row = threadIdx.x / (dim / chunk), copy_column = threadIdx.x % (dim / chunk) * chunk;
  const std::int64_t copy_key = static_cast<std::int64_t>(tiles.end - 2) * keys + copy_row;
  const T* k_next = k.row(tile.batch, tile.kv_head, 0) + copy_key * k.row_stride + copy_column;
  const T* v_next = v.row(tile.batch, tile.kv_head, 0) + copy_key * v.row_stride + copy_column;
  const int to = copy_row * dim + swizzled<dim>(copy_row, copy_column);  // element of stage.k, and of stage.v
  const int k_pass = static_cast<int>(k.row_stride) * pass * element;    // bytes
  const int v_pass = static_cast<int>(v.row_stride) * pass * element;
  const auto copy = [&](auto& next, int n) {  // one chunk of K and one of V
    ptx::cp_async_16(&next.k[n * pass][0] + to, bytes_beyond(k_next, std::int64_t{n} * k_pass));
    ptx::cp_async_16(&next.v[n * pass][0] + to, bytes_beyond(v_next, std::int64_t{n} * v_pass));
  };
  // The byte of this lane's row in a fragment: a_from for Q, and for V by columns; b_from for K.
  const int a_from = ((lane % 16) * dim + swizzled<dim>(lane % 16, lane / 16 * chunk)) * element;
  const int b_from = ((lane / 16 * 8 + lane % 8) * dim + swizzled<dim>(lane % 8, lane / 8 % 2 * chunk)) * element;
  std::uint32_t q_frag[Tile::keeps_q ? steps : 1][slices][4];
  const auto load_q_fragments = [&](int step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) {
      ptx::ldmatrix_x4(q_frag[Tile::keeps_q ? step : 0][s],
                       bytes_beyond(&smem.q[warp_row + 16 * s][0], columns_beyond<dim>(a_from, step)));
    }
  };

  float acc[slices][dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[slices][2];
#pragma unroll
  for (int i = 0; i < slices; ++i) states[i][0] = states[i][1] = {};  // nvcc 13.0 does so for the first slice alone

  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  int stage_index = 0;           // of this tile
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](int j, auto masked) {
    auto& stage = smem.stage[stage_index];
    auto& next = smem.stage[stage_index ^ 1];
    ptx::cp_async_wait_group<0>();  // this thread's part of the tile has come, and of Q
    guard.barrier<masked>(stage.v);
    // So has everyone's; and everyone has read the other stage: it is filled next.
    if (Tile::keeps_q && j == tiles.end - 1) {
#pragma unroll
      for (int step = 0; step < steps; ++step) load_q_fragments(step);
    }
    if (j > tiles.begin) {
#pragma unroll
      for (int n = 0; n < keys / pass; ++n) copy(next, n);
    }
    ptx::cp_async_commit_group();
    stage_index ^= 1;
    k_next = bytes_beyond(k_next, -std::int64_t{keys / pass} * k_pass);
    v_next = bytes_beyond(v_next, -std::int64_t{keys / pass} * v_pass);

    // S = Q K^T
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
    }
    if constexpr (masked) mask_slices(s, shape, tile.first + warp_row, j * keys);
      // row maximum, P = exp2(S - m), rescale
#pragma unroll
    for (int i = 0; i < slices; ++i) softmax_folded(s[i], scale_log2, states[i], acc[i]);
    guard.take_out(stage.v);
    // O += P V
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      std::uint32_t p_frag[slices][4];
#pragma unroll
      for (int i = 0; i < slices; ++i) as_operand<T>(p_frag[i], s[i], g);
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        std::uint32_t v_frag[4];
        ptx::ldmatrix_x4_trans(v_frag, bytes_beyond(&stage.v[16 * g][0], columns_beyond<dim>(a_from, step)));
        mma_slices<T>(acc, 2 * step, p_frag, v_frag);
      }
    }
  };
  for_each_tile(tiles, attend_tile);
  // ---- epilogue: O and LSE ----
  finish_slices(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, keys, v, o);
}

}  // namespace flash_v2
