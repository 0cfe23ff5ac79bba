// Step 07, host side: where nvcc's code does not access memory as the source does, so that what the simulator counts is an
// estimate.
#pragma once

#include <vector>

#include "common/run/family/attention.h"
#include "common/run/family/backward.h"

namespace block_sparse {

constexpr const char* adds_once_less = "the last sum of a scan is for a next round: nvcc leaves it out of the last one";
constexpr const char* copies_have_predicates =
    "nvcc puts a predicate on the copies of the next tile, so that those of a tile that is not there count as executed";
constexpr const char* nvcc_narrows = "nvcc reads the part of a Rank that is used, the source all of it";

inline std::vector<run::Estimate> forward_estimates(const std::vector<run::AttentionVariant>& variants) {
  using runtime::Op;
  using runtime::Space;
  std::vector<run::Estimate> estimates{
      {"sparse_test_per_block", Space::global, Op::load, "no head streams by token here, so nothing reads what those let see"},
      {"merge_parts", Space::global, Op::load, nvcc_narrows},
      {"write_lists", Space::global, Op::load, nvcc_narrows},
      run::estimate_of_shuffles("add_up", adds_once_less),
  };
  for (const char* arguments :
       {"Tile64<32, ", "Tile64<64, device::PackedShape", "Tile64<96, device::PackedShape", "Tile64<128, device::PackedShape",
        "Tile64<64, device::Dropped", "Tile64<96, device::Dropped", "Tile64<128, device::Dropped"}) {
    estimates.push_back({.kernel = "sparse_balanced",
                         .space = Space::global,
                         .op = Op::store,
                         .reason = "nvcc gives the stores of two lines of leave_part the name of one",
                         .arguments = arguments});
  }
  for (const run::AttentionVariant& variant : variants) {
    estimates.push_back(
        {"sparse_" + variant.name, Space::shared, Op::load, "nvcc reads a block's facts once, the source twice"});
    estimates.push_back({"sparse_" + variant.name, Space::global, Op::copy_past_l1, copies_have_predicates});
  }
  for (const char* kernel : {"sparse_ordered", "sparse_tokens", "sparse_balanced"}) {
    estimates.push_back(
        {kernel, Space::global, Op::load, "nvcc reads the half of a work item that is used, the source all of it"});
  }
  return estimates;
}
inline std::vector<run::Estimate> backward_estimates(const problem::Backward&) {
  using runtime::Op;
  using runtime::Space;
  std::vector<run::Estimate> estimates{
      {"merge_columns", Space::global, Op::load, nvcc_narrows},
      {"write_lists", Space::global, Op::load, nvcc_narrows},
      {"write_lists", Space::global, Op::store, "nvcc keeps a store that no tile of keys needs"},
      run::estimate_of_shuffles("add_up", adds_once_less),
      {"repair_rows", Space::global, Op::load, "nvcc keeps values in registers, and joins reads of the sequences' ends"},
      {"repair_rows", Space::shared, Op::store,
       "it copies rows that begin anywhere element by element, which happens at no shape that is looked at"},
      {"repair_rows", Space::shared, Op::load,
       "a call has the address of the shape: nvcc no longer knows which space its pointers lead to"},
      {"sparse_backward_128", Space::global, Op::store, "nvcc writes the two numbers of a float2 apart"},
  };
  for (const char* kernel : {"sparse_backward_64", "sparse_backward_128"}) {
    estimates.push_back(
        {kernel, Space::global, Op::load, "where there is no work, nvcc reads half of the work item, the source all of it"});
    estimates.push_back({kernel, Space::shared, Op::load, "nvcc loads LSE and D once for both slices of a warp"});
    estimates.push_back({kernel, Space::global, Op::copy_past_l1, copies_have_predicates});
    estimates.push_back(run::estimate_of_shuffles(
        kernel, "nvcc makes a move to a uniform register (R2UR) of the shuffle that gives all lanes the next entry"));
  }
  return estimates;
}

}  // namespace block_sparse
