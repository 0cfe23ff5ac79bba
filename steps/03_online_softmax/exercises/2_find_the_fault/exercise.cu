// Exercise 2 of step 03: an online softmax with three faults. Run it, read what is said, mend task.cuh.
#include EXERCISE_KERNEL
#include "../exercise.h"

run::AnyStep run::this_step() {
  static const SoftmaxStep step =
      online_softmax::exercise_step("exercise_03_2", "What is wrong with this softmax?", "yours", "your mended softmax",
                                    exercise::softmax, exercise::threads, sizeof(exercise::Smem));
  return &step;
}
