// Step 06, host side: which of the simulator's counts only estimate what an H200 counts, and why.
#pragma once

#include <vector>

#include "common/run/family/backward.h"

namespace backward {

// Where nvcc's code does not access memory as the source does.
inline std::vector<run::Estimate> estimates(const problem::Backward& a) {
  std::vector<run::Estimate> estimates{
      {"backward_recompute", runtime::Space::shared, runtime::Op::load,
       "nvcc unrolls the sums, and reads neighbouring elements at once"},
      {.kernel = "backward_recompute",
       .space = runtime::Space::global,
       .op = runtime::Op::load,
       .reason = "nvcc reads D once for dS without dropout, which nobody needs, and for dS with it",
       .arguments = "Dropped"},
  };
  for (const char* kernel :
       {"gradient_of_keys", "backward_one_kernel", "gradient_of_queries", "gradient_of_queries_32", "repair_rows"}) {
    estimates.push_back({kernel, runtime::Space::global, runtime::Op::load,
                         "nvcc gives loads of LSE and D the names of other lines, so that nothing holds them to the source"});
  }
  estimates.push_back({"repair_rows", runtime::Space::shared, runtime::Op::store,
                       "it copies rows that begin anywhere element by element, which happens at no shape that is looked at"});
  estimates.push_back({"add_parts", runtime::Space::global, runtime::Op::load,
                       "it reads a flag where a sum is not finite, which happens at no shape that is looked at"});
  for (const char* kernel : {"backward_transposed", "backward_pipeline", "backward_any_dim"}) {
    estimates.push_back({kernel, runtime::Space::shared, runtime::Op::matrix_load,
                         "nvcc loads a fragment of dS once for several groups of columns"});
  }
  estimates.push_back({.kernel = "backward_tuned_64",
                       .space = runtime::Space::shared,
                       .op = runtime::Op::matrix_load,
                       .reason = "without dQ, nvcc keeps fragments of K from one part of a tile to the next",
                       .arguments = ", false, "});
  for (const char* kernel : {"backward_keys_32", "backward_tuned_64", "backward_column_split", "backward_roles"}) {
    estimates.push_back(
        {kernel, runtime::Space::shared, runtime::Op::load, "nvcc loads LSE and D once for all slices of a warp"});
  }
  for (const char* kernel : {"backward_pipeline", "backward_keys_32", "backward_tuned_64", "backward_column_split",
                             "backward_roles", "backward_tuned_128"}) {
    estimates.push_back(
        {kernel, runtime::Space::global, runtime::Op::copy_past_l1,
         "nvcc puts a predicate on the copies of the next tile, so that those of a tile that is not there count "
         "as executed"});
  }
  if (a.dtype != problem::Dtype::fp32 && a.dropout == 0 && (a.dim > 128 || (a.is_packed() && a.dim <= 64))) {
    estimates.push_back({"backward_recompute", runtime::Space::global, runtime::Op::store,
                         "nvcc writes a warp's rows without a loop, and names one line for several"});
  }
  return estimates;
}

}  // namespace backward
