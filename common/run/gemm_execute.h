// Runs a variant of a matrix product and judges what comes out: what the command line does, and what the tests of a step call.
#pragma once

#include "common/problem/gemm.h"
#include "common/run/execute.h"
#include "common/run/gemm_step.h"
#include "common/run/gemm_truth.h"

namespace run {

// C ("c" [batch, m, n]) of one variant. The inputs are rounded to the shape's dtype. Padding between rows of A and B is NaN,
// and that of C must stay as it was; with options.layout.gaps so must three more rows after each matrix. `truth` is computed
// here where it is not given. Throws std::invalid_argument for a request that the variant does not support,
// device::OutOfMemory, device::Error.
Outcome execute(const GemmVariant& variant, const problem::Gemm& shape, const problem::GemmInputs& inputs,
                const ExecuteOptions& options = {}, const GemmTruth* truth = nullptr);

}  // namespace run
