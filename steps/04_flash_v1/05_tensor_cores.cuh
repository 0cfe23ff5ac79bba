// 04_flash_v1, tensor_cores: P V on tensor cores, too.
// Predecessor: 04_register_softmax.cuh
//
// `register_softmax` spends two loads from shared memory on each multiply-add of P V. Here P V is mma.sync as well. The first
// product leaves fragment C: in each lane two neighbouring columns of rows g and g + 8. Packed to 16 bits, this is fragment A
// of the second product, so P stays in its lanes. V comes by ldmatrix.trans, since P V sums over keys, and keys are rows of V.
//
//   block   one for each head and batch entry; Br = Bc = 128 (64 where a row has 256 elements)
//   warp    16 queries, all keys of the block: a row's maximum and sum stay within four lanes
//   lane    rows g and g + 8, columns 2t and 2t + 1 of each fragment of S, P and O (layouts: ptx/arithmetic.cuh)
//   Smem    q [Br][pitch]   k, v [Bc][pitch]: 16 bits; chunk c of row r lies at place(r, c)
//
// l and m are read when S is known, O when P V is, a slice of 32 columns at a time, and written at once; 4 lanes have 32 bytes
// of a row of O, a whole sector. non_finite.cuh keeps NaNs in V from rows that do not see them.
//
// What to expect: 1.1 ms at best, because shared memory is the bound: 2176 wavefronts of ldmatrix for a block of 128 × 128
// scores. The traffic is what `scalar` would have with equally large blocks, because the loops read and write the same data.
// And still only 16 of 132 SMs work.
#pragma once

#include "steps/04_flash_v1/04_register_softmax.cuh"
#include "steps/04_flash_v1/non_finite.cuh"

namespace flash_v1 {

constexpr int slice = 32;  // columns of O that a warp works on at once

// acc += P V for 16 rows and one slice of columns. With `masked`, V counts as 0 from key `visible` on. Returns whether all of
// V that this lane has seen is finite.
template <bool masked, class T, class Tile>
__device__ bool multiply_slice(float (&acc)[slice / 8][4], const std::uint32_t (&p_frags)[Tile::keys / 16][4],
                               const TensorSmem<T, Tile>& smem, int column, int visible) {
  const int lane = threadIdx.x % 32;
  bool finite = true;

  // [doc: multiply_slice]
#pragma unroll
  for (int n = 0; n < Tile::keys / 16; ++n) {
#pragma unroll
    for (int half = 0; half < slice / 16; ++half) {
      std::uint32_t v_frags[4];
      load_v_fragments<Tile>(v_frags, smem.v, 16 * n, column + 16 * half, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        finite = finite && !has_non_finite<T>(v_frags[i]);
        if (masked) v_frags[i] = visible_pair(v_frags[i], 16 * n + lane % 4 * 2 + i % 2 * 8, visible);
      }
      multiply_two<T>(acc[2 * half], acc[2 * half + 1], p_frags[n], v_frags);
    }
  }
  // [/doc: multiply_slice]
  return finite;
}

// Grid: x over heads, y over the batch. Blocks of Tile::threads. dim is a multiple of 32; rows begin at multiples of 16 bytes.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads) algorithm_1_tensor_cores(AttentionShape shape,
                                                                          Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                          Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                          Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                          RowState state) {
  auto& smem = device::shared_storage<TensorSmem<T, Tile>>();
  const int head = blockIdx.x;
  const int batch = blockIdx.y;
  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 * 16;  // within the row block
  const int g = lane / 4, t = lane % 4;
  const float scale_log2 = shape.scale * device::log2_e;  // scores are in base 2

  for (int first_key = 0; first_key < shape.seq_k; first_key += Tile::keys) {  // line 5: j
    copy_tile<Tile>(smem.k, shape, k, batch, shape.kv_head(head), first_key, shape.seq_k);
    copy_tile<Tile>(smem.v, shape, v, batch, shape.kv_head(head), first_key, shape.seq_k);
    for (int first_row = first_row_block(shape, first_key, Tile::rows); first_row < shape.seq_q;
         first_row += Tile::rows) {  // line 7: i
      copy_tile<Tile>(smem.q, shape, q, batch, head, first_row, shape.seq_q);
      __syncthreads();  // the tiles are written before any warp reads them

      // S = Q K^T
      float acc[Tile::keys / 8][4] = {};
      multiply_scores(acc, smem, warp_row, lane, shape.dim);

      device::SoftmaxState tile[2];  // of rows g and g + 8: m̃, l̃, line 10
      const int row = first_row + warp_row + g;
      const bool inside[2] = {row < shape.seq_q, row + 8 < shape.seq_q};
      const int visible[2] = {shape.visible_keys(row) - first_key, shape.visible_keys(row + 8) - first_key};
      softmax_rows(acc, tile, visible, scale_log2);
      RowFactors factors[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        tile[half].l += __shfl_xor_sync(0xffffffff, tile[half].l, 1);
        tile[half].l += __shfl_xor_sync(0xffffffff, tile[half].l, 2);
        const std::int64_t at = state_row(shape, batch, head, row + 8 * half);
        factors[half] = merge_row(load_if(inside[half], &state.ml[at]), tile[half]);  // lines 8 and 11
      }
      __syncwarp();  // the four lanes of a row have read its l and m before one of them writes them

      // [doc: p_frags]
      // P, rounded to 16 bits: C of the first product is A of the second
      std::uint32_t p_frags[Tile::keys / 16][4];
#pragma unroll
      for (int n = 0; n < Tile::keys / 16; ++n) {
        p_frags[n][0] = packed<T>(acc[2 * n][0], acc[2 * n][1]);
        p_frags[n][1] = packed<T>(acc[2 * n][2], acc[2 * n][3]);
        p_frags[n][2] = packed<T>(acc[2 * n + 1][0], acc[2 * n + 1][1]);
        p_frags[n][3] = packed<T>(acc[2 * n + 1][2], acc[2 * n + 1][3]);
      }
      // [/doc: p_frags]

      // O += P V, a slice of columns at a time
      const bool all_visible = shape.visible_keys(first_row + warp_row) >= first_key + Tile::keys;  // the first row sees fewest
#pragma unroll 1
      for (int column = 0; column < shape.dim; column += slice) {
        float pv[slice / 8][4] = {};
        const bool finite = multiply_slice<false>(pv, p_frags, smem, column, Tile::keys);
        if (!all_visible && !__all_sync(0xffffffff, finite)) {
#pragma unroll 1
          for (int r = 0; r < 16; ++r) {
            float own[slice / 8][4] = {};
            multiply_slice<true>(own, p_frags, smem, column, shape.visible_keys(first_row + warp_row + r) - first_key);
            take_row(pv, own, r, g);
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // line 12
          const RowFactors& f = factors[half];
          float* o = state.o + state_row(shape, batch, head, row + 8 * half) * shape.dim + column + 2 * t;
#pragma unroll
          for (int n = 0; n < slice / 8; ++n) {
            float2* at = reinterpret_cast<float2*>(o + 8 * n);
            const float2 before = load_if(inside[half], at);
            store_if(inside[half], at,
                     make_float2((f.old * before.x + f.fresh * pv[n][2 * half]) * f.inverse,
                                 (f.old * before.y + f.fresh * pv[n][2 * half + 1]) * f.inverse));
          }
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
