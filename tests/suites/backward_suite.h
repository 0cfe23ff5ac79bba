// What every step of attention's backward pass must pass, whatever its kernels look like. A step's own test file calls these
// and adds its own. Shapes are those of attention_suite.h.
#pragma once

#include <memory>
#include <vector>

#include "common/problem/backward.h"
#include "common/run/family/any_step.h"
#include "common/run/harness/execute.h"
#include "tests/suites/attention_suite.h"

namespace suite {

// A case made ready, once for all variants: inputs, with O and LSE of the step's forward pass, and what dQ, dK and dV must be.
struct BackwardCase {
  problem::Backward shape;
  problem::BackwardInputs inputs;
  std::shared_ptr<const run::BackwardTruth> truth;
};

// Of these Q, K, V and dO; O and LSE are made. The shape is resolved.
BackwardCase ready(const run::BackwardStep& step, const problem::Attention& shape, problem::BackwardInputs inputs);
BackwardCase ready(const run::BackwardStep& step, const Case& c, std::uint64_t seed = 1);
std::vector<BackwardCase> ready(const run::BackwardStep& step, const std::vector<Case>& cases);  // seeds from 1 on

// One run; checks that it has a clean verdict and no finding.
run::Outcome clean(const run::BackwardVariant& variant, const BackwardCase& c, const run::ExecuteOptions& options = {});

// Runs the variant on every case that it supports, in four memory layouts in turn, and checks for a clean verdict and no
// finding. Returns how many cases it took; a variant may refuse a dtype and a head dim, and nothing else.
[[nodiscard]] int passes(const run::BackwardVariant& variant, const std::vector<BackwardCase>& cases);

// Cases that the variant supports, under these seeds in every completion mode: all of them each time, or one by turns. Its dK
// and dV have the same bits under all of them, and its dQ where the variant says that it is deterministic.
void passes_under_schedules(const run::BackwardVariant& variant, const std::vector<BackwardCase>& cases, Seeds seeds,
                            bool all_cases);

// Two runs, under two seeds of the simulator, give dK and dV the same bits, and dQ where the variant says that it is
// deterministic.
void repeats(const run::BackwardVariant& variant, const BackwardCase& c);

// ---- properties, of those of the variants that support the shape; what a run is compared with is made once for all ----

using BackwardVariants = std::vector<run::BackwardVariant>;

// Bitwise: dK and dV of a key do not depend on queries that do not see it, nor on keys that share no query with it; dQ of a
// query does not depend on other queries, nor on keys that it does not see. dQ is compared where the variant is deterministic.
// A mask must hide some pairs.
void depends_on_visible_pairs(const run::BackwardStep& step, const BackwardVariants& variants, const problem::Attention& shape);

// Bitwise: what one batch entry or one key/value head with its query heads computes does not depend on the others. dQ is
// compared where the variant is deterministic.
void heads_are_independent(const run::BackwardStep& step, const BackwardVariants& variants, const problem::Attention& shape);

// A query that sees no key has dQ = 0, a key that no query sees has dK = dV = 0: exactly, whatever NaN is in these rows. The
// shape has such rows.
void empty_rows_are_zero(const run::BackwardStep& step, const BackwardVariants& variants, const problem::Attention& shape);

// NaN and infinity in one row of Q, K, V or dO reach the gradients that depend on it, and no others: the truth says which. The
// row is the first, the middle and the last one, or one of them by turns.
void contains_nan(const run::BackwardStep& step, const BackwardVariants& variants, const problem::Attention& shape,
                  bool all_rows);

// Gradients made from an O or an LSE that is not that of the inputs are rejected, and the verdict names the tensor.
void rejects_wrong_forward(const run::BackwardStep& step, const BackwardVariants& variants, const problem::Attention& shape);

}  // namespace suite
