// Step 07, host side: the backward pass, for step.cu.
#pragma once

#include "common/device/dropout.h"
#include "common/run/family/backward.h"
#include "steps/07_block_sparse/limits.h"

namespace block_sparse {

void plan_backward(const run::BackwardLaunch& l);
void launch_backward(const run::BackwardLaunch& l);
run::Arrays backward_arrays(const problem::Backward& a);
std::size_t backward_bytes(const problem::Backward& a);
void repair(const run::BackwardLaunch& l, const device::AnyShape& shape);  // repair.sm_90.cu
std::string too_large_backward(const problem::Attention& a);               // limits.h

}  // namespace block_sparse
