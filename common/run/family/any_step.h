// A step of any family. Each executable, each test and each library has one step: this_step(), which its build defines.
#pragma once

#include <variant>

#include "common/run/family/attention.h"
#include "common/run/family/backward.h"
#include "common/run/family/gemm.h"
#include "common/run/family/linear.h"
#include "common/run/family/softmax.h"

namespace run {

// A family has its header above, and its steps here.
using AnyStep = std::variant<const AttentionStep*, const GemmStep*, const LinearStep*, const SoftmaxStep*, const BackwardStep*>;

AnyStep this_step();

// Of a family that is known: this_step_as<GemmStep>().
template <class OneStep>
const OneStep& this_step_as() {
  return *std::get<const OneStep*>(this_step());
}

}  // namespace run
