// The command line of every attention step (docs: --help, and the README).
#pragma once

#include "common/run/step.h"

namespace run {

// Does what the arguments say; returns the exit status (options.h: ExitStatus).
int attention_main(int argc, char** argv, const AttentionStep& step);

}  // namespace run
