// Dropout in a warp's fragments: the pairs that are kept, of 32 × 32 pairs of a query and a key, as mma.sync spreads them over
// the lanes.
//
// A lane has rows g, g + 8, … and columns 2t, 2t + 1 of each group of 8, with g = lane / 4 and t = lane % 4. So its pairs have
// one row by 8, and two columns by 8: two calls of Philox give all their bytes. What is kept is decided for four bytes at
// once, and stays a bit: the highest of each byte.
#pragma once

#include "common/device/dropout.h"
#include "common/device/ptx/arithmetic.cuh"

namespace device {

// All bits of the half of a word that stands for a kept pair: byte `octet` of the lane's even one and of its odd one.
__device__ inline std::uint32_t mask_of_pair(std::uint32_t even, std::uint32_t odd, int octet) {
  return ptx::prmt(even, odd, 0xCC88u + 0x1111u * octet);
}

// Of a warp's 8 · octets rows and 32 columns. Rows are queries here, and columns keys.
template <int octets>
struct KeptPairs {
  // Of the lane's even and odd column: an octet of rows each; a byte an octet of columns.
  std::uint32_t even[octets], odd[octets];

  // first_query is a multiple of 8 · octets, first_key one of 32.
  __device__ void look_up(const Dropout& dropout, int batch, int head, int first_query, int first_key) {
    const int query = first_query + threadIdx.x % 32 / 4, key = first_key + threadIdx.x % 4 * 2;
    const PhiloxWords first = dropout.bytes(batch, head, query, key), second = dropout.bytes(batch, head, query, key + 1);
    const bool upper = octets < 4 && first_query % 32 != 0;  // the second half of 32 queries
#pragma unroll
    for (int n = 0; n < octets; ++n) {
      even[n] = at_least(upper ? first.x[(n + octets) % 4] : first.x[n], dropout.threshold);
      odd[n] = at_least(upper ? second.x[(n + octets) % 4] : second.x[n], dropout.threshold);
    }
  }
  __device__ std::uint32_t mask(int row_octet, int column_octet) const {
    return mask_of_pair(even[row_octet], odd[row_octet], column_octet);
  }
};

// The same of Sᵀ, where rows are keys and columns queries: of 32 × 32 pairs.
struct KeptTransposed {
  std::uint32_t even[4], odd[4];  // of the lane's even and odd query: an octet of queries each; a byte an octet of keys

  __device__ void look_up(const Dropout& dropout, int batch, int head, int first_query, int first_key) {
    const int query = first_query + threadIdx.x % 4 * 2, key = first_key + threadIdx.x % 32 / 4;
    const PhiloxWords first = dropout.bytes(batch, head, query, key), second = dropout.bytes(batch, head, query + 1, key);
    // The host's threshold makes fewer instructions, but nvcc orders them so that these kernels become 5 % slower.
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      even[n] = at_least(first.x[n], dropout.threshold.n);
      odd[n] = at_least(second.x[n], dropout.threshold.n);
    }
  }
  __device__ std::uint32_t mask(int query_octet, int key_octet) const {
    return mask_of_pair(even[query_octet], odd[query_octet], key_octet);
  }
};
// Of 32 queries × 32 · count keys.
template <int count>
__device__ inline void look_up(KeptTransposed (&kept)[count], const Dropout& dropout, int batch, int head, int first_query,
                               int first_key) {
#pragma unroll
  for (int i = 0; i < count; ++i) kept[i].look_up(dropout, batch, head, first_query, first_key + 32 * i);
}

