// Runs a variant of a row softmax and judges what comes out: what the command line does, and what the tests of a step call.
#pragma once

#include "common/problem/softmax.h"
#include "common/run/execute.h"
#include "common/run/softmax_step.h"
#include "common/run/softmax_truth.h"

namespace run {

// y ("y" [rows, cols]) of one variant, from x [rows, cols] rounded to the shape's dtype. Padding between rows of x is NaN, and
// that of y must stay as it was. `truth` is computed here where it is not given. Throws std::invalid_argument for a request
// that the variant does not support, device::OutOfMemory, device::Error.
Outcome execute(const SoftmaxVariant& variant, const problem::Softmax& shape, const problem::Tensor& x,
                const ExecuteOptions& options = {}, const SoftmaxTruth* truth = nullptr);

}  // namespace run
