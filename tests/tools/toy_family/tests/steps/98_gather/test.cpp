// Toy step of the toy family: every variant is right.
#include "common/run/family/any_step.h"
#include "tests/catch.h"

TEST_CASE("every variant is right") {
  for (const run::GatherVariant& variant : run::this_step_as<run::GatherStep>().variants) {
    for (const int ids : {1, 33, 400}) {
      const run::Gather g{.rows = 100, .cols = 35, .ids = ids, .dtype = problem::Dtype::bf16};
      const run::Outcome outcome = run::execute(variant, g, run::make_inputs(g, 1));
      INFO(outcome.verdict->reason());
      CHECK(outcome.pass());
    }
  }
}
