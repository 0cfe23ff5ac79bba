// A launch of the kernel that sorts pairs, alone.
#include "steps/08_few_tokens/launches.h"
#include "tests/steps/08_few_tokens/permutation.h"

namespace permutation {

using namespace few_tokens;

Sorted by_expert(const std::vector<int>& ids, int experts) {
  const std::size_t bytes = ids.size() * sizeof(int);
  runtime::Buffer given("experts", bytes), order("order", bytes);
  runtime::Buffer bounds("bounds", (static_cast<std::size_t>(experts) + 1) * sizeof(int));
  given.upload(ids.data(), bytes);
  bounds.poison();
  order.poison();
  const Routing routing{given.as<int>(), nullptr, static_cast<int>(ids.size()), 1, experts};
  launch_route(routing, bounds.as<int>(), order.as<int>());
  runtime::synchronize();
  Sorted result{std::vector<int>(static_cast<std::size_t>(experts) + 1), {}};
  bounds.download(result.bounds.data(), bounds.bytes());
  result.order.resize(static_cast<std::size_t>(result.bounds.back()));
  order.download(result.order.data(), result.order.size() * sizeof(int));
  return result;
}

}  // namespace permutation
