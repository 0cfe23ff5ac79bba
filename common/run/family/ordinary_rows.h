// Which inputs of a product cannot make it overflow.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/problem/dtype.h"
#include "common/problem/tensor.h"

namespace run {

// Of a [..., cols] tensor: which rows are finite, and so small that no product of two overflows the dtype.
inline std::vector<bool> ordinary_rows(const problem::Tensor& tensor, problem::Dtype dtype) {
  const std::int64_t cols = tensor.shape.back();
  const double limit = (dtype == problem::Dtype::fp16 ? 0x1p7 : 0x1p63) / std::sqrt(cols);
  std::vector<bool> ordinary;
  for (auto row = tensor.values.begin(); row != tensor.values.end(); row += cols) {
    ordinary.push_back(std::all_of(row, row + cols, [&](float x) { return std::abs(x) < limit; }));
  }
  return ordinary;
}

}  // namespace run
