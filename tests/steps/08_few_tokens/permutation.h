// What the kernel that sorts pairs by expert leaves in memory (permutation.cu).
#pragma once

#include <vector>

namespace permutation {

struct Sorted {
  std::vector<int> bounds;  // [experts + 1]
  std::vector<int> order;   // of the pairs that name an expert
};

Sorted by_expert(const std::vector<int>& ids, int experts);  // of ids [tokens, 1]: any numbers

}  // namespace permutation
