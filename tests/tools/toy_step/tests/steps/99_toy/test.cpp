// Toy step: what every step of row softmaxes must pass, at small shapes.
#include "tests/catch.h"
#include "tests/suites/softmax_suite.h"

TEST_CASE("every variant is right") {
  for (const run::SoftmaxVariant& variant : run::this_step_as<run::SoftmaxStep>().variants) {
    const auto cases = suite::small_softmax_shapes(problem::Dtype::fp32);
    CHECK(suite::passes(variant, cases) == static_cast<int>(cases.size()));
  }
}
