// Dropout: training leaves out a random part of the probabilities, and multiplies the others so that their sum stays what it is
// on average:
//
//     O = (P ∘ M · factor) V      M is 0 with probability n / 256, else 1; factor = 256 / (256 − n)
//
// It acts behind the softmax: the row's sum and LSE are those of all keys. The backward pass needs the same M, of N² elements.
// Nobody stores it. The bits of a pair (query, key) are a function of its position: both passes compute them anew, whatever
// their tiles, warps and lanes are.
//
// Philox gives 16 bytes at a time, and a pair needs one. Which 16 pairs share a call? Those that one lane holds in the forward
// *and* in the backward pass. mma.sync spreads an accumulator over the lanes by row % 8 and column % 8; the backward pass
// has Sᵀ. So one lane holds, each time, the 16 pairs of 32 × 32 that have one query % 8 and one key % 8. They share a call:
//
//     counter   { query without bits 3 and 4, key without bits 3 and 4, head, batch }
//     word      bits 3 and 4 of the query        byte   bits 3 and 4 of the key
#pragma once

#include <cstdint>

#include "common/device/dialect.h"
#include "common/device/shapes.h"

namespace device {

// ---- random bits ----

// Philox 4×32 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3): random bits as a
// function of a counter. There is no state that a thread must carry on: whoever needs the bits of a place computes them there,
// in any order, as often as it likes.
//
// A round multiplies two words of the counter by constants, and mixes the high halves of the products with the other two words
// and the key. The key grows by two constants from round to round; the host makes the keys of all rounds, which kernels read as
// constants. Seven rounds pass the batteries of tests that the paper names; it recommends ten for safety.

struct PhiloxWords {
  std::uint32_t x[4];
};
template <int rounds>
struct PhiloxKeys {
  std::uint32_t x[rounds][2];
};

// [doc: philox]
template <int rounds>
__host__ __device__ inline PhiloxKeys<rounds> philox_keys(std::uint64_t seed) {
  constexpr std::uint32_t step[2] = {0x9E3779B9u, 0xBB67AE85u};  // the golden ratio, and √3 − 1
  PhiloxKeys<rounds> keys;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    keys.x[round][0] = static_cast<std::uint32_t>(seed) + round * step[0];
    keys.x[round][1] = static_cast<std::uint32_t>(seed >> 32) + round * step[1];
  }
  return keys;
}

template <int rounds>
__host__ __device__ inline PhiloxWords philox_4x32(PhiloxWords counter, const PhiloxKeys<rounds>& keys) {
  constexpr std::uint32_t multiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
  for (const auto& key : keys.x) {
    const std::uint64_t a = std::uint64_t{multiplier[0]} * counter.x[0], b = std::uint64_t{multiplier[1]} * counter.x[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.x[1] ^ key[0], static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.x[3] ^ key[1], static_cast<std::uint32_t>(a)}};
  }
  return counter;
}
// [/doc: philox]

// ---- which pairs are kept ----

// Of four bytes: bit 7 of the result is set where the byte is n or more, 1 ≤ n ≤ 255. The other bits mean nothing.
//
// Add 128 less the lower 7 bits of n to the lower 7 bits of a byte: it carries into bit 7 where they are at least those of n.
// With n < 128 (26, say) the carry is enough, or bit 7 of the byte; with n ≥ 128 (200, say) it must be both.

// [doc: at_least]
__host__ __device__ inline std::uint32_t at_least(std::uint32_t bytes, int n) {
  const std::uint32_t carry = (bytes & 0x7f7f7f7fu) + (128u - (n & 127)) * 0x01010101u;
  return n < 128 ? bytes | carry : bytes & carry;
}
// [/doc: at_least]

// The same without the choice: what depends on n alone is made once, by the host, and "or" and "and" become a majority of
// three.
struct ByteThreshold {
  int n;
  std::uint32_t for_carry;      // in each byte: 128 less the lower 7 bits of n
  std::uint32_t one_is_enough;  // all bits where n < 128, else none
};
inline ByteThreshold byte_threshold(int n) { return {n, (128u - (n & 127)) * 0x01010101u, n < 128 ? ~0u : 0u}; }
__host__ __device__ inline std::uint32_t at_least(std::uint32_t bytes, const ByteThreshold& threshold) {
  const std::uint32_t carry = (bytes & 0x7f7f7f7fu) + threshold.for_carry;
  return (bytes & carry) | (threshold.one_is_enough & (bytes | carry));
}

