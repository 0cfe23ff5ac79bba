// 01_naive_mha, projections: the linear layers around attention.
//
// A transformer layer makes Q, K and V from its input x, and mixes the heads' outputs afterwards: four products with a weight
// matrix and a bias. PyTorch's MultiheadAttention stores each weight as [out, in] and stacks the first three:
//     qkv = x · in_proj_weightᵀ + in_proj_bias      [rows, 3·E]: Q, K and V side by side in each row
//     y   = o · out_proj_weightᵀ + out_proj_bias    [rows, E]
// The weight needs no transposition: row o of it holds exactly the factors of output o.
//
// One thread owns one element of y. Neighbouring lanes own neighbouring outputs of one row: they read the same x (one sector
// for the warp) and 32 different rows of the weight (32 sectors). Step 02 makes this product fast; here it is only right.
#pragma once

#include "common/device/dialect.h"

namespace naive_mha {

// y = x · weightᵀ + bias. Grid: x over the elements of y.
__global__ void linear(int rows, int in, int out,
                       const float* x,       // [rows, in]
                       const float* weight,  // [out, in]
                       const float* bias,    // [out]
                       float* y) {           // [rows, out]
  const std::int64_t element = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int row = element / out;
  const int o = element % out;
  if (row >= rows) return;

  float sum = 0.0f;
  for (int i = 0; i < in; ++i) {
    sum += x[std::int64_t(row) * in + i] * weight[std::int64_t(o) * in + i];
  }
  y[element] = sum + bias[o];
}

}  // namespace naive_mha
