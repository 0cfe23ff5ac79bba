// What a row softmax computes: y[i, j] = exp(x[i, j]) / Σ_k exp(x[i, k]). A row whose scores are all −∞ gives y = 0.
#pragma once

#include <cstdint>
#include <string>

#include "common/problem/dtype.h"
#include "common/problem/tensor.h"

namespace problem {

struct Softmax {
  int rows = 1;
  int cols = 1;
  int ldx = 0;                // elements from one row of x to the next, cols or more; resolve() turns 0 into cols
  int ldy = 0;                // of y, the same
  Dtype dtype = Dtype::fp32;  // of x and y; sums are fp32

  double flops() const;             // 5 an element: maximum, subtract, exp, add, multiply
  double compulsory_bytes() const;  // x read once, y written once; without what lies between rows
  bool operator==(const Softmax&) const = default;
};

// Fills in what is 0. Throws std::invalid_argument, naming the field, where one is out of range; then no product of extents
// overflows a std::int64_t, not even in bytes.
Softmax resolve(Softmax shape);

std::string to_string(const Softmax& shape);  // "rows 64, cols 1000, ldx 1000, ldy 1000, fp16"

enum class SoftmaxInputKind {
  normal,      // N(0, 1)
  large,       // N(0, 100²): without the maximum, exp overflows
  one_hot,     // one score of a row 16 above what the others come from: it takes nearly all
  uniform,     // all scores of a row equal: y = 1 / cols
  descending,  // falls by 120 along the row: a maximum that starts too high leaves nothing
};

// x [rows, cols], the same values on every machine and compiler (counter-based generator); rounded to shape.dtype.
Tensor make_inputs(const Softmax& shape, std::uint64_t seed, SoftmaxInputKind kind = SoftmaxInputKind::normal);

}  // namespace problem
