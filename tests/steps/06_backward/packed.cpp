// Step 06, packed sequences: gradients right under every mask, each sequence for itself; variants that do not take them refuse
// them.
#include "tests/catch.h"
#include "tests/suites/backward_suite.h"

namespace {

using problem::Dtype;

const run::BackwardStep& step() { return run::this_step_as<run::BackwardStep>(); }

suite::BackwardVariants taking_packed(int dim, bool with_scalar = true) {
  suite::BackwardVariants variants;
  for (const run::BackwardVariant& variant : step().variants) {
    if (variant.name == "recompute" && !with_scalar) continue;
    if (!run::refusal(variant.supports, suite::packed({5, 9}, dim, Dtype::fp16))) variants.push_back(variant);
  }
  return variants;
}

void all_pass(const std::vector<int>& dims, Dtype dtype, std::size_t every) {
  const auto list = suite::packed_shapes(dims, dtype);
  std::size_t turn = 0;
  for (const suite::Case& c : list) {
    if (turn++ % every > 0) continue;
    const suite::BackwardCase made = suite::ready(step(), c, turn);
    for (const run::BackwardVariant& variant : taking_packed(c.shape.dim)) {
      if (variant.name != "recompute" || every == 1 || turn % 4 == 1) CHECK(suite::passes(variant, {made}) == 1);
    }
  }
}

}  // namespace

TEST_CASE("gradients of packed sequences of every length, under every mask; other variants refuse them by name") {
  all_pass({32, 128, 64}, Dtype::fp16, 2);
  std::size_t taking = 0;
  for (const run::BackwardVariant& variant : step().variants) {
    if (variant.supports.packed) {
      ++taking;
      continue;
    }
    const int dim = variant.supports.dims.empty() ? 32 : variant.supports.dims.front();
    const auto reason = run::refusal(variant.supports, suite::packed({5, 9}, dim, Dtype::fp16));
    CHECK(reason.value_or("").find("does not support packed sequences (cu-seqlens)") == 0);
  }
  CHECK(taking == 5);
}
TEST_CASE("… all of them, in bf16, and of other head dims", "[.long]") {
  all_pass({64, 96, 40, 32, 128}, Dtype::bf16, 1);
  all_pass({33}, Dtype::fp16, 3);
}

namespace {

void sequences_are_independent(const suite::BackwardVariants& variants, int dim) {
  suite::depends_on_visible_pairs(step(), variants, suite::packed({20, 1, 70, 0, 33}, dim, Dtype::fp16));
}
void nan_stays(const suite::BackwardVariants& variants, int dim) {
  suite::contains_nan(step(), variants, suite::packed({9, 15}, dim, Dtype::fp16, true), false);
}

}  // namespace

// The scalar kernel takes longer than all others together.
TEST_CASE("packed: a token's gradients depend on no other sequence by a bit, NaN stays where it is") {
  for (const int dim : {32, 128}) {
    sequences_are_independent(taking_packed(dim, false), dim);
    nan_stays(taking_packed(dim, dim == 32), dim);
  }
}
TEST_CASE("… and of the scalar variant, packed", "[.long]") {
  const suite::BackwardVariants scalar = {run::variant_named(step(), "recompute")};
  for (const int dim : {32, 128}) sequences_are_independent(scalar, dim);
  nan_stays(scalar, 128);
}
