// The forward plan of step 07, as its kernels make it: sparse_plan HEADS TOKENS PATTERN [--causal] [--no-splits]. Prints JSON,
// from which the book draws its pictures (tests/steps/07_block_sparse/traces.py): the work items, in order, with their lists.
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "common/problem/sparse_mask.h"
#include "tests/steps/07_block_sparse/device_plan.h"

namespace {

// [head, first query, tiles right of the first full one, full ones, the others, part, tiles of keys in their order]
void print(const tests::Item& item, bool last) {
  std::cout << "[" << item.head << ", " << item.first_of_tile << ", " << item.right << ", " << item.full << ", " << item.left
            << ", " << item.part << ", [";
  for (std::size_t n = 0; n < item.visits.size(); ++n) std::cout << (n > 0 ? ", " : "") << item.visits[n].tile;
  std::cout << "]]" << (last ? "\n" : ",\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3) {
    std::cerr << "usage: sparse_plan HEADS TOKENS PATTERN [--causal] [--no-splits]\n";
    return EXIT_FAILURE;
  }
  problem::Attention a{.dtype = problem::Dtype::fp16};
  a.heads = a.kv_heads = std::stoi(arguments[0]);
  a.seq_q = a.seq_k = std::stoi(arguments[1]);
  bool splits = true;
  for (std::size_t n = 3; n < arguments.size(); ++n) {
    a.causal = a.causal || arguments[n] == "--causal";
    splits = splits && arguments[n] != "--no-splits";
  }
  a.sparse = problem::make_pattern(arguments[2], a, 128, 128, 1);
  const tests::DevicePlan plan = tests::query_plan(problem::resolve(a), 128, splits);
  std::cout << "[\n";
  for (std::size_t n = 0; n < plan.items.size(); ++n) print(plan.items[n], n + 1 == plan.items.size());
  std::cout << "]\n";
  return EXIT_SUCCESS;
}
