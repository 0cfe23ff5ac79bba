// Exercise 4 of step 02: a product on the CUDA cores, with a tile of C in each thread's registers. Yours to write: task.cuh.
#include EXERCISE_KERNEL
#include "../exercise.h"

run::AnyStep run::this_step() {
  using namespace tiled_gemm;
  static const GemmStep step = [] {
    const auto launch = [](const GemmLaunch& l) {
      launch_tiles<float>(l, exercise::gemm, exercise::block_rows, exercise::block_columns, exercise::threads,
                          sizeof(exercise::Smem));
    };
    GemmVariant variant = exercise_variant("register_tile", "your register tile", sizeof(exercise::Smem), launch);
    variant.supports = {.dtypes = {problem::Dtype::fp32}};
    GemmStep made = exercise_step("exercise_02_4", "How many multiply-adds does a value from shared memory serve?", 128, 192,
                                  80, {std::move(variant)});
    made.default_shape.dtype = problem::Dtype::fp32;
    return made;
  }();
  return &step;
}
