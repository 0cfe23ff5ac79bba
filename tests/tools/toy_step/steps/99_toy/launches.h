// Toy step: the launch of the file that is compiled for Hopper alone.
#pragma once

#include "common/run/family/softmax.h"

namespace toy {

void launch_on_hopper(const run::SoftmaxLaunch& l);

}  // namespace toy
