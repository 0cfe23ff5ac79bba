// The truth of a row softmax in double precision, and the baseline: the same in fp32. x is [rows, cols], dense, in C order; a
// span of another length throws std::invalid_argument.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/reference/round.h"

namespace reference {

struct SoftmaxSpec {
  int rows = 1;
  int cols = 1;
};

using SoftmaxRows = std::vector<std::int64_t>;
SoftmaxRows all_rows(const SoftmaxSpec& spec);
SoftmaxRows sample_rows(const SoftmaxSpec& spec, int wanted = 64, std::uint64_t seed = 1);  // all where there are no more

// y [rows, cols]: in double, and as an honest implementation in the kernel's dtype gets it: maximum, exp and a sum in the order
// of the columns, all in fp32, then rounded. A row of −∞ gives zeros; +∞ or NaN makes its row NaN.
std::vector<double> softmax(const SoftmaxSpec& spec, const SoftmaxRows& rows, std::span<const float> x);
std::vector<float> softmax_baseline(const SoftmaxSpec& spec, const SoftmaxRows& rows, std::span<const float> x,
                                    Round round = keep_fp32);

// What summing in fp32 can do to a row of any honest implementation [rows]: ½ √cols · u · max y, as for products (gemm.h).
// Nothing in it grows with x: what is rounded is x less the maximum, and an error of the maximum is in all exponentials alike
// and cancels. y [rows, cols] is softmax(); rows of NaN give 0.
std::vector<double> softmax_rounding(const SoftmaxSpec& spec, std::span<const double> y);

}  // namespace reference
