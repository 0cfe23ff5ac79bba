// Step 01, host side: grids, and how the intermediate results lie in memory. Shared by step.cu and the exercises.
#pragma once

#include "common/device/dialect.h"
#include "common/run/family/attention.h"
#include "common/runtime/launch.h"

namespace naive_mha {

using device::ceil_div;
using device::Heads;
using problem::Attention;

constexpr int threads = 128;  // per block, wherever a thread works alone

// Grids: x over `count` threads in blocks of `threads`, y over heads, z over the batch.
inline dim3 grid_over(std::int64_t count, int heads, int batch) {
  return dim3(static_cast<unsigned>(ceil_div<std::int64_t>(count, threads)), static_cast<unsigned>(heads),
              static_cast<unsigned>(batch));
}

// S or P, as [batch, heads, seq_q, seq_k] or in another order.
inline run::Array score_matrix(const char* name, const Attention& a) {
  return run::scratch(name, problem::Dtype::fp32, {a.batch, a.heads, a.seq_q, a.seq_k});
}

// How S and P lie in memory. The kernels only see strides.
inline Heads<float> as_bhss(float* data, const Attention& a) {  // [batch, heads, seq_q, seq_k]
  const std::int64_t row = a.seq_k;
  return {data, row * a.seq_q * a.heads, row * a.seq_q, row};
}
inline Heads<float> as_bshs(float* data, const Attention& a) {  // [batch, seq_q, heads, seq_k]
  const std::int64_t row = a.seq_k;
  return {data, row * a.heads * a.seq_q, row, row * a.heads};
}
inline Heads<const float> read_only(Heads<float> view) {
  return {view.data, view.batch_stride, view.head_stride, view.row_stride};
}

}  // namespace naive_mha
