// main() of every step.
#include "common/run/family/any_step.h"

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): this_step() holds a step
  return std::visit([&](const auto* step) { return run::step_main(argc, argv, *step); }, run::this_step());
}
