// Exercise 2 of step 07: a loop that walks along the plan's lists. Run it, read the report, mend task.cuh.
#include "../exercise.h"
#include EXERCISE_KERNEL

namespace {

using namespace block_sparse;
using problem::Attention;

void launch(const run::AttentionLaunch& l) {
  const PlanSizes sizes = exercise_sizes(l.shape);
  const Mask mask = device_mask(l);
  launch_plan<QueryRow>(l, sizes, mask, l.device_shape(), false);
  runtime::launch(exercise::walk_lists,
                  {.grid = dim3(static_cast<unsigned>(sizes.rows_of_head), static_cast<unsigned>(l.shape.heads),
                                static_cast<unsigned>(l.shape.batch)),
                   .block = tile_threads,
                   .shared_bytes = sizeof(Smem)},
                  l.device_shape(), mask, Plan{l.arrays.get<int>("tiles"), l.arrays.get<TileList>("lists"), nullptr},
                  l.q.as<const __half>(), l.k.as<const __half>(), l.v.as<const __half>(), l.o.as<__half>(), l.lse);
}

}  // namespace

run::AnyStep run::this_step() {
  static const AttentionStep step = exercise_step(
      "exercise_07_2", "What lies behind a list?",
      {.name = "yours",
       .idea = "the index comes with the copies",
       .scratch = [](const Attention& a) { return plan_arrays(exercise_sizes(a), a); },
       .cost =
           [](const Attention& a) {
             return std::vector<problem::KernelCost>{{"count_tiles"}, {"add_up"}, {"write_lists"}, problem::flash_cost(a)};
           },
       .launch = launch});
  return &step;
}
