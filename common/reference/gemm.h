// The truth of a matrix product, C[m, n] = A[m, k] · B[n, k]ᵀ per batch entry, in double precision, and the baseline: the same
// sums in fp32. Every tensor is dense and in C order; a span of another length throws std::invalid_argument.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/reference/round.h"

namespace reference {

struct GemmSpec {
  int batch = 1;
  int batch_a = 1;  // batch, or 1: A is shared by all batch entries
  int m = 1;
  int n = 1;
  int k = 1;
  // The entry of B that each batch entry of C meets, [batch]; none: B has an entry for each.
  std::vector<std::int64_t> b_of = {};

  std::int64_t b_entry(std::int64_t entry) const { return b_of.empty() ? entry : b_of[entry]; }
};

// Rows of C are numbered through all batch entries: batch entry · m + row.
using GemmRows = std::vector<std::int64_t>;
std::string row_text(const GemmSpec& spec, std::int64_t row);  // "batch 0, row 117"
GemmRows all_rows(const GemmSpec& spec);

// per_batch rows of every batch entry, in order (sample.h says which); all where there are no more.
GemmRows sample_rows(const GemmSpec& spec, int per_batch = 64, std::uint64_t seed = 1);

// C [rows, n], from a [batch_a, m, k] and b [entries of B, n, k]: in double, and as an honest implementation in the kernel's
// dtype gets it: summed in fp32 in the order of k, then rounded.
std::vector<double> product(const GemmSpec& spec, const GemmRows& rows, std::span<const float> a, std::span<const float> b);
std::vector<float> product_baseline(const GemmSpec& spec, const GemmRows& rows, std::span<const float> a,
                                    std::span<const float> b, Round round = keep_fp32);

// What summing in fp32 can do to an element of any honest implementation, whatever its order. All [rows, n], from the norms
// ‖A_i‖ ‖B_j‖ of what is finite: rows of A and of B may differ in size by any factor.
struct ProductRounding {
  // Of C: |C|, or ‖A_i‖ ‖B_j‖ / √k where that is more, which random signs would give; but not more than the row's largest |C|.
  std::vector<double> size;
  std::vector<double> sum;                 // ½ √k · u · ‖A_i‖ ‖B_j‖, as for the scores of attention
  std::vector<std::uint8_t> may_overflow;  // ‖A_i‖ ‖B_j‖ ≥ FLT_MAX, and so may be Σ |a b|
};

// truth is product() of the same rows.
ProductRounding product_rounding(const GemmSpec& spec, const GemmRows& rows, std::span<const float> a, std::span<const float> b,
                                 std::span<const double> truth);

}  // namespace reference
