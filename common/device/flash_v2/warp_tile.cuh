// What the tensor-core rungs share: the sizes of tiles, and what a warp does with the fragments of its 16 rows between the two
// products.
//
// The scores of a warp are the accumulators of S = Q Kᵀ: s[p] is the 16 × 8 fragment of keys 8 p … 8 p + 7. The output's are
// acc[p], of columns 8 p … 8 p + 7.
#pragma once

#include "common/device/flash_v2/extremes.cuh"
#include "common/device/flash_v2/tile.cuh"

namespace flash_v2 {

// Elements t … t + 7 of row i of a head, zeros from row `rows` on.
template <class T>
__device__ uint4 chunk_or_zero(const Heads<const T>& matrix, int batch, int head, int i, int t, int rows) {
  return i < rows ? load(reinterpret_cast<const uint4*>(&matrix.row(batch, head, i)[t])) : make_uint4(0, 0, 0, 0);
}

// Two neighbouring elements of a row of shared memory, as one register of a fragment.
template <class T>
__device__ std::uint32_t word_at(const T* pair) {
  return load(reinterpret_cast<const std::uint32_t*>(pair));
}
// Two neighbouring elements of a column, from two rows.
template <class T, int dim>
__device__ std::uint32_t word_of_column(const T (&v)[tile_keys][dim], int key, int column) {
  const T pair[2] = {load(&v[key][column]), load(&v[key + 1][column])};
  std::uint32_t word;
  memcpy(&word, pair, sizeof(word));
  return word;
}

// Brings scores to base 2. The product is rounded separately. Otherwise nvcc would join it with the later subtraction of the
// maximum into one FMA. The maximum, a rounded product, would then no longer be one of the scores (extremes.cuh).
template <int frags>
__device__ void multiply_scores(float (&s)[frags][4], float scale_log2) {
#pragma unroll
  for (int p = 0; p < frags; ++p) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[p][e] = __fmul_rn(s[p][e], scale_log2);
  }
}

// The online softmax of a tile, for a warp's rows: scores, in base 2, become probabilities, 2^(s − m); the states take the tile
// in, and O's accumulator is brought to the new maxima.

// [doc: softmax_tile]
template <int frags, int columns>
__device__ void softmax_tile(float (&s)[frags][4], SoftmaxState (&states)[2], float (&acc)[columns][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // row maximum
    float row_max = states[r].m;
#pragma unroll
    for (int p = 0; p < frags; ++p) row_max = fmaxf(row_max, fmaxf(s[p][2 * r], s[p][2 * r + 1]));
    row_max = quad_maximum(row_max);
    const float factor = device::rescale_factor(states[r].m, row_max), subtract = device::safe_maximum(row_max);
    // P = exp2(S - m)
    float row_sum = states[r].l * factor;  // of this lane's keys; the epilogue adds the four lanes
#pragma unroll
    for (int p = 0; p < frags; ++p) {
#pragma unroll
      for (int e = 2 * r; e < 2 * r + 2; ++e) {
        s[p][e] = device::exp2_fast(s[p][e] - subtract);
        row_sum += s[p][e];
      }
    }
    states[r] = {row_max, row_sum};
    // rescale
#pragma unroll
    for (int p = 0; p < columns; ++p) {
      acc[p][2 * r] *= factor;
      acc[p][2 * r + 1] *= factor;
    }
  }
}
// [/doc: softmax_tile]

// The fragment of A for P · V, of 16 keys: two neighbouring accumulators of S, rounded to 16 bits.
template <class T, int frags>
__device__ void as_operand(std::uint32_t (&p)[4], const float (&s)[frags][4], int step) {
#pragma unroll
  for (int w = 0; w < 4; ++w) p[w] = packed<T>(s[2 * step + w / 2][w % 2 * 2], s[2 * step + w / 2][w % 2 * 2 + 1]);
}

}  // namespace flash_v2
