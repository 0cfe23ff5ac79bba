// How the tensor-core kernels of step 02 read A and B and write C, at the edges of a matrix too: chunks of 16 bytes, and stores
// of fragments and rows.
#pragma once

#include "steps/02_tiled_gemm/matrix.cuh"

namespace tiled_gemm {

constexpr int chunk = 8;  // elements of 16 bits in 16 bytes, what one access moves

// Elements [i][t] … [i][t + 7]; zeros outside of the matrix. t and the number of columns are multiples of 8.
template <class T>
__device__ uint4 chunk_or_zero(Matrix<const T> matrix, int batch, int i, int t, int rows, int columns) {
  if (i >= rows || t >= columns) return make_uint4(0, 0, 0, 0);
  return load(reinterpret_cast<const uint4*>(&matrix.row(batch, i)[t]));
}

// Stores the accumulator of a warp, 64 rows × 8 · column_fragments columns: element i of the fragment at row 16 p, column 8 q
// is acc[p][q][i], in mma.sync's layout.
template <class T, int column_fragments>
__device__ void store_warp_tile(const float (&acc)[4][column_fragments][4], Matrix<T> c, int batch, const Shape& shape, int row,
                                int column) {
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const bool paired = c.row_stride % 2 == 0 && c.batch_stride % 2 == 0;  // are even columns multiples of four bytes?
#pragma unroll
  for (int p = 0; p < 4; ++p) {
#pragma unroll
    for (int q = 0; q < column_fragments; ++q) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row + 16 * p + 8 * half + g;
        const int j = column + 8 * q + 2 * t;
        const bool first_inside = i < shape.m && j < shape.n, both_inside = i < shape.m && j + 1 < shape.n;
        T* to = &c.row(batch, i)[j];
        const float first = acc[p][q][2 * half], second = acc[p][q][2 * half + 1];
        store_if(both_inside && paired, reinterpret_cast<std::uint32_t*>(to), packed<T>(first, second));
        store_if(first_inside && !(both_inside && paired), to, from_float<T>(first));
        store_if(both_inside && !paired, to + 1, from_float<T>(second));
      }
    }
  }
}

// Stores eight neighbouring elements, at a multiple of 16 bytes, or the first `count` of them where a row of C ends.
template <class T>
__device__ void store8(T* to, uint4 words, int count) {
  if (count >= 8) {
    store(reinterpret_cast<uint4*>(to), words);
    return;
  }
  const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    store_if(e < count, reinterpret_cast<std::uint16_t*>(to + e), static_cast<std::uint16_t>(pairs[e / 2] >> 16 * (e % 2)));
  }
}

// Stores a row of a tile of C: `count` elements of shared memory, by one warp. The row begins at any multiple of two bytes, so
// the pairs of elements that lie at multiples of four begin with its first or with its second.
template <class T, int columns>
__device__ void store_row(T* to, const T* row, int count) {
  const int lane = threadIdx.x % 32;
  const int shift = reinterpret_cast<std::uintptr_t>(to) % 4 / 2;
  if (shift == 1 && lane == 0) store(to, load(&row[0]));
#pragma unroll
  for (int first = 0; first < columns; first += 64) {
    const int j = first + 2 * lane + shift;
    const T pair[2] = {load_if(j < count, &row[j]), load_if(j + 1 < count, &row[j + 1])};
    std::uint32_t word;
    memcpy(&word, pair, sizeof(word));
    store_if(j + 1 < count, reinterpret_cast<std::uint32_t*>(to + j), word);
    store_if(j + 1 == count, to + j, pair[0]);
  }
}

}  // namespace tiled_gemm
