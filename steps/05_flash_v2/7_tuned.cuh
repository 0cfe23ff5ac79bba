// Step 05, file 7: the tuned kernel.
//
// What is beside an mma costs tensor time (step 02 measured it), and file 5 has much: a warp of 16 rows loads a fragment of K
// or V for two mma, and multiplies O for every tile. Here a warp has 32 rows, two slices of 16: each fragment feeds four. And:
//
//   the reference maximum   2^(x − m) needs m only against overflow: P and its sum may be 2^8 times too large, the division at
//                           the end takes that out. So m stays until a row's maximum is beyond m + 8, and then, rarely, O is
//                           multiplied. Each row decides for itself; the warp's vote only skips multiplications by 1. m begins
//                           at the lowest number, not at −∞: then x = −∞ needs no care, since −∞ − m is never ∞ − ∞.
//                           Maxima beyond fma_limit are looked for there, too
//   shared work, dealt      the copies of the next tile go out between the mma of Q Kᵀ, the exponentials of the next 16 keys
//                           between the mma of P V
//   Q in registers          up to dim 64. Beyond, O needs them: Q's fragments are loaded again for every tile of keys
//   addresses               in bytes, one XOR away from each other; rows of a copy 32 bits apart: one IMAD each
//
//   block   128 queries (64 at dim 256), 4 warps; two blocks on a multiprocessor run without a barrier between them, so that
//           one's softmax meets the other's mma
//   Smem    q[rows][dim], stage[2] each with k[keys][dim] and v[keys][dim]; swizzled. 96 KB at dim 128 and 256: that fits GPUs
//           with 99 KB, one block at a time
//
// One barrier a tile, as in file 4: everyone's copies of this tile have come, and everyone has left the stage filled next.
#pragma once

#include "steps/05_flash_v2/5_registers.cuh"
#include "steps/05_flash_v2/tuned_tile.cuh"

