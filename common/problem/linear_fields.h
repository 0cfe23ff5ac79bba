// The fields of a linear layer that are whole numbers.
#pragma once

#include <string_view>

#include "common/problem/linear.h"

namespace problem {

using LinearMember = int Linear::*;  // named, because g++ warns of what nvcc makes of the type where it is spelled out

// A row each: the flag (with - for each _), its help, the key in JSON and what is printed follow from the row.
struct LinearField {
  std::string_view name;
  LinearMember value;
  const char* help;
  int least = 1;
};
inline constexpr LinearField linear_fields[] = {
    {"samples", &Linear::samples, "batch entries, the outer level"},
    {"channels", &Linear::channels, "batch entries in a sample, the inner level"},
    {"weight_samples", &Linear::weight_samples, "samples of the weights, which divide samples (default: as many)"},
    {"weight_channels", &Linear::weight_channels, "channels of the weights, which divide channels (default: as many)"},
    {"m", &Linear::m, "tokens: rows of A and of C"},
    {"n", &Linear::n, "rows of the weights B, columns of C"},
    {"k", &Linear::k, "columns of A and of B: C = A · Bᵀ"},
    {"lda", &Linear::lda, "elements from one row of A to the next (default: k)"},
    {"ldb", &Linear::ldb, "of B (default: k)"},
    {"ldc", &Linear::ldc, "of C (default: n)"},
    {"experts", &Linear::experts, "matrices of weights, of which each token names some (default: 0, a plain product)", 0},
    {"top", &Linear::top, "experts that each token names, at most all", 0},
};

}  // namespace problem
