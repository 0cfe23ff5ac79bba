// 05_flash_v2, any_dim: any head dim up to 256, rows at any address.
// Predecessor: 06_folded_scale.cuh (option: any dim and any alignment)
//
// A row of 40 elements is 80 bytes long, one of 36 is 72, one of 33 is 66: such rows begin at multiples of 16, 8 or 2 bytes.
// But cp.async needs both addresses at multiples of what it copies. So the copies get narrower: 16, 8 or 4 bytes, and plain
// loads of 2 bytes for rows that begin at an odd multiple of 2. The width is found once, from the addresses. In shared memory
// rows are padded with zeros to 32, 64, 96, 128 or 256 elements: zeros add nothing to a score, and the columns of O that they
// make are not stored. A cp.async that reads fewer bytes than it writes fills the rest with zeros, for free.
//
//   block   as in `pipeline`; tiles of 64 keys, of 32 for rows of 256 elements
//   Smem    q[64][dim]   stays in shared memory: beside 128 accumulators of O, registers are short
//           stage[2]     each with k[keys][dim] and v[keys][dim]; swizzled. At dim 256 that is 96 KB in all, which fits a GPU
//                        with 99 KB
//
// What to expect: the speed of `folded_scale` times dim / padded dim, because the padding is multiplied, too. Copies of 4 bytes
// cost more, because they are four times as many instructions. Loads of 2 bytes cost most, because the block waits for them, as
// in `ldmatrix`.
#pragma once

#include "common/device/flash_v2/score_options.cuh"
#include "common/device/kept_pairs.cuh"
#include "steps/05_flash_v2/07_registers.cuh"

namespace flash_v2 {

template <class T, int dim_>
struct AnyDimTile {
  static constexpr int dim = dim_;  // padded
  static constexpr int keys = dim > 128 ? 32 : 64;
  static constexpr int unrolled = dim > 128 ? 1 : dim / 16;  // steps along dim: two of 16 at once would spill
  struct Smem {
    struct Stage {
      alignas(16) T k[keys][dim];
      alignas(16) T v[keys][dim];
    };
    alignas(16) T q[tile_rows][dim];
    Stage stage[2];
  };
};

// How many bytes a copy may move where any row of a tensor begins: 16, 8, 4 or 2.
template <class T>
__device__ int copy_width(const Heads<const T>& x) {
  const auto strides = static_cast<std::uint64_t>(x.batch_stride | x.head_stride | x.row_stride) * sizeof(T);
  const std::uint64_t bits = strides | reinterpret_cast<std::uintptr_t>(x.data);
  return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 2;
}

// Copies the first `count` of 8 elements, zeros behind them; count may be less than 0, or more than 8.
// [doc: narrowing_copy]
template <class T>
__device__ void copy_chunk(T* to, const T* from, int count, int width) {
  const auto bytes_from = [&](int element, int most) { return 2 * max(0, min(count - element, most)); };
  if (width == 16) {
    ptx::cp_async_16(to, from, bytes_from(0, 8));
  } else if (width == 8) {
#pragma unroll
    for (int e = 0; e < 8; e += 4) ptx::cp_async_8(to + e, from + e, bytes_from(e, 4));
  } else if (width == 4) {
#pragma unroll
    for (int e = 0; e < 8; e += 2) ptx::cp_async_4(to + e, from + e, bytes_from(e, 2));
  } else {
    T elements[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) elements[e] = load_if(e < count, from + e);
    uint4 words;
    memcpy(&words, elements, sizeof(words));
    store(reinterpret_cast<uint4*>(to), words);
  }
}
// [/doc: narrowing_copy]

// copy_rows for rows of `dim` elements, padded to `padded`.
template <class T, int count, int padded>
__device__ void copy_padded_rows(T (&to)[count][padded], const Heads<const T>& from, int batch, int head, int first, int end,
                                 int dim, int width) {
  for (int i = threadIdx.x; i < count * padded / chunk; i += tile_threads) {
    const int row = i / (padded / chunk), column = i % (padded / chunk) * chunk;
    const bool inside = first + row < end && column < dim;
    copy_chunk(&to[row][swizzled<padded>(row, column)], &from.row(batch, head, inside ? first + row : 0)[inside ? column : 0],
               inside ? dim - column : 0, width);
  }
}

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
template <class T, int padded, class Shape = AttentionShape>
__global__ void __launch_bounds__(tile_threads, 1) flash_any_dim(Shape shape,
                                                                 Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                 Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                 Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                 Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                 float* lse) {      // [batch, heads, seq_q]
  using Tile = AnyDimTile<T, padded>;
  auto& smem = device::shared_storage<typename Tile::Smem>();
  const QueryTile tile = query_tile(shape, tile_rows);
  device::become_entry(shape, tile.batch);
  const KeyTiles tiles = key_tiles(shape, tile.first, tile.count, Tile::keys);
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile

  const int width = min(copy_width(q), min(copy_width(k), copy_width(v)));
  const auto copy_tile = [&](int j) {
    auto& stage = smem.stage[j % 2];
    copy_padded_rows(stage.k, k, tile.batch, tile.kv_head, j * Tile::keys, shape.seq_k, shape.dim, width);
    copy_padded_rows(stage.v, v, tile.batch, tile.kv_head, j * Tile::keys, shape.seq_k, shape.dim, width);
    ptx::cp_async_commit_group();
  };

  float acc[padded / 8][4] = {};  // O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  // ---- prologue ----
  if (tiles.begin < tiles.end) {
    copy_padded_rows(smem.q, q, tile.batch, tile.head, tile.first, shape.seq_q, shape.dim, width);
    if (shape.scale <= 0.0f) {
      ptx::cp_async_wait_all();  // this thread's part of Q has come: it multiplies only that
      apply_sign<T, tile_threads>(smem.q, shape.scale);
    }
    copy_tile(tiles.end - 1);
  }
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](int j, auto masked) {
    auto& stage = smem.stage[j % 2];
    ptx::cp_async_wait_group<0>();  // this thread's part of the tile has come, and of Q
    guard.barrier<masked>(stage.v);
    // So has everyone's; and everyone has read the other stage, which is filled next.
    if (j > tiles.begin) copy_tile(j - 1);

    // S = Q K^T
    float s[Tile::keys / 8][4] = {};
#pragma unroll Tile::unrolled
    for (int step = 0; step < padded; step += 16) {
      std::uint32_t q_frag[4];
      load_q(q_frag, smem.q, warp_row, step);
#pragma unroll
      for (int p = 0; p < Tile::keys / 8; p += 2) {
        std::uint32_t k_frag[4];
        load_k(k_frag, stage.k, 8 * p, step);
        mma_two<T>(s[p], s[p + 1], q_frag, k_frag);
      }
    }
    modify_scores(s, shape, tile, tile.first + warp_row, j * Tile::keys);
    RowKeys rows[2] = {};
    if constexpr (masked) {
      visible_keys(shape, tile.first + warp_row, rows);  // computed anew for each tile: at dim 256 no register is left
      mask_scores(s, rows, j * Tile::keys);
    }
    // row maximum, P = exp2(S - m), rescale
    softmax_folded(s, softmax_scale(shape), states, acc);
    guard.take_out(stage.v);
    device::drop_scores(s, shape, tile.batch, tile.head, tile.first + warp_row, j * Tile::keys);
    // O += P V
    add_values<T>(acc, s, stage.v);
  };
  for_each_tile(tiles, attend_tile);
  // ---- epilogue: O and LSE ----
  device::multiply_by_factor(acc, shape);
  finish_rows<T, false>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, Tile::keys, v, o);
}

}  // namespace flash_v2
