// Step 05, packed sequences: right under every mask, each sequence for itself; variants that do not take them refuse them.
#include "tests/catch.h"
#include "tests/suites/attention_suite.h"

namespace {

using problem::Dtype;

const run::AttentionStep& step() { return run::this_step_as<run::AttentionStep>(); }

std::vector<run::AttentionVariant> taking_packed() {
  std::vector<run::AttentionVariant> variants;
  for (const run::AttentionVariant& variant : step().variants) {
    if (variant.supports.packed) variants.push_back(variant);
  }
  return variants;
}

}  // namespace

TEST_CASE("packed sequences of every length, under every mask; other variants refuse them by name") {
  for (const run::AttentionVariant& variant : step().variants) {
    if (variant.supports.packed) {
      const std::vector<int> dims = variant.name == "scalar" ? std::vector{16} : std::vector{32, 64, 128, 40, 96};
      const auto cases = suite::packed_shapes(dims, Dtype::fp16);
      CHECK(suite::passes(variant, cases) == std::ssize(cases));
    } else {
      const auto reason = run::refusal(variant.supports, suite::packed({5, 9}, 32, Dtype::fp16));
      CHECK(reason.value_or("").find("does not support packed sequences (cu-seqlens)") == 0);
    }
  }
  CHECK(taking_packed().size() == 3);
}

TEST_CASE("… in bf16, and in fp32", "[.long]") {
  for (const run::AttentionVariant& variant : taking_packed()) {
    CHECK(suite::passes(variant, suite::packed_shapes({64, 256, 33, 32, 128}, Dtype::bf16)) > 0);
  }
  const auto fp32 = suite::packed_shapes({64, 33}, Dtype::fp32);
  CHECK(suite::passes(step().variants.front(), fp32) == std::ssize(fp32));
}

TEST_CASE("packed: NaN in one sequence stays there, rows that see it excepted") {
  for (const run::AttentionVariant& variant : taking_packed()) {
    suite::contains_nan(variant, suite::packed({20, 1, 70, 0, 33}, 64, Dtype::fp16, true));
    suite::contains_nan(variant, suite::packed({40, 60}, 32, Dtype::bf16, true));
  }
}

TEST_CASE("packed sequences give what each gives alone") {
  const std::vector<int> lengths = {37, 0, 100, 1, 64};
  for (const run::AttentionVariant& variant : taking_packed()) {
    const problem::Attention all = suite::packed(lengths, 32, Dtype::fp16, true);
    const problem::AttentionInputs inputs = problem::make_inputs(all, 5);
    const run::Outcome together = run::execute(variant, all, inputs);
    REQUIRE(together.pass());
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      if (lengths[s] == 0) continue;
      problem::Attention one = all;
      one.cu_seqlens.clear();
      one.seq_q = one.seq_k = lengths[s];
      const auto rows = [&](const problem::Tensor& tensor) {  // of this sequence: [1, heads, length, dim]
        problem::Tensor part({1, tensor.shape[1], lengths[s], 32});
        for (std::int64_t h = 0; h < tensor.shape[1]; ++h) {
          std::copy_n(tensor.values.begin() + (h * all.seq_q + all.cu_seqlens[s]) * 32, lengths[s] * 32,
                      part.values.begin() + h * lengths[s] * 32);
        }
        return part;
      };
      const run::Outcome alone = run::execute(variant, one, {rows(inputs.q), rows(inputs.k), rows(inputs.v)});
      REQUIRE(alone.pass());
      const problem::Tensor expected = alone.output("o"), made = rows(together.output("o"));
      for (std::size_t i = 0; i < made.values.size(); ++i) {
        INFO(variant.name << ", sequence " << s << ", element " << i);
        REQUIRE(made.values[i] == Approx(expected.values[i]).margin(0.004));
      }
    }
  }
}
