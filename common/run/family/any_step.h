// A step of any family. Each executable, each test and each library has one step: this_step(), which its build defines.
#pragma once

#include <variant>

#include "common/run/family/attention.h"
#include "common/run/family/backward.h"
#include "common/run/family/gemm.h"
#include "common/run/family/softmax.h"

namespace run {

using AnyStep = std::variant<const AttentionStep*, const GemmStep*, const SoftmaxStep*, const BackwardStep*>;

AnyStep this_step();

// Of a family that is known: this_step_as<GemmStep>().
template <class OneStep>
const OneStep& this_step_as() {
  return *std::get<const OneStep*>(this_step());
}

// Each family's: does what the arguments say; returns the exit status (cli/options.h: ExitStatus).
int step_main(int argc, char** argv, const AttentionStep& step);
int step_main(int argc, char** argv, const GemmStep& step);
int step_main(int argc, char** argv, const SoftmaxStep& step);
int step_main(int argc, char** argv, const BackwardStep& step);

}  // namespace run
