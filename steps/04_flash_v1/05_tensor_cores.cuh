// Step 04, file 2: Algorithm 1 on tensor cores.
//
// File 1 spends two loads from shared memory on each multiply-add. Here both products of a block are mma.sync, fed by ldmatrix
// from swizzled tiles, as in step 02. S never sees shared memory: a warp holds its 16 rows of S in registers, and the fragment
// that mma.sync leaves behind is, packed to 16 bits, the fragment that it wants as the left operand of P·V.
//
//   block   one for each head and batch entry; Br = Bc = 128 (64 where a row has 256 elements)
//   warp    16 queries, all keys of the block: a row's maximum and sum stay within four lanes
//   lane    rows g and g + 8, columns 2t and 2t + 1 of each piece of S, P and O (layouts: ptx/mma.cuh)
//   Smem    q [Br][pitch]   k, v [Bc][pitch]: 16 bits; chunk c of row r lies at place(r, c)
//
// S costs 16 · Bc / 32 registers a lane instead of Br · Bc words. So registers bound Bc now: 64 of them for 128 keys. l and m
// are read when S is known, O when P·V is, and written at once; 4 lanes have 32 bytes of a row, a whole sector.
//
// What to expect: the arithmetic of file 1 in a fraction of its time, and file 1's traffic, if the blocks were as large. What
// the loops ask of memory did not change, and neither did the 16 of 132 multiprocessors.
#pragma once

#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "steps/04_flash_v1/paper.cuh"

namespace flash_v1 {

constexpr int chunk = 8;   // elements of 16 bits in 16 bytes, what one access moves
constexpr int slice = 32;  // elements of O that a warp works on at once

// Head dims up to `pitch`, a power of 2: then swizzled chunks stay within their row.
template <int row_pitch>
struct TensorTile {
  static constexpr int pitch = row_pitch;
  static constexpr int rows = pitch <= 128 ? 128 : 64;  // Br
  static constexpr int keys = rows;                     // Bc
  static constexpr int threads = 2 * rows;              // a warp for 16 rows
};

template <class T, class Tile>
struct TensorSmem {
  alignas(16) T q[Tile::rows][Tile::pitch];
  alignas(16) T k[Tile::keys][Tile::pitch];
  alignas(16) T v[Tile::keys][Tile::pitch];
};

// Where column t of row r lies; t is a multiple of 8. Rows of 64 bytes: two of them fill the 32 banks.
template <class Tile>
__device__ int place(int r, int t) {
  return t ^ (Tile::pitch == 32 ? r / 2 % 4 : r % 8) * chunk;
}

// Rows first … of a head into a tile of shared memory; zeros beyond the last, since 0 · NaN is NaN.
template <class Tile, int rows, class T>
__device__ void copy_tile(T (&tile)[rows][Tile::pitch], const AttentionShape& shape, Heads<const T> from, int batch, int head,
                          int first, int count) {
  const int chunks = shape.dim / chunk;
  for (int e = threadIdx.x; e < rows * chunks; e += Tile::threads) {
    const int r = e / chunks, t = e % chunks * chunk;
    const uint4 value = load_if(first + r < count, reinterpret_cast<const uint4*>(&from.row(batch, head, first + r)[t]));
    store(reinterpret_cast<uint4*>(&tile[r][place<Tile>(r, t)]), value);
  }
}

// ldmatrix.x4 from swizzled rows: the 16 bytes at column t of row r are what this lane gives.
template <class Tile, class T>
__device__ void load_pieces(std::uint32_t (&pieces)[4], const T (&tile)[Tile::keys][Tile::pitch], int r, int t) {
  ptx::ldmatrix_x4(pieces, &tile[r][place<Tile>(r, t)]);
}

// Is one of the two 16-bit elements infinite or NaN? Then its exponent is all ones.
template <class T>
__device__ bool has_non_finite(std::uint32_t pair) {
  const std::uint32_t exponent = std::is_same_v<T, __half> ? 0x7c00 : 0x7f80;
  return (pair & exponent) == exponent || (pair >> 16 & exponent) == exponent;
}

// sums = P · V for 16 rows and one slice of columns. With `masked`, V counts as 0 from key `visible` on. Returns whether all of
// V that this lane has seen is finite.
template <bool masked, class T, class Tile>
__device__ bool multiply_slice(float (&sums)[slice / 8][4], const std::uint32_t (&p)[Tile::keys / 16][4],
                               const TensorSmem<T, Tile>& smem, int column, int visible) {
  const int lane = threadIdx.x % 32;
  bool finite = true;
#pragma unroll
  for (int n = 0; n < slice / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = 0.0f;
  }
#pragma unroll
  for (int n = 0; n < Tile::keys / 16; ++n) {
#pragma unroll
    for (int half = 0; half < slice / 16; ++half) {
      std::uint32_t v[4];  // two pieces of 8 columns
      const int row = 16 * n + lane % 16;
      ptx::ldmatrix_x4_trans(v, &smem.v[row][place<Tile>(row, column + 16 * half + lane / 16 * chunk)]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        finite = finite && !has_non_finite<T>(v[i]);
        const int key = 16 * n + lane % 4 * 2 + i % 2 * 8;  // of the lower half of the register; the upper one has the next key
        if (masked) v[i] = key + 1 < visible ? v[i] : key < visible ? v[i] & 0xffff : 0;
      }
      const std::uint32_t left[2] = {v[0], v[1]}, right[2] = {v[2], v[3]};
      ptx::mma_m16n8k16<T>(sums[2 * half], p[n], left);
      ptx::mma_m16n8k16<T>(sums[2 * half + 1], p[n], right);
    }
  }
  return finite;
}

// Grid: x over heads, y over the batch. Blocks of Tile::threads. dim is a multiple of 32, and of rows a multiple of 16 bytes.
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
  const int g = lane / 4;
  const int t = lane % 4;
  const float scale = shape.scale * device::log2_e;  // of scores in base 2

