// Views of tensors in device memory, used on both sides of a launch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/device/dialect.h"

namespace device {

// A [batch, heads, rows, dim] tensor. Only dim is contiguous: batch, head and row may lie anywhere, so the same kernel reads
// [batch, heads, rows, dim] and [batch, rows, heads, dim] arrays. Strides count elements.
template <class T>
struct Heads {
  T* data;
  std::int64_t batch_stride;
  std::int64_t head_stride;
  std::int64_t row_stride;

  __host__ __device__ T* row(int batch, int head, int row) const {  // [dim]
    return data + batch * batch_stride + head * head_stride + row * row_stride;
  }
};

// The same without its element type: what the runner hands to a step, which knows the dtype.
template <bool Const>
struct AnyHeads {
  std::conditional_t<Const, const void*, void*> data;
  std::int64_t batch_stride;
  std::int64_t head_stride;
  std::int64_t row_stride;

  template <class T>
  Heads<T> as() const {
    return {static_cast<T*>(data), batch_stride, head_stride, row_stride};
  }
};

}  // namespace device
