// Step 07, host side: where nvcc's code does not access memory as the source does, so that what the simulator counts is an
// estimate.
#pragma once

#include <vector>

#include "common/run/family/attention.h"
#include "common/run/family/backward.h"

namespace block_sparse {

constexpr const char* nvcc_narrows = "nvcc reads the part of a Rank that is used, the source all of it";

inline std::vector<run::Estimate> forward_estimates(const std::vector<run::AttentionVariant>& variants) {
  using runtime::Op;
  using runtime::Space;
  std::vector<run::Estimate> estimates{
      {"sparse_test_per_block", Space::global, Op::load, "no head streams by token here, so nothing reads what those let see"},
      {"merge_parts", Space::global, Op::load, nvcc_narrows},
      {"write_lists", Space::global, Op::load, nvcc_narrows},
      {.kernel = "sparse_balanced",
       .space = Space::global,
       .op = Op::store,
       .reason = "nvcc gives the stores of two lines of leave_part the name of one",
       .arguments = "Tile64<"},
  };
  for (const run::AttentionVariant& variant : variants) {
    estimates.push_back(
        {"sparse_" + variant.name, Space::shared, Op::load, "nvcc reads a block's facts once, the source twice"});
  }
  for (const char* kernel : {"sparse_ordered", "sparse_tokens", "sparse_balanced"}) {
    estimates.push_back(
        {kernel, Space::global, Op::load, "nvcc reads the half of a work item that is used, the source all of it"});
  }
  return estimates;
}
inline std::vector<run::Estimate> backward_estimates(const problem::Backward& a) {
  using runtime::Op;
  using runtime::Space;
  std::vector<run::Estimate> estimates{
      {"merge_columns", Space::global, Op::load, nvcc_narrows},
      {"write_lists", Space::global, Op::load, nvcc_narrows},
      {"write_lists", Space::global, Op::store, "nvcc keeps a store that no tile of keys needs"},
      {"repair_sparse", Space::global, Op::load, "nvcc keeps values in registers, and joins reads of the sequences' ends"},
      {"sparse_backward_128", Space::global, Op::store, "nvcc writes the two numbers of a float2 apart"},
  };
  if ((a.dim == 64 && !a.is_packed()) || (a.dim == 32 && a.is_packed() && a.dropout > 0)) {
    estimates.push_back(
        {"sparse_backward_64", Space::global, Op::copy_past_l1,
         "nvcc puts a predicate on the copies of the next tile, so that those of a tile that is not there count "
         "as executed"});
  }
  return estimates;
}

}  // namespace block_sparse
