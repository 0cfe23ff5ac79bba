// Exercise 3 of step 08: a product over experts that loses tokens. Run it, read the report, mend task.cuh.
#include EXERCISE_KERNEL
#include "../exercise.h"

namespace {

using namespace few_tokens;
using problem::Linear;

run::Arrays sums_array(const Linear& g) { return {run::scratch("sums", problem::Dtype::fp32, {g.pairs(), g.n})}; }

void launch(const run::LinearLaunch& l) {
  const Linear& g = l.shape;
  const Routing routing{l.experts, l.routing, g.m, g.top, g.experts};
  const auto o = operands<__half, __half>(l);
  float* sums = l.arrays.get<float>("sums");
  runtime::launch(exercise::product,
                  {.grid = dim3(static_cast<unsigned>(ceil_div(g.n, exercise::Tile::rows)), static_cast<unsigned>(g.experts)),
                   .block = exercise::Tile::threads,
                   .shared_bytes = sizeof(exercise::Smem)},
                  o.shape, routing, o.tokens, o.weights, sums);
  runtime::launch(combine<__half>, {.grid = dim3(static_cast<unsigned>(g.m)), .block = combine_threads}, routing, g.n,
                  static_cast<const float*>(sums), o.epilogue);
}

std::vector<problem::KernelCost> costs(const Linear& g) {
  const auto sums = static_cast<double>(run::scratch_bytes(sums_array(g)));
  problem::KernelCost product = problem::linear_cost(g, "product");
  const problem::KernelCost combine = {"combine", 2 * static_cast<double>(g.pairs()) * g.n, sums, product.bytes_written};
  product.bytes_written = sums;
  return {product, combine};
}

}  // namespace

run::AnyStep run::this_step() {
  static const LinearStep step =
      exercise_step("exercise_08_3", "Which pairs does nobody multiply?", {.m = 160, .n = 70, .k = 64, .experts = 4, .top = 2},
                    {.name = "yours",
                     .idea = "each block lists the pairs of its expert",
                     .supports = {.experts = true},
                     .shared_bytes = [](const Linear&) { return sizeof(exercise::Smem); },
                     .scratch = sums_array,
                     .cost = costs,
                     .launch = launch});
  return &step;
}
