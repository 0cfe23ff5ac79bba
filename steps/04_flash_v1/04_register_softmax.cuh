// 04_flash_v1, register_softmax: S stays in registers.
// Predecessor: 03_tensor_scores.cuh
//
// `tensor_scores` writes S to shared memory, reads it twice, and writes P: a row at a time, with ten shuffles each. But
// mma.sync leaves a row of S within four lanes. Here the softmax happens where S is: the maximum and the sum of 16 rows take 8
// shuffles in all. Only P goes to shared memory, because P V is still for lanes that take elements of O.
//
//   warp    16 queries, all keys of the block: a row's maximum and sum stay within four lanes
//   lane    rows g and g + 8, columns 2t and 2t + 1 of each fragment of S and P; then elements of O
//   Smem    as `tensor_scores`; s holds P alone
//
// S costs 16 · Bc / 32 registers a lane. So registers bound Bc now: 64 of them for 128 keys.
//
// What to expect: at most a tenth less time than `tensor_scores`, because it saves only the way of S through shared memory,
// three accesses for each score, while P V still takes 64 multiply-adds for each score.
#pragma once

#include "steps/04_flash_v1/03_tensor_scores.cuh"

namespace flash_v1 {

// Line 10 for rows g and g + 8 of a warp: `acc` becomes P. `tile` gets the rows' m̃, and this lane's share of their l̃.
// `visible`: how many keys each row sees.
template <int n_frags>
__device__ void softmax_rows(float (&acc)[n_frags][4], device::SoftmaxState (&tile)[2], const int (&visible)[2],
                             float scale_log2) {
  const int t = threadIdx.x % 4;

  // [doc: softmax_rows]
  // row maximum
#pragma unroll
  for (int n = 0; n < n_frags; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      acc[n][i] = 8 * n + 2 * t + i % 2 < visible[i / 2] ? scale_log2 * acc[n][i] : -INFINITY;
      tile[i / 2].m = fmaxf(tile[i / 2].m, acc[n][i]);
    }
  }
#pragma unroll
  for (device::SoftmaxState& part : tile) {
    part.m = fmaxf(part.m, __shfl_xor_sync(0xffffffff, part.m, 1));
    part.m = fmaxf(part.m, __shfl_xor_sync(0xffffffff, part.m, 2));
  }
  // [/doc: softmax_rows]

  // P = exp2(S - m), row sum
#pragma unroll
  for (int n = 0; n < n_frags; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      acc[n][i] = device::exp2_fast(acc[n][i] - device::safe_maximum(tile[i / 2].m));
      tile[i / 2].l += acc[n][i];
    }
  }
}

// Grid: x over heads, y over the batch. Blocks of Tile::threads. dim is a multiple of 32; rows begin at multiples of 16 bytes.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads)
    algorithm_1_register_softmax(AttentionShape shape,
                                 Heads<const T> q,  // [batch, heads, seq_q, dim]
                                 Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                 Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                 RowState state) {
  auto& smem = device::shared_storage<ScoresSmem<T, Tile>>();
  const int head = blockIdx.x;
  const int batch = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 * 16;  // within the row block
  const int g = lane / 4, t = lane % 4;
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
      multiply_scores(acc, smem.tiles, warp_row, lane, shape.dim);

      device::SoftmaxState tile[2];  // of rows g and g + 8: m̃, l̃
      const int row = first_row + warp_row + g;
      const bool inside[2] = {row < shape.seq_q, row + 8 < shape.seq_q};
      const int visible[2] = {shape.visible_keys(row) - first_key, shape.visible_keys(row + 8) - first_key};
      softmax_rows(acc, tile, visible, scale_log2);
      store_fragments(smem.s, acc, warp_row);
      RowFactors factors[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        tile[half].l += __shfl_xor_sync(0xffffffff, tile[half].l, 1);
        tile[half].l += __shfl_xor_sync(0xffffffff, tile[half].l, 2);
        const std::int64_t at = state_row(shape, batch, head, row + 8 * half);
        factors[half] = merge_row(load_if(inside[half], &state.ml[at]), tile[half]);  // lines 8 and 11
      }
      __syncwarp();  // the rows of P are written, and l and m are read, before any lane goes on to read P and write l and m

      // O += P V, row by row
      for (int r = 0; r < min(16, shape.seq_q - first_row - warp_row); ++r) {
        const int i = first_row + warp_row + r, holder = r % 8 * 4;  // a lane that has the row's factors
        const RowFactors mine = r < 8 ? factors[0] : factors[1];
        const float old = __shfl_sync(0xffffffff, mine.old, holder), fresh = __shfl_sync(0xffffffff, mine.fresh, holder);
        const float inverse = __shfl_sync(0xffffffff, mine.inverse, holder);
        const int keys = min(Tile::keys, shape.visible_keys(i) - first_key);
        float* o_row = state.o + state_row(shape, batch, head, i) * shape.dim;  // [dim]
        for (int column = lane; column < shape.dim; column += 32) {
          float pv = 0.0f;
          for (int c = 0; c < keys; ++c) {
            pv += load(&smem.s[warp_row + r][c]) * to_float(load(&smem.tiles.v[c][place<Tile>(c, column)]));
          }
          o_row[column] = (old * o_row[column] + fresh * pv) * inverse;  // line 12
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // line 13
        const std::int64_t at = state_row(shape, batch, head, row + 8 * half);
        store_if(t == 0 && inside[half], &state.ml[at], make_float2(factors[half].state.m, factors[half].state.l));
      }
      __syncthreads();  // everyone has read Q_i, K_j and V_j before they are overwritten
    }
  }
}

}  // namespace flash_v1
