// 03_online_softmax: what all rungs share, rows and the exponential.
//
//     y[i, j] = exp(x[i, j]) / Σ_k exp(x[i, k])
//
// Elements are fp32 or fp16; maxima, exponentials and sums are fp32.
#pragma once

#include "common/device/dialect.h"
#include "common/device/online_softmax.cuh"

namespace online_softmax {

using device::ceil_div;
using device::from_float;
using device::load;
using device::load_if;
using device::SoftmaxState;
using device::store;
using device::store_if;
using device::to_float;

// A [rows, cols] array; the columns are contiguous.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;  // in elements

  __host__ __device__ T* row(int i) const { return data + i * stride; }  // [cols]
};

struct Shape {
  int rows, cols;
};

// From `warp_per_row` on, exp(x − m) = 2^((x − m) · log2(e)) by the hardware's 2^x. m is a maximum, and not −∞. For fp16
// scores m is kept in base 2, as m · log2(e): then one fused multiply-add is enough, which does not round x · log2(e). For fp32
// scores that product may overflow, from |x| = 2.36e38 on; and −FLT_MAX is what masks are often made of. So there m is a score
// as it is, and is subtracted first: one addition more for each exponential.

// [doc: exponential]
template <class T>
constexpr bool in_base_2 = std::is_same_v<T, __half>;

template <class T>
constexpr float unit = in_base_2<T> ? 1.0f : device::log2_e;  // of m, in base 2

// m of a state whose largest score this is.
template <class T>
__device__ inline float maximum_of(float score) {
  return in_base_2<T> ? score * device::log2_e : score;
}

template <class T>
__device__ inline float exp_below(float x, float m) {
  return device::exp2_fast(in_base_2<T> ? fmaf(x, device::log2_e, -m) : (x - m) * device::log2_e);
}
// [/doc: exponential]

}  // namespace online_softmax
