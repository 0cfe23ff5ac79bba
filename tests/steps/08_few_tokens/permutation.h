// What the kernels that sort pairs by expert leave in memory (permutation.cu).
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

namespace permutation {

struct Sorted {
  std::vector<int> bounds;  // [experts + 1]
  std::vector<int> order;   // of the pairs that name an expert
  bool operator==(const Sorted&) const = default;
};

// Of ids [tokens, 1], any numbers; by `route`, or by the three launches that are for many.
Sorted by_expert(const std::vector<int>& ids, int experts, bool many);

// The same by std::stable_sort.
inline Sorted by_stable_sort(const std::vector<int>& ids, int experts) {
  const auto names_none = [&](int pair) { return ids[pair] < 0 || ids[pair] >= experts; };
  Sorted sorted{std::vector<int>(experts + 1), std::vector<int>(ids.size())};
  std::iota(sorted.order.begin(), sorted.order.end(), 0);
  std::erase_if(sorted.order, names_none);
  std::stable_sort(sorted.order.begin(), sorted.order.end(), [&](int x, int y) { return ids[x] < ids[y]; });
  for (const int pair : sorted.order) ++sorted.bounds[ids[pair] + 1];
  std::partial_sum(sorted.bounds.begin(), sorted.bounds.end(), sorted.bounds.begin());
  return sorted;
}

// Ids of all experts, and some that are nobody's.
inline std::vector<int> scattered(int pairs, int experts) {
  std::vector<int> ids(pairs);
  for (int i = 0; i < pairs; ++i) ids[i] = static_cast<int>(i * 2654435761u >> 7) % (experts + 3) - 1;
  return ids;
}

}  // namespace permutation
