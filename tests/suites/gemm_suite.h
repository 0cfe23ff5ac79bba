// What every step of matrix products must pass, whatever its kernels look like. A step's own test file calls these and adds its
// own.
#pragma once

#include <vector>

#include "common/run/family/any_step.h"

namespace suite {

// One request: a resolved shape and the inputs it is tried with.
struct GemmCase {
  problem::Gemm shape;
  problem::GemmInputKind inputs = problem::GemmInputKind::normal;
};

// m, n and k of 1, 7, 8, 9, 15, 16, 17, 63, 65, 127, 129 and 1000, each in every place; then batches, a shared A, rows with
// padding, and sums that cancel. Their products are small: about 15 million multiply-adds in all.
std::vector<GemmCase> gemm_shapes(problem::Dtype dtype);

// A few small, irregular shapes for what is repeated under many schedules.
std::vector<GemmCase> small_gemm_shapes(problem::Dtype dtype);

// Runs the variant on every case that it supports, with and without unused rows after each matrix, and requires a clean verdict
// and no finding. Where a case is refused for its strides or its k alone, it runs with both rounded up to what the variant
// takes instead, so that m and n stay ragged. Returns how many cases it took; it may refuse a dtype or a batch, and nothing
// else.
[[nodiscard]] int passes(const run::GemmVariant& variant, const std::vector<GemmCase>& cases, std::uint64_t seed = 1);

// Bitwise: what one batch entry computes does not depend on the others, and a shared A gives what its copies give.
void batches_are_independent(const run::GemmVariant& variant, const problem::Gemm& shape);

// Rows of A in another order give the rows of C in that order, rows of B its columns; k in another order gives the same C. All
// within the tolerance of the verdict.
void follows_permutations(const run::GemmVariant& variant, const problem::Gemm& shape);

// NaN and infinity in a row of A reach that row of C, in a row of B that column, and nothing else by a bit; they are not
// hidden.
void contains_nan(const run::GemmVariant& variant, const problem::Gemm& shape);

}  // namespace suite