  for (int first_key = 0; first_key < shape.seq_k; first_key += Tile::keys) {  // line 5: j
    copy_tile<Tile>(smem.k, shape, k, batch, shape.kv_head(head), first_key, shape.seq_k);
    copy_tile<Tile>(smem.v, shape, v, batch, shape.kv_head(head), first_key, shape.seq_k);
    for (int first_row = first_row_block(shape, first_key, Tile::rows); first_row < shape.seq_q;
         first_row += Tile::rows) {  // line 7: i
      copy_tile<Tile>(smem.q, shape, q, batch, head, first_row, shape.seq_q);
      __syncthreads();  // the tiles are written before any warp reads them

      float s[Tile::keys / 8][4] = {};  // line 9
#pragma unroll 1
      for (int step = 0; step < shape.dim; step += 16) {
        std::uint32_t q_piece[4];
        load_pieces<Tile>(q_piece, smem.q, warp_row + lane % 16, step + lane / 16 * chunk);
#pragma unroll
        for (int n = 0; n < Tile::keys / 16; ++n) {
          std::uint32_t k_pieces[4];  // two pieces of 8 keys
          load_pieces<Tile>(k_pieces, smem.k, 16 * n + lane / 16 * 8 + lane % 8, step + lane / 8 % 2 * chunk);
          const std::uint32_t left[2] = {k_pieces[0], k_pieces[1]}, right[2] = {k_pieces[2], k_pieces[3]};
          ptx::mma_m16n8k16<T>(s[2 * n], q_piece, left);
          ptx::mma_m16n8k16<T>(s[2 * n + 1], q_piece, right);
        }
      }

      device::SoftmaxState tile[2];  // of rows g and g + 8: m̃, l̃, line 10
      const int row = first_row + warp_row + g;
      const bool inside[2] = {row < shape.seq_q, row + 8 < shape.seq_q};
      const int visible[2] = {shape.visible_keys(row) - first_key, shape.visible_keys(row + 8) - first_key};
#pragma unroll
      for (int n = 0; n < Tile::keys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[n][i] = 8 * n + 2 * t + i % 2 < visible[i / 2] ? scale * s[n][i] : -INFINITY;
          tile[i / 2].m = fmaxf(tile[i / 2].m, s[n][i]);
        }
      }
#pragma unroll
      for (device::SoftmaxState& part : tile) {
        part.m = fmaxf(part.m, __shfl_xor_sync(0xffffffff, part.m, 1));
        part.m = fmaxf(part.m, __shfl_xor_sync(0xffffffff, part.m, 2));
      }
#pragma unroll
      for (int n = 0; n < Tile::keys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[n][i] = device::exp2_fast(s[n][i] - device::safe_maximum(tile[i / 2].m));
          tile[i / 2].l += s[n][i];
        }
      }
      device::MergedSoftmax merged[2];
      float l_before[2], inverse[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        tile[half].l += __shfl_xor_sync(0xffffffff, tile[half].l, 1);
        tile[half].l += __shfl_xor_sync(0xffffffff, tile[half].l, 2);
        const std::int64_t at = state_row(shape, batch, head, row + 8 * half);
        const float2 ml = load_if(inside[half], &state.ml[at]);  // line 8
        const device::SoftmaxState before{ml.x, ml.y};
        merged[half] = device::merge(before, tile[half]);  // line 11
        l_before[half] = before.l;
        inverse[half] = device::inverse_sum(merged[half].state.l);
      }
      __syncwarp();  // the four lanes of a row have read its l and m before one of them writes them

