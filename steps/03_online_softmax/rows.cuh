// What all files of step 03 share: rows, element types, and the exponential.
//
//     y[i, j] = exp(x[i, j]) / Σ_k exp(x[i, k])
//
// Elements are fp32 or fp16; maxima, exponentials and sums are fp32.
#pragma once

#include "common/device/launch.h"
#include "common/device/memory.cuh"
#include "common/device/online_softmax.cuh"

namespace online_softmax {

using device::ceil_div;
using device::load;
using device::load_if;
using device::SoftmaxState;
using device::store;
using device::store_if;

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

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half(x);
  } else {
    return x;
  }
}

// exp(x) over exp of the maximum, where m is that maximum in base 2 (online_softmax.cuh), and not −∞: one fused multiply-add,
// so that x · log2(e) is not rounded, and one ex2.
__device__ inline float exp_below(float x, float m) { return device::exp2_fast(fmaf(x, device::log2_e, -m)); }

}  // namespace online_softmax
