// Exercise 3 of step 02: B's fragments, from rows of 64 bytes, without bank conflicts. Yours to write: task.cuh.
#include EXERCISE_KERNEL
#include "../exercise.h"

run::AnyStep run::this_step() {
  using namespace tiled_gemm;
  static const GemmStep step = [] {
    const auto launch = [](const GemmLaunch& l) {
      launch_tiles<__half>(l, exercise::gemm, tc_rows, tc_columns, tc_threads, sizeof(exercise::Smem));
    };
    return exercise_step("exercise_02_3", "Which 16 bytes does each lane ask for, and where do they lie?", 128, 128, 64,
                         {exercise_variant("b_load", "your load of B", sizeof(exercise::Smem), launch)});
  }();
  return &step;
}
