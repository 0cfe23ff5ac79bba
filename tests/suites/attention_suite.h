// What every attention step must pass, whatever its kernels look like. A step's own test file calls these and adds its own.
#pragma once

#include <string>
#include <vector>

#include "common/run/family/any_step.h"
#include "common/run/harness/execute.h"
#include "tests/suites/tiers.h"

namespace suite {

// One request: a resolved shape and the inputs it is tried with.
struct Case {
  problem::Attention shape;
  problem::InputKind inputs = problem::InputKind::normal;
};

// (seq_q, seq_k) of the project's list, with and without causal masks; heads, batch and dims change from one to the next, so
// that each meets many lengths. Every head dim and every head ratio of the list occurs.
std::vector<Case> shape_list(problem::Dtype dtype);

// The list for make test: of large shapes, each is there with a causal mask or without, by turns. And what this leaves out, for
// make test-all.
std::vector<Case> one_mask_each(const std::vector<Case>& list);
std::vector<Case> other_masks(const std::vector<Case>& list);

// A few small, irregular shapes for what is repeated under many schedules.
std::vector<Case> small_shapes(problem::Dtype dtype);

// Packed sequences: lengths from 0 to more than a tile, under every kind of mask; heads and head dims by turns. The shape is
// resolved.
problem::Attention packed(const std::vector<int>& lengths, int dim, problem::Dtype dtype, bool causal = false, int window = 0,
                          int heads = 2, int kv_heads = 1);
std::vector<Case> packed_shapes(const std::vector<int>& dims, problem::Dtype dtype);

// Runs the variant on every case that it supports, in four memory layouts in turn, and requires a clean verdict and no finding.
// Returns how many cases it took; a variant may refuse a dtype, a head dim or a window, and nothing else.
[[nodiscard]] int passes(const run::AttentionVariant& variant, const std::vector<Case>& cases, std::uint64_t seed = 1);

// Cases that the variant supports, under these seeds in every completion mode: all of them each time, or one by turns.
void passes_under_schedules(const run::AttentionVariant& variant, const std::vector<Case>& cases, Seeds seeds, bool all_cases);

// Bitwise: keys and values after position i do not change rows up to i.
void is_causal(const run::AttentionVariant& variant, const problem::Attention& shape);

// Bitwise: what one batch entry or head computes does not depend on the others.
void heads_are_independent(const run::AttentionVariant& variant, const problem::Attention& shape);

// Within the tolerance of the verdict: the order of the keys does not matter.
void ignores_key_order(const run::AttentionVariant& variant, const problem::Attention& shape);

// Scores of −∞ add nothing to O and LSE, and hide no NaN of V; +∞ or NaN among a row's scores make that row NaN, and no other.
// The shape has no causal mask and no window.
void takes_infinite_scores(const run::AttentionVariant& variant, const problem::Attention& shape);

// Finite scores of any size and sign, with nothing smaller beside them in their rows: scales from 1e9 to 1e36, keys of −FLT_MAX
// alone.
void takes_scores_far_from_zero(const run::AttentionVariant& variant, problem::Attention shape);

// NaN and infinity in a key touch the rows that see it, and no others.
void contains_nan(const run::AttentionVariant& variant, const problem::Attention& shape);

}  // namespace suite
