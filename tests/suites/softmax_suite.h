// What every step of row softmaxes must pass, whatever its kernels look like. A step's own test file calls these and adds its
// own.
#pragma once

#include <vector>

#include "common/run/family/any_step.h"

namespace suite {

// One request: a resolved shape and the inputs it is tried with.
struct SoftmaxCase {
  problem::Softmax shape;
  problem::SoftmaxInputKind inputs = problem::SoftmaxInputKind::normal;
};

// Columns of 1, 2, 31, 32, 33, 127, 128, 255, 1000, 1023, 1025, 4096, 4097, 20,000 and 70,000; rows of 1, 3, 17 and 129; rows
// with padding, so that they start at any multiple of an element, in x and y alike or not; every kind of input.
std::vector<SoftmaxCase> softmax_shapes(problem::Dtype dtype);

// A few small, irregular shapes for what is repeated under many schedules.
std::vector<SoftmaxCase> small_softmax_shapes(problem::Dtype dtype);

// Runs the variant on every case and requires a clean verdict and no finding. Returns how many cases it took; it may refuse a
// dtype, and nothing else.
[[nodiscard]] int passes(const run::SoftmaxVariant& variant, const std::vector<SoftmaxCase>& cases, std::uint64_t seed = 1);

// Bitwise: what a row gives does not depend on the other rows, where it starts at a multiple of 16 bytes as it does alone.
void rows_are_independent(const run::SoftmaxVariant& variant, const problem::Softmax& shape);

// The columns of x in another order give those of y in that order, and x + 3 gives the same y. Within the tolerance of the
// verdict.
void follows_permutations_and_shifts(const run::SoftmaxVariant& variant, const problem::Softmax& shape);

// The largest numbers of the dtype, and those whose product with log2(e) fp32 cannot hold, are scores like any other: alone, as
// masks, and beside each other. The shape has 4 columns or more.
void takes_the_largest_scores(const run::SoftmaxVariant& variant, const problem::Softmax& shape);

// NaN and +∞ in a row reach all of it, and are not hidden; a row of −∞ alone gives 0, and −∞ beside others gives 0 in its
// place. Other rows do not change by a bit.
void contains_nan_and_infinity(const run::SoftmaxVariant& variant, const problem::Softmax& shape, bool last_row_too = true);

}  // namespace suite
