// What all files of step 08 share: the operands of a linear layer, and which of them a block works on.
//
//     C[m, n] = activation(A[m, k] · B[n, k]ᵀ + bias[n])
//
// A holds the tokens, in fp32 or in the weights' type, B the weights, in fp16 or bf16. The batch has two levels, samples and
// channels, and several entries of tokens may meet the same matrix of weights.
#pragma once

#include "common/device/dialect.h"
#include "steps/08_few_tokens/matrices.h"

namespace few_tokens {

using device::ceil_div;
using device::from_float;
using device::load;
using device::load_if;
using device::store;
using device::to_float;

struct Shape {
  int m, n, k;
  int samples, channels;
  int samples_a_matrix, channels_a_matrix;  // how many samples, how many channels of tokens meet the same weights
};

// A batch entry of the tokens and of C, and the weights that it meets.
struct Entry {
  int sample, channel;
  int weight_sample, weight_channel;
};
__device__ inline Entry entry_of(const Shape& shape, std::int64_t number) {
  if (number == 0) return {0, 0, 0, 0};  // most often the only one: no loads wait for divisions
  const int sample = static_cast<int>(number / shape.channels), channel = static_cast<int>(number % shape.channels);
  return {sample, channel, sample / shape.samples_a_matrix, channel / shape.channels_a_matrix};
}

// The number of a block's entry: y and z of a grid go over the batch. Behind the last entry there may be blocks without one.
__device__ inline std::int64_t entry_number() { return blockIdx.y + std::int64_t{gridDim.y} * blockIdx.z; }
__device__ inline bool has_entry(const Shape& shape) { return entry_number() < std::int64_t{shape.samples} * shape.channels; }

// A token's element as the product sees it: of the weights' type.
template <class W, class A>
__device__ inline float as_weight(A token) {
  return to_float(from_float<W>(to_float(token)));
}

}  // namespace few_tokens
