// The command line of every step of row softmaxes (docs: --help, and the README).
#pragma once

#include "common/run/softmax_step.h"

namespace run {

// Does what the arguments say; returns the exit status (options.h: ExitStatus).
int softmax_main(int argc, char** argv, const SoftmaxStep& step);

}  // namespace run
