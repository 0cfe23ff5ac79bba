// Exercise 2 of step 01: the softmax kernel is wrong. Run it, read the simulator's report, mend task.cuh.
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
  runtime::launch(scores_row_per_thread, {.grid = rows, .block = threads}, shape, l.q.as<const float>(), l.k.as<const float>(),
                  s);
  runtime::launch(exercise::softmax,
                  {.grid = blocks, .block = exercise::softmax_threads, .shared_bytes = sizeof(exercise::Smem)}, shape,
                  read_only(s), p, l.lse);
  AttentionShape all_keys = shape;  // O from all of P, also where no key is visible: so whatever P has there shows
  all_keys.causal = false;
  runtime::launch(pv_row_per_thread, {.grid = rows, .block = threads}, all_keys, read_only(p), l.v.as<const float>(),
                  l.o.as<float>());
}

}  // namespace

run::AnyStep run::this_step() {
  static const AttentionStep step = [] {
    AttentionVariant variant;
    variant.name = "yours";
    variant.idea = "your mended softmax";
    variant.shared_bytes = [](const Attention&) { return sizeof(exercise::Smem); };
    variant.launch = launch_variant;
    return exercise_step("exercise_01_2", "What is wrong with this softmax?", 32, variant);
  }();
  return &step;
}
