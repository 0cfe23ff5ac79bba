// What every step of linear layers must pass, whatever its kernels look like. A step's own test file calls these and adds its
// own.
#pragma once

#include <vector>

#include "common/run/family/any_step.h"

namespace suite {

// One request: a resolved shape and the inputs it is tried with.
struct LinearCase {
  problem::Linear shape;
  problem::LinearInputKind inputs = problem::LinearInputKind::normal;
};

// Tokens of 1 … 16 with ragged n and k; each type of tokens and of C, a bias and each activation; both levels of the batch,
// with and without shared weights; rows with padding, and sums that cancel.
std::vector<LinearCase> linear_shapes(problem::Dtype dtype);

// The variants of plain products: those that are not routed to experts.
std::vector<run::LinearVariant> plain_variants(const run::LinearStep& step);

// A few small, irregular shapes for what is repeated under many schedules. One has a single token.
std::vector<LinearCase> small_linear_shapes(problem::Dtype dtype);

// Runs the variant on every case, in five layouts by turns: dense; with gaps behind matrices and samples; tokens first; gaps
// and rows of odd length; tokens first with gaps. Requires a clean verdict and no finding. Where a case or a layout is refused
// for its k, its rows or its number of tokens, it runs with those changed to what the variant takes. Returns how many cases it
// took: all but those whose tokens are of a type that the variant refuses.
[[nodiscard]] int passes(const run::LinearVariant& variant, const std::vector<LinearCase>& cases, std::uint64_t seed = 1);

// Bitwise: what one batch entry computes does not depend on the others, and shared weights give what copies of them give.
void entries_are_independent(const run::LinearVariant& variant, const problem::Linear& shape);

// Bitwise: tokens in another order give the rows of C in that order. Rows of B in another order give its columns, k in another
// order the same C, within the tolerance of the verdict.
void follows_permutations(const run::LinearVariant& variant, const problem::Linear& shape);

// NaN, ±∞ and −FLT_MAX (the weights' type's lowest number) at the first, a middle and the last place: of A they reach one row
// of C, of B and of the bias one column of the entries that share it, and nothing else by a bit. Without an
// activation they are not hidden; with one, the verdict says what they become.
void contains_non_finite(const run::LinearVariant& variant, const problem::Linear& shape);

}  // namespace suite
