// What the kernels that sort pairs by expert leave in memory (permutation.cu).
#pragma once

#include <vector>

namespace permutation {

struct Sorted {
  std::vector<int> bounds;  // [experts + 1]
  std::vector<int> order;   // of the pairs that name an expert
};

// Of ids [tokens, 1], any numbers; by `route`, or by the three launches that are for many.
Sorted by_expert(const std::vector<int>& ids, int experts, bool many);

}  // namespace permutation
