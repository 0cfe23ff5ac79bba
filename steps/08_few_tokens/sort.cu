// Step 08: the launches that sort pairs by expert.
#include "steps/08_few_tokens/10_route.cuh"
#include "steps/08_few_tokens/14_count_scan_place.cuh"
#include "steps/08_few_tokens/launches.h"

namespace few_tokens {

void launch_route(const Routing& routing, int* bounds, int* order) {
  runtime::launch(route,
                  {.grid = static_cast<unsigned>(routing.count), .block = route_threads, .shared_bytes = sizeof(RouteSmem)},
                  routing, bounds, order);
}

int parts_of(int pairs) { return ceil_div(pairs, part_pairs); }

void launch_count_scan_place(const Routing& routing, int* counts, int* bounds, int* order) {
  const int parts = parts_of(routing.pairs());
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(ceil_div(routing.count, part_experts)));
  runtime::launch(count_part, {.grid = grid, .block = part_threads, .shared_bytes = sizeof(PartSmem)}, routing, counts);
  runtime::launch(scan_counts, {.grid = 1, .block = scan_threads, .shared_bytes = sizeof(ScanSmem)},
                  std::int64_t{routing.count} * parts, counts, bounds + routing.count);
  runtime::launch(place_part, {.grid = grid, .block = part_threads, .shared_bytes = sizeof(PartSmem)}, routing,
                  static_cast<const int*>(counts), bounds, order);
}

}  // namespace few_tokens
