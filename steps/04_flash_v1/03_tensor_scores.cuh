// 04_flash_v1, tensor_scores: S = Q Kᵀ on tensor cores.
// Predecessor: 01_scalar.cuh
//
// `scalar` keeps shared memory busy for 72 % of its time: each multiply-add of a warp takes 1.5 accesses. Half of the
// multiply-adds make S. Here mma.sync makes S, fed by ldmatrix from swizzled tiles, as in step 02. The fragments of S go to
// shared memory, and from there on a warp does as before: row by row, lanes on keys, then lanes on elements of O.
//
//   block   one for each head and batch entry; Br = Bc = 128 (64 where a row has 256 elements)
//   warp    16 queries, all keys of the block
//   lane    rows g and g + 8, columns 2t and 2t + 1 of each fragment of S; then as in `scalar`
//   Smem    tiles   q [Br][pitch], k and v [Bc][pitch]: 16 bits; chunk c of row r lies at place(r, c)
//           s       [Br][Bc + 8]: S, then P. The 8 put the rows that half a warp writes at once on different banks
//
// O, l and m are read when P V is known, and written back immediately, because shared memory has no room for O beside S.
//
// What to expect: 40 ms instead of 74 for `scalar`, because the multiply-adds of S no longer load each operand from shared
// memory, and those of P V still do. V has 16 bits now, so each multiply-add of P V needs one conversion more.
#pragma once

#include "steps/04_flash_v1/01_scalar.cuh"
#include "steps/04_flash_v1/tensor_tile.cuh"

namespace flash_v1 {

template <class T, class Tile>
struct ScoresSmem {
  TensorSmem<T, Tile> tiles;
  float s[Tile::rows][Tile::keys + 8];
};

// [doc: multiply_scores]
// Line 9 for a warp's 16 rows, without the scale: acc = Q Kᵀ.
template <class T, class Tile>
__device__ void multiply_scores(float (&acc)[Tile::keys / 8][4], const TensorSmem<T, Tile>& tiles, int warp_row, int lane,
                                int dim) {
#pragma unroll 1
  for (int step = 0; step < dim; step += 16) {
    std::uint32_t q_frag[4];
    load_q_fragment<Tile>(q_frag, tiles.q, warp_row, step, lane);
#pragma unroll
    for (int n = 0; n < Tile::keys / 16; ++n) {
      std::uint32_t k_frags[4];
      load_k_fragments<Tile>(k_frags, tiles.k, 16 * n, step, lane);
      multiply_two<T>(acc[2 * n], acc[2 * n + 1], q_frag, k_frags);
    }
  }
}
// [/doc: multiply_scores]

// Lines 8 and 11 for one row: its new m and l, and line 12 as O = (old · O + fresh · P V) · inverse.
struct RowFactors {
  device::SoftmaxState state;
  float old, fresh, inverse;
};
__device__ inline RowFactors merge_row(float2 ml, device::SoftmaxState tile) {
  const device::MergedSoftmax merged = device::merge({ml.x, ml.y}, tile);
  return {merged.state, merged.first * ml.y, merged.second, device::inverse_sum(merged.state.l)};
}

// Lines 10 to 13 for row r of the row block, query i, by one warp: the block's keys join the row's state.
template <class T, class Tile>
__device__ void finish_row(ScoresSmem<T, Tile>& smem, const AttentionShape& shape, int r, int i, int first_key,
                           float scale_log2, float* o_row, float2* ml_row) {  // o_row: [dim]
  const int lane = threadIdx.x % 32;
  const int visible = min(Tile::keys, shape.visible_keys(i) - first_key);
  if (visible <= 0) return;
  device::SoftmaxState tile;  // m̃, l̃: of this block's keys alone
  // row maximum
  for (int c = lane; c < visible; c += 32) tile.m = fmaxf(tile.m, scale_log2 * smem.s[r][c]);
  tile.m = warp_maximum(tile.m);  // line 10, and the next two
  // P = exp2(S - m), row sum
  for (int c = lane; c < visible; c += 32) {
    const float p = device::exp2_fast(scale_log2 * smem.s[r][c] - device::safe_maximum(tile.m));
    smem.s[r][c] = p;
    tile.l += p;
  }
  tile.l = warp_sum(tile.l);
  const RowFactors row = merge_row(load(ml_row), tile);  // line 11
  __syncwarp();  // the row of P is written before any lane reads it; every lane has read m and l before lane 0 writes them
  // O += P V, each rescaled to the new maximum
  for (int t = lane; t < shape.dim; t += 32) {
    float pv = 0.0f;
    for (int c = 0; c < visible; ++c) pv += smem.s[r][c] * to_float(load(&smem.tiles.v[c][place<Tile>(c, t)]));
    o_row[t] = (row.old * o_row[t] + row.fresh * pv) * row.inverse;  // line 12
  }
  store_if(lane == 0, ml_row, make_float2(row.state.m, row.state.l));  // line 13
}

// Grid: x over heads, y over the batch. Blocks of Tile::threads. dim is a multiple of 32; rows begin at multiples of 16 bytes.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads) algorithm_1_tensor_scores(AttentionShape shape,
                                                                           Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                           Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                           Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                           RowState state) {
  auto& smem = device::shared_storage<ScoresSmem<T, Tile>>();
  const int head = blockIdx.x;
  const int batch = blockIdx.y;
  const int warp_row = threadIdx.x / 32 * 16;             // within the row block
  const float scale_log2 = shape.scale * device::log2_e;  // scores are in base 2

  for (int first_key = 0; first_key < shape.seq_k; first_key += Tile::keys) {  // line 5: j
    copy_tile<Tile>(smem.tiles.k, shape, k, batch, shape.kv_head(head), first_key, shape.seq_k);
    copy_tile<Tile>(smem.tiles.v, shape, v, batch, shape.kv_head(head), first_key, shape.seq_k);
    for (int first_row = first_row_block(shape, first_key, Tile::rows); first_row < shape.seq_q;
         first_row += Tile::rows) {  // line 7: i
      copy_tile<Tile>(smem.tiles.q, shape, q, batch, head, first_row, shape.seq_q);
      __syncthreads();  // the tiles are written before any warp reads them

      // S = Q K^T
      float acc[Tile::keys / 8][4] = {};
      multiply_scores(acc, smem.tiles, warp_row, threadIdx.x % 32, shape.dim);
      store_fragments(smem.s, acc, warp_row);
      __syncwarp();  // the warp's 16 rows of S are written before any lane reads them

      for (int r = warp_row; r < min(warp_row + 16, shape.seq_q - first_row); ++r) {
        const std::int64_t at = state_row(shape, batch, head, first_row + r);
        finish_row(smem, shape, r, first_row + r, first_key, scale_log2, state.o + at * shape.dim, &state.ml[at]);
      }
      __syncthreads();  // everyone has read Q_i, K_j and V_j before they are overwritten
    }
  }
}

}  // namespace flash_v1
