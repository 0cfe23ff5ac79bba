// Launches of the kernels that sort pairs, alone.
#include "steps/08_few_tokens/launches.h"
#include "tests/steps/08_few_tokens/permutation.h"

namespace permutation {

using namespace few_tokens;

Sorted by_expert(const std::vector<int>& ids, int experts, bool many) {
  const std::size_t bytes = ids.size() * sizeof(int);
  runtime::Buffer given("experts", bytes), order("order", bytes);
  runtime::Buffer bounds("bounds", (static_cast<std::size_t>(experts) + 1) * sizeof(int));
  given.upload(ids.data(), bytes);
  bounds.poison();
  order.poison();
  const Routing routing{given.as<int>(), nullptr, static_cast<int>(ids.size()), 1, experts};
  if (many) {
    runtime::Buffer counts("counts", sizeof(int) * static_cast<std::size_t>(experts) * parts_of(routing.pairs()));
    counts.poison();
    launch_count_scan_place(routing, counts.as<int>(), bounds.as<int>(), order.as<int>());
    runtime::synchronize();  // before the counts are freed
  } else {
    launch_route(routing, bounds.as<int>(), order.as<int>());
  }
  runtime::synchronize();
  Sorted result{std::vector<int>(static_cast<std::size_t>(experts) + 1), {}};
  bounds.download(result.bounds.data(), bounds.bytes());
  result.order.resize(static_cast<std::size_t>(result.bounds.back()));
  order.download(result.order.data(), result.order.size() * sizeof(int));
  return result;
}

}  // namespace permutation
