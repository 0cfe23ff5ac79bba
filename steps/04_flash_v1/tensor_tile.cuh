// 04_flash_v1: tiles of Q, K and V in shared memory, swizzled as in step 02, and the fragments that mma.sync takes from them.
#pragma once

#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "steps/04_flash_v1/paper.cuh"

namespace flash_v1 {

constexpr int chunk = 8;  // elements of 16 bits in 16 bytes, what one access moves

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

// Where column t of row r lies: chunks of 8 columns are swizzled. Rows of 64 bytes: two of them fill the 32 banks.
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

// ---- fragments (layouts: ptx/arithmetic.cuh) ----

// Four 8 × 8 matrices of a swizzled tile; this lane names the chunk that begins at column t of row r.
template <class Tile, class T, int rows>
__device__ void load_matrices(std::uint32_t (&frags)[4], const T (&tile)[rows][Tile::pitch], int r, int t) {
  ptx::ldmatrix_x4(frags, &tile[r][place<Tile>(r, t)]);
}

// Queries row … row + 15, columns column … column + 15.
template <class Tile, class T>
__device__ void load_q_fragment(std::uint32_t (&q_frag)[4], const T (&q)[Tile::rows][Tile::pitch], int row, int column,
                                int lane) {
  const int r = row + lane % 16, t = column + lane / 16 * chunk;
  load_matrices<Tile>(q_frag, q, r, t);
}

// Kᵀ as two fragments: keys key … key + 7 and key + 8 … key + 15, columns column … column + 15.
template <class Tile, class T>
__device__ void load_k_fragments(std::uint32_t (&k_frags)[4], const T (&k)[Tile::keys][Tile::pitch], int key, int column,
                                 int lane) {
  const int r = key + lane / 16 * 8 + lane % 8, t = column + lane / 8 % 2 * chunk;
  load_matrices<Tile>(k_frags, k, r, t);
}

// V as two fragments: keys key … key + 15, columns column … column + 7 and column + 8 … column + 15.
template <class Tile, class T>
__device__ void load_v_fragments(std::uint32_t (&v_frags)[4], const T (&v)[Tile::keys][Tile::pitch], int key, int column,
                                 int lane) {
  const int r = key + lane % 16, t = column + lane / 16 * chunk;
  ptx::ldmatrix_x4_trans(v_frags, &v[r][place<Tile>(r, t)]);
}

// acc += A · B for one fragment of A and two of B, side by side.
template <class T>
__device__ void multiply_two(float (&first)[4], float (&second)[4], const std::uint32_t (&a_frag)[4],
                             const std::uint32_t (&b_frags)[4]) {
  const std::uint32_t left[2] = {b_frags[0], b_frags[1]}, right[2] = {b_frags[2], b_frags[3]};
  ptx::mma_m16n8k16<T>(first, a_frag, left);
  ptx::mma_m16n8k16<T>(second, a_frag, right);
}

// Fragments of a warp's 16 rows, side by side, to rows row … row + 15 in shared memory.
template <int n_frags, int rows, int pitch>
__device__ void store_fragments(float (&to)[rows][pitch], const float (&acc)[n_frags][4], int row) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < n_frags; ++n) {
    store(reinterpret_cast<float2*>(&to[row + g][8 * n + 2 * t]), make_float2(acc[n][0], acc[n][1]));
    store(reinterpret_cast<float2*>(&to[row + g + 8][8 * n + 2 * t]), make_float2(acc[n][2], acc[n][3]));
  }
}

}  // namespace flash_v1
