// Step 06 with another warp in its --trace than warp 0: trace_warp WARP OPTIONS. For kernels whose warps have roles
// (tests/steps/06_backward/traces.py). The line of the launch names warp 0 all the same.
#include <charconv>
#include <cstring>
#include <iostream>

#include "common/run/family/any_step.h"
#include "common/simt/trace.h"

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): this_step() holds a step
  unsigned warp = 0;
  const char* const end = argc > 1 ? argv[1] + std::strlen(argv[1]) : nullptr;
  if (argc < 2 || std::from_chars(argv[1], end, warp).ptr != end || end == argv[1]) {
    std::cerr << "usage: trace_warp WARP OPTIONS, as of 06_backward\n";
    return 2;
  }
  simt::trace_warp(warp);
  return std::visit([&](const auto* step) { return run::step_main(argc - 1, argv + 1, *step); }, run::this_step());
}
