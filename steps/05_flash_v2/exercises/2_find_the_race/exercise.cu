// Exercise 2 of step 05: K's memory held Q a moment ago. Run it, read the report, mend task.cuh.
#include EXERCISE_KERNEL

run::AnyStep run::this_step() {
  static const AttentionStep step =
      flash_v2::exercise_step("exercise_05_2", "Who still needs the memory?", exercise::flash, sizeof(exercise::Smem));
  return &step;
}