// P of pairs that are left out becomes −P: the backward pass needs P as it is for dS, and 0 for dV, and the sign of a
// probability is free. Accumulators of Pᵀ: 16 · slices keys × 32 queries. kept[i] is of the keys of two slices; of a single
// slice, first_octet says which octets they are.
template <int slices, int octets, int count>
__device__ inline void negate_dropped(float (&p)[slices][octets][4], const KeptTransposed (&kept)[count], int first_octet = 0) {
  static_assert(count == (slices + 1) / 2 && octets == 4);
#pragma unroll
  for (int s = 0; s < slices; ++s) {
#pragma unroll
    for (int n = 0; n < octets; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int octet = first_octet + s % 2 * 2 + e / 2;
        const std::uint32_t of_query = e % 2 == 0 ? kept[s / 2].even[n] : kept[s / 2].odd[n];
        const std::uint32_t left_out = ~(of_query << (24 - 8 * octet)) & 0x80000000u;
        p[s][n][e] = __uint_as_float(__float_as_uint(p[s][n][e]) ^ left_out);
      }
    }
  }
}

// The same of operands A, which are packed: half as many instructions. p[step][s]: 16 keys × 16 queries of Pᵀ.
template <int steps, int slices, int count>
__device__ inline void negate_dropped(std::uint32_t (&p)[steps][slices][4], const KeptTransposed (&kept)[count]) {
  static_assert(2 * count == slices && steps == 2);
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        p[step][s][w] ^= ~kept[s / 2].mask(2 * step + w / 2, s % 2 * 2 + w % 2) & 0x80008000u;
      }
    }
  }
}

// [doc: gradient_with_dropout]
// dS = P ∘ (dP − D), where a pair that is left out has dP = 0 and −P is given. `products`: dO Vᵀ, of one pair.
__device__ inline float gradient_with_dropout(float p, float products, float factor, float minus_delta) {
  return fabsf(p) * (p >= 0.0f ? fmaf(products, factor, minus_delta) : minus_delta);
}
// [/doc: gradient_with_dropout]

// Accumulators, times the factor of dropout, where there is any.
template <class Shape, int frags>
__device__ inline void multiply_by_factor(float (&acc)[frags][4], const Shape& shape) {
  if constexpr (drops<Shape>) {
    const float factor = shape.dropout.factor();
#pragma unroll
    for (int e = 0; e < 4 * frags; ++e) acc[e / 4][e % 4] *= factor;
  }
}
template <class Shape, int slices, int frags>
__device__ inline void multiply_by_factor(float (&acc)[slices][frags][4], const Shape& shape) {
#pragma unroll
  for (int s = 0; s < slices; ++s) multiply_by_factor(acc[s], shape);
}

// P of pairs that are left out becomes 0: accumulators of 16 queries from first_query on, 8 · frags keys from first_key on, a
// multiple of 32. Nothing happens without dropout.
template <class Shape, int frags>
__device__ inline void drop_scores(float (&p)[frags][4], const Shape& shape, int batch, int head, int first_query,
                                   int first_key) {
  static_assert(frags % 4 == 0);
  if constexpr (drops<Shape>) {
    KeptPairs<2> kept;
#pragma unroll
    for (int n = 0; n < frags; ++n) {
      if (n % 4 == 0) kept.look_up(shape.dropout, batch, head, first_query, first_key + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::uint32_t bytes = e % 2 == 0 ? kept.even[e / 2] : kept.odd[e / 2];
        if ((bytes >> (8 * (n % 4)) & 0x80u) == 0) p[n][e] = 0.0f;
      }
    }
  }
}

// P of pairs that are left out becomes 0: operands A of 16 keys from first_key on. Those of 32 keys share `kept`. Nothing
// happens without dropout.
template <class Shape, int slices>
__device__ inline void drop_pairs(std::uint32_t (&p)[slices][4], KeptPairs<2 * slices>& kept, const Shape& shape, int batch,
                                  int head, int first_query, int first_key, int group) {
  if constexpr (drops<Shape>) {
    const int half = group % 2;  // of 32 keys; a constant, where the loop over groups is unrolled
    if (half == 0) kept.look_up(shape.dropout, batch, head, first_query, first_key);
#pragma unroll
    for (int s = 0; s < slices; ++s) {
#pragma unroll
      for (int w = 0; w < 4; ++w) p[s][w] &= kept.mask(2 * s + w % 2, 2 * half + w / 2);
    }
  }
}

}  // namespace device
