// Exercise 2 of step 04: Algorithm 1 is wrong. Look at what is wrong where, and mend task.cuh.
#include "../exercise.h"
#include EXERCISE_KERNEL

run::AnyStep run::this_step() {
  static const AttentionStep step = [] {
    AttentionVariant variant;
    variant.name = "yours";
    variant.idea = "your mended Algorithm 1";
    return flash_v1::exercise_step("exercise_04_2", "What is wrong with this Algorithm 1?", variant,
                                   exercise::mended_algorithm_1);
  }();
  return &step;
}
