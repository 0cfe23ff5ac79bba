// From finished sums to elements of C: bias, activation, rounding. It runs once an element, so what differs between problems
// (is there a bias, which activation, which type of C) is asked at run time: all lanes take the same way, and no kernel is
// compiled twice for it.
#pragma once

#include "steps/08_few_tokens/operands.cuh"

namespace few_tokens {

enum class Activation { none, relu, gelu, silu };
enum class OutputType { fp32, fp16, bf16 };

// [doc: activate]
__device__ inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::relu:
      return x < 0.0f ? 0.0f : x;  // NaN stays NaN
    case Activation::gelu:
      return x * (0.5f * (1.0f + erff(x * 0.70710678f)));  // x · Φ(x), exact but for rounding
    case Activation::silu:
      return x / (1.0f + expf(-x));
    case Activation::none:
      break;
  }
  return x;
}
// [/doc: activate]

template <class W>
struct Epilogue {
  const W* bias;  // [weight samples, weight channels, n]; null: none
  std::int64_t bias_sample_stride, bias_channel_stride;
  Activation activation;
  OutputType type;        // of C
  Matrices<void> c_rows;  // [samples, channels, m, n]

  // activation(sum + bias), of row j of the entry's weights.
  __device__ float activated(const Entry& entry, int j, float sum) const {
    if (bias != nullptr) {
      sum += to_float(load(bias + entry.weight_sample * bias_sample_stride + entry.weight_channel * bias_channel_stride + j));
    }
    return activate(activation, sum);
  }
  // Element (token, j) of an entry of C.
  __device__ void store_rounded(const Entry& entry, int token, int j, float x) const {
    const std::int64_t at = c_rows.offset(entry.sample, entry.channel, token) + j;
    if (type == OutputType::fp32) {
      static_cast<float*>(c_rows.data)[at] = x;
    } else if (type == OutputType::fp16) {
      store(static_cast<__half*>(c_rows.data) + at, from_float<__half>(x));
    } else {
      store(static_cast<__nv_bfloat16*>(c_rows.data) + at, from_float<__nv_bfloat16>(x));
    }
  }
  __device__ void put(const Entry& entry, int token, int j, float sum) const {
    store_rounded(entry, token, j, activated(entry, j, sum));
  }
};

}  // namespace few_tokens