namespace flash_v2 {

constexpr float tolerance = 8.0f;   // base 2: how far a row's maximum may be beyond m
constexpr float lowest = -FLT_MAX;  // where m begins

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads. Rows begin at multiples of 16 bytes.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) flash_tuned(AttentionShape shape,
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
  const float c = magnitude(shape.scale);

  // ---- copies ----
  if (tiles.begin < tiles.end) {
    copy_rows(smem.q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    copy_rows(smem.stage[0].k, k, tile.batch, tile.kv_head, (tiles.end - 1) * keys, shape.seq_k);
    copy_rows(smem.stage[0].v, v, tile.batch, tile.kv_head, (tiles.end - 1) * keys, shape.seq_k);
    ptx::cp_async_commit_group();
    if (shape.scale <= 0.0f) {
      ptx::cp_async_wait_group<0>();
      apply_sign<T, tile_threads>(smem.q, shape.scale);
    }
  }
  // All tiles but the first are whole. Of each kind, where this thread's first chunk of the next one comes from and goes to.
  const T *k_next[Tile::kinds], *v_next[Tile::kinds];
  int to[Tile::kinds];  // element of stage.k, and of stage.v
#pragma unroll
  for (int i = 0; i < Tile::kinds; ++i) {
    static_assert(Tile::pass % 8 == 0);  // the swizzle repeats
    const int n = threadIdx.x + i * tile_threads, row = n / Tile::chunks, column = n % Tile::chunks * chunk;
    const std::int64_t key = static_cast<std::int64_t>(tiles.end - 2) * keys + row;
    k_next[i] = k.row(tile.batch, tile.kv_head, 0) + key * k.row_stride + column;
    v_next[i] = v.row(tile.batch, tile.kv_head, 0) + key * v.row_stride + column;
    to[i] = row * dim + swizzled<dim>(row, column);
  }
  constexpr int element = sizeof(T);
  const int k_pass = static_cast<int>(k.row_stride) * Tile::pass * element;  // bytes
  const int v_pass = static_cast<int>(v.row_stride) * Tile::pass * element;
  const auto copy = [&](auto& stage, int n) {  // n < kinds · copies: one chunk of K and one of V
    const int i = n % Tile::kinds, down = n / Tile::kinds;
    ptx::cp_async_16(&stage.k[down * Tile::pass][0] + to[i], bytes_beyond(k_next[i], std::int64_t{down} * k_pass));
    ptx::cp_async_16(&stage.v[down * Tile::pass][0] + to[i], bytes_beyond(v_next[i], std::int64_t{down} * v_pass));
  };

  // ---- what a warp holds ----
  float sums[slices][dim / 8][4] = {};  // of O, not yet divided
  SoftmaxState states[slices][2];       // l: of this lane's keys
#pragma unroll
  for (int s = 0; s < slices; ++s) states[s][0] = states[s][1] = {lowest, 0.0f};
  std::uint32_t q_pieces[Tile::keeps_q ? steps : 1][slices][4];
  // Where this lane's rows of fragments begin, in bytes: of Q, and of V by columns; of K.
  const int a_from = ((lane % 16) * dim + swizzled<dim>(lane % 16, lane / 16 * chunk)) * element;
  const int b_from = ((lane / 16 * 8 + lane % 8) * dim + swizzled<dim>(lane % 8, lane / 8 % 2 * chunk)) * element;
  const auto load_q_pieces = [&](int step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) {
      ptx::ldmatrix_x4(q_pieces[Tile::keeps_q ? step : 0][s],
                       bytes_beyond(&smem.q[warp_row + 16 * s][0], columns_beyond<dim>(a_from, step)));
    }
  };

  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  float to_base_2 = 1;  // what scores are to be multiplied by: c, or 1 where some m is beyond fma_limit, as `lowest` is
  int turn = 0;         // the stage of this tile
  // One tile of keys.
  const auto round = [&](int j, auto is_masked) {
    constexpr bool masked = decltype(is_masked)::value;
    auto& stage = smem.stage[turn];
    auto& next = smem.stage[turn ^ 1];
    ptx::cp_async_wait_group<0>();  // this thread's part of the tile has come, and of Q
    guard.barrier<masked>(stage.v);
    // So has everyone's; and everyone has read the other stage, which is filled next.
    if (Tile::keeps_q && j == tiles.end - 1) {
#pragma unroll
      for (int step = 0; step < steps; ++step) load_q_pieces(step);
    }

    // [doc: tuned_scores]
    float scores[slices][keys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if (!Tile::keeps_q) load_q_pieces(step);
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        std::uint32_t b[4];
        ptx::ldmatrix_x4(b, bytes_beyond(&stage.k[16 * g][0], columns_beyond<dim>(b_from, step)));
        mma_slices<T>(scores, 2 * g, q_pieces[Tile::keeps_q ? step : 0], b);
      }
      if (j > tiles.begin) {
#pragma unroll
        for (int n = copies_before<Tile>(step); n < copies_before<Tile>(step + 1); ++n) copy(next, n);
      }
    }
    // [/doc: tuned_scores]
    turn ^= 1;
    ptx::cp_async_commit_group();
#pragma unroll
    for (int i = 0; i < Tile::kinds; ++i) {
      k_next[i] = bytes_beyond(k_next[i], -std::int64_t{Tile::copies} * k_pass);
      v_next[i] = bytes_beyond(v_next[i], -std::int64_t{Tile::copies} * v_pass);
    }
    if constexpr (masked) {
#pragma unroll
      for (int s = 0; s < slices; ++s) {
        RowKeys rows[2];
        visible_keys(shape, tile.first + warp_row + 16 * s, rows);
        mask_scores(scores[s], rows, j * keys);
      }
      guard.take_out(stage.v);
    }

    // [doc: tuned_reference]
    float largest[slices][2];
    bool beyond = to_base_2 != c;  // products must be rounded in every tile
#pragma unroll
    for (int s = 0; s < slices; ++s) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        largest[s][r] = fmaxf(scores[s][0][2 * r], scores[s][0][2 * r + 1]);
#pragma unroll
        for (int n = 1; n < keys / 8; ++n) {
          largest[s][r] = fmaxf(largest[s][r], fmaxf(scores[s][n][2 * r], scores[s][n][2 * r + 1]));
        }
        beyond |= largest[s][r] * c > states[s][r].m + tolerance;
      }
    }
    if (__any_sync(all_lanes, beyond)) {
      to_base_2 = c;
#pragma unroll
      for (int s = 0; s < slices; ++s) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float old = states[s][r].m, top = quad_maximum(largest[s][r]) * c;
          const float m = top > old + tolerance ? top : old;  // the row's own decision
          const float factor = device::exp2_fast(old - m);
          states[s][r] = {m, states[s][r].l * factor};
          if (fabsf(m) > fma_limit && m < INFINITY) to_base_2 = 1.0f;
#pragma unroll
          for (int n = 0; n < dim / 8; ++n) {
            sums[s][n][2 * r] *= factor;
            sums[s][n][2 * r + 1] *= factor;
          }
        }
      }
      if (to_base_2 != c) {
#pragma unroll
        for (int s = 0; s < slices; ++s) {
          round_products(scores[s], 0, c);
          round_products(scores[s], 1, c);
        }
      }
    }
    // [/doc: tuned_reference]

    // [doc: tuned_values]
    std::uint32_t p[2][slices][4];                 // A's fragments of P, of these 16 keys and of the next
    const auto exponentials = [&](int g, int i) {  // pair i < 4 · slices of the 16 keys
      const int s = i / 4, side = i / 2 % 2, r = i % 2;
      const float m = states[s][r].m;
      const float(&x)[4] = scores[s][2 * g + side];
      const float first = device::exp2_fast(fmaf(x[2 * r], to_base_2, -m));
      const float second = device::exp2_fast(fmaf(x[2 * r + 1], to_base_2, -m));
      states[s][r].l += first;
      states[s][r].l += second;
      p[g % 2][s][2 * side + r] = packed<T>(first, second);
    };
    constexpr int pairs = 4 * slices;
#pragma unroll
    for (int i = 0; i < pairs; ++i) exponentials(0, i);
#pragma unroll
    for (int g = 0; g < groups; ++g) {
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        std::uint32_t b[4];
        ptx::ldmatrix_x4_trans(b, bytes_beyond(&stage.v[16 * g][0], columns_beyond<dim>(a_from, step)));
        if (g + 1 < groups) {
#pragma unroll
          for (int i = pairs * step / steps; i < pairs * (step + 1) / steps; ++i) exponentials(g + 1, i);
        }
        mma_slices<T>(sums, 2 * step, p[g % 2], b);
      }
    }
    // [/doc: tuned_values]
  };
  for_each_tile(tiles, round);
#pragma unroll
  for (int s = 0; s < slices; ++s) {
    finish_rows<T, true>(sums[s], states[s], shape, tile, tile.first + warp_row + 16 * s, o, lse);
  }
  guard.put_back(shape, tile, tiles, keys, v, o);
}

}  // namespace flash_v2
