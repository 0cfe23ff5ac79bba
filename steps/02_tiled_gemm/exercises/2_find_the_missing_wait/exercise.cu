// Exercise 2 of step 02: a pipeline that reads a tile before it has come. Run it, read the report, mend task.cuh.
#include EXERCISE_KERNEL
#include "../exercise.h"

run::AnyStep run::this_step() {
  using namespace tiled_gemm;
  static const GemmStep step = [] {
    constexpr std::size_t shared_bytes = sizeof(PipelineSmem<__half>);
    const auto launch = [](const GemmLaunch& l) {
      launch_tiles<__half>(l, exercise::gemm, tc_rows, tc_columns, tc_threads, shared_bytes);
    };
    return exercise_step("exercise_02_2", "Which tile does this pipeline not wait for?", 128, 128, 256,
                         {exercise_variant("yours", "your mended pipeline", shared_bytes, launch)});
  }();
  return &step;
}
