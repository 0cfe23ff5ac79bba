// Exercise 2 of step 08: tokens that must meet the weights at the same k. Run it, look at C, mend task.cuh.
#include EXERCISE_KERNEL
#include "../exercise.h"

run::AnyStep run::this_step() {
  using namespace few_tokens;
  static const LinearStep step = exercise_step(
      "exercise_08_2", "Which k of a token does a lane load?", {.m = 8, .n = 64, .k = 96},
      {.name = "yours",
       .idea = "one warp, 16 rows by 8 tokens",
       .supports = {.max_m = token_block},
       .cost = [](const problem::Linear& g) { return std::vector{problem::linear_cost(g, "product")}; },
       .launch =
           [](const LinearLaunch& l) { launch_kernel<__half, __half>(l, exercise::product, grid_of(l.shape, group), 32); }});
  return &step;
}
