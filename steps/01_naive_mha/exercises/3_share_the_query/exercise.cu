// Exercise 3 of step 01: scores with the query row in shared memory. Yours to write: task.cuh.
#include EXERCISE_KERNEL
#include "../../02_row_per_thread.cuh"
#include "../exercise.h"

namespace {

using namespace naive_mha;

void launch_variant(const run::AttentionLaunch& l) {
  const auto shape = l.device_shape();
  const Heads<float> s = as_bhss(l.arrays.get<float>("S"), l.shape);
  const Heads<float> p = as_bhss(l.arrays.get<float>("P"), l.shape);
  const dim3 rows = grid_over(shape.seq_q, shape.heads, shape.batch);
  const dim3 blocks = block_per_row(shape);
  runtime::launch(exercise::scores, {.grid = blocks, .block = exercise::scores_threads, .shared_bytes = sizeof(exercise::Smem)},
                  shape, l.q.as<const float>(), l.k.as<const float>(), s);
  runtime::launch(softmax_row_per_thread, {.grid = rows, .block = threads}, shape, read_only(s), p, l.lse);
  runtime::launch(pv_row_per_thread, {.grid = rows, .block = threads}, shape, read_only(p), l.v.as<const float>(),
                  l.o.as<float>());
}

}  // namespace

run::AnyStep run::this_step() {
  static const AttentionStep step = [] {
    AttentionVariant variant;
    variant.name = "shared_query";
    variant.idea = "your scores kernel";
    variant.shared_bytes = [](const Attention&) { return sizeof(exercise::Smem); };
    variant.launch = launch_variant;
    return exercise_step("exercise_01_3", "How does a block share the row of Q that all its threads need?", 40, variant);
  }();
  return &step;
}
