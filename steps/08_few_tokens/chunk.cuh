// Eight neighbouring elements of a row: 16 bytes of a 16-bit type, 32 of fp32, in accesses of 16 bytes.
#pragma once

#include "steps/08_few_tokens/operands.cuh"

namespace few_tokens {

constexpr int chunk = 8;  // elements

template <class T>
struct Chunk {
  uint4 words[chunk * sizeof(T) / sizeof(uint4)];
};

// The chunk that begins at an address which is a multiple of 16 bytes; zeros where there is none.
template <class T>
__device__ inline Chunk<T> load_chunk_if(bool there, const T* address) {
  Chunk<T> loaded;
  const auto* words = reinterpret_cast<const uint4*>(address);
#pragma unroll
  for (std::size_t w = 0; w < sizeof(loaded) / sizeof(uint4); ++w) loaded.words[w] = load_if(there, words + w);
  return loaded;
}

// Its elements as the product sees them: of the weights' type.
template <class W, class T>
__device__ inline void as_weights(const Chunk<T>& from, float (&to)[chunk]) {
  T elements[chunk];
  memcpy(elements, from.words, sizeof(elements));
#pragma unroll
  for (int e = 0; e < chunk; ++e) to[e] = as_weight<W>(elements[e]);
}

}  // namespace few_tokens