constexpr int philox_rounds = 7;

struct Dropout {
  PhiloxKeys<philox_rounds> keys;  // of the seed
  ByteThreshold threshold;         // a pair is kept if its byte is n or more

  __host__ __device__ float factor() const { return 256.0f / static_cast<float>(256 - threshold.n); }

  // The bytes of 16 pairs, those of query and key among them: word (query / 8) % 4, byte (key / 8) % 4.
  __host__ __device__ PhiloxWords bytes(int batch, int head, int query, int key) const {
    constexpr std::uint32_t octets = 3u << 3;  // bits 3 and 4
    return philox_4x32({{static_cast<std::uint32_t>(query) & ~octets, static_cast<std::uint32_t>(key) & ~octets,
                         static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(batch)}},
                       keys);
  }
  __host__ __device__ bool keeps(int batch, int head, int query, int key) const {
    const std::uint32_t word = bytes(batch, head, query, key).x[query / 8 % 4];
    return static_cast<int>(word >> (8 * (key / 8 % 4)) & 0xff) >= threshold.n;
  }
};

// n of 256: 1 ≤ n ≤ 255.
inline Dropout make_dropout(std::uint64_t seed, int n) { return {philox_keys<philox_rounds>(seed), byte_threshold(n)}; }

// ---- shapes with dropout ----

// A shape with dropout. Kernels take it in place of the other, as a template parameter, so that their machine code without
// dropout stays as it is.
template <class Shape>
struct Dropped : Shape {
  Dropout dropout;
};
template <class Shape>
inline constexpr bool drops = false;
template <class Shape>
inline constexpr bool drops<Dropped<Shape>> = true;

// What kept probabilities are multiplied by, whether a pair is kept, and what P of a pair is multiplied by; without dropout 1,
// always, and 1.
template <class Shape>
__host__ __device__ inline float kept_factor(const Shape& shape) {
  if constexpr (drops<Shape>) return shape.dropout.factor();
  return 1.0f;
}
template <class Shape>
__host__ __device__ inline bool keeps(const Shape& shape, int batch, int head, int query, int key) {
  if constexpr (drops<Shape>) return shape.dropout.keeps(batch, head, query, key);
  return true;
}
template <class Shape>
__host__ __device__ inline float kept_weight(const Shape& shape, int batch, int head, int query, int key) {
  return keeps(shape, batch, head, query, key) ? kept_factor(shape) : 0.0f;
}

// A shape with every option, for kernels in which it costs nothing that matters to ask for each. They need to be compiled only
// once, not once for each kind of shape.
struct AnyShape : PackedShape {
  Dropout dropout;
  bool drops;
  // first_token and end_token are null where no sequences are packed.

  // As in AttentionShape.
  __host__ __device__ int first_key(int i) const {
    return is_packed() ? PackedShape::first_key(i) : AttentionShape::first_key(i);
  }
  __host__ __device__ int end_key(int i) const { return is_packed() ? PackedShape::end_key(i) : AttentionShape::end_key(i); }
  __host__ __device__ int first_query(int j) const {
    return is_packed() ? PackedShape::first_query(j) : AttentionShape::first_query(j);
  }
  __host__ __device__ int end_query(int j) const {
    return is_packed() ? PackedShape::end_query(j) : AttentionShape::end_query(j);
  }

  // What P of a pair is multiplied by.
  __host__ __device__ float kept(int batch_entry, int head, int query, int key) const {
    if (!drops) return 1.0f;
    return dropout.keeps(batch_entry, head, query, key) ? dropout.factor() : 0.0f;
  }
  __host__ __device__ bool is_packed() const { return first_token != nullptr; }
};

// The first token of a token's sequence.
__host__ __device__ inline int first_of_sequence(const AnyShape& shape, int token) {
  return shape.is_packed() ? shape.first_token[token < shape.seq_q ? token : shape.seq_q - 1] : 0;
}

inline AnyShape any_shape(const AttentionShape& shape) { return {{shape, nullptr, nullptr}, {}, false}; }
inline AnyShape any_shape(const PackedShape& shape) { return {shape, {}, false}; }
template <class Shape>
AnyShape any_shape(const Dropped<Shape>& shape) {
  AnyShape any = any_shape(static_cast<const Shape&>(shape));
  any.dropout = shape.dropout;
  any.drops = true;
  return any;
}

}  // namespace device
