// The command line of every step of matrix products (docs: --help, and the README).
#pragma once

#include "common/run/gemm_step.h"

namespace run {

// Does what the arguments say; returns the exit status (options.h: ExitStatus).
int gemm_main(int argc, char** argv, const GemmStep& step);

}  // namespace run