      // [doc: update_rows]
      std::uint32_t p[Tile::keys / 16][4];
#pragma unroll
      for (int n = 0; n < Tile::keys / 16; ++n) {
        p[n][0] = packed<T>(s[2 * n][0], s[2 * n][1]);
        p[n][1] = packed<T>(s[2 * n][2], s[2 * n][3]);
        p[n][2] = packed<T>(s[2 * n + 1][0], s[2 * n + 1][1]);
        p[n][3] = packed<T>(s[2 * n + 1][2], s[2 * n + 1][3]);
      }
      const bool all_visible =
          shape.visible_keys(first_row + warp_row) >= first_key + Tile::keys;  // the first row sees the fewest
#pragma unroll 1
      for (int column = 0; column < shape.dim; column += slice) {
        float pv[slice / 8][4];
        const bool finite = multiply_slice<false>(pv, p, smem, column, Tile::keys);
        // The P of a key that a row does not see is 0, but 0 · NaN is NaN. So where that may be, each row gets a product of its
        // own, with the V that it sees.
        if (!all_visible && !__all_sync(0xffffffff, finite)) {
#pragma unroll 1
          for (int r = 0; r < 16; ++r) {
            float own[slice / 8][4];
            multiply_slice<true>(own, p, smem, column, shape.visible_keys(first_row + warp_row + r) - first_key);
#pragma unroll
            for (int n = 0; n < slice / 8; ++n) {
#pragma unroll
              for (int i = 0; i < 4; ++i) pv[n][i] = g + i / 2 * 8 == r ? own[n][i] : pv[n][i];
            }
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // line 12
          float* o = state.o + state_row(shape, batch, head, row + 8 * half) * shape.dim + column + 2 * t;
#pragma unroll
          for (int n = 0; n < slice / 8; ++n) {
            float2* at = reinterpret_cast<float2*>(o + 8 * n);
            const float2 before = load_if(inside[half], at);
            const float old = merged[half].first * l_before[half], fresh = merged[half].second;
            store_if(inside[half], at,
                     make_float2((old * before.x + fresh * pv[n][2 * half]) * inverse[half],
                                 (old * before.y + fresh * pv[n][2 * half + 1]) * inverse[half]));
          }
        }
      }
      // [/doc: update_rows]
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // line 13
        const std::int64_t at = state_row(shape, batch, head, row + 8 * half);
        store_if(t == 0 && inside[half], &state.ml[at], make_float2(merged[half].state.m, merged[half].state.l));
      }
      __syncthreads();  // everyone has read Q_i, K_j and V_j before they are overwritten
    }
  }
}

}  // namespace flash_v1
