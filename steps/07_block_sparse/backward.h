// Step 07, host side: the backward pass, for step.cu.
#pragma once

#include "common/run/family/backward.h"

namespace block_sparse {

void launch_backward(const run::BackwardLaunch& l);
run::Arrays backward_arrays(const problem::Backward& a);
std::size_t backward_bytes(const problem::Backward& a);

}  // namespace block_sparse
