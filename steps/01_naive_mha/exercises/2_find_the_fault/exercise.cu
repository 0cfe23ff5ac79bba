// Exercise 2 of step 01: the softmax kernel is wrong. Run it, read the simulator's report, mend task.cuh.
#include EXERCISE_KERNEL
#include "../../2_row_per_thread.cuh"
#include "../../host.h"

namespace {

using namespace naive_mha;

void launch_variant(const run::AttentionLaunch& l) {
  const auto shape = l.device_shape();
  const Heads<float> s = as_bhss(l.scratch.get<float>("S"), l.shape);
  const Heads<float> p = as_bhss(l.scratch.get<float>("P"), l.shape);
  const dim3 rows = grid_over(shape.seq_q, shape.heads, shape.batch);
  const dim3 blocks(static_cast<unsigned>(shape.seq_q), static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.batch));
  device::launch(scores_row_per_thread, rows, threads, 0, shape, l.q.as<const float>(), l.k.as<const float>(), s);
  device::launch(exercise::softmax, blocks, exercise::softmax_threads, sizeof(exercise::Smem), shape, read_only(s), p, l.lse);
  device::launch(pv_row_per_thread, rows, threads, 0, shape, read_only(p), l.v.as<const float>(), l.o.as<float>());
}

}  // namespace

const run::AttentionStep& run::this_step() {
  static const AttentionStep step = [] {
    AttentionStep s;
    s.name = "exercise_01_2";
    s.question = "What is wrong with this softmax?";
    s.default_shape.heads = s.default_shape.kv_heads = 2;
    s.default_shape.seq_q = s.default_shape.seq_k = 100;
    s.default_shape.dim = 32;
    s.default_variant = "mended";
    s.variants = {
        {"mended",
         "your mended softmax",
         {},
         [](const Attention&) { return sizeof(exercise::Smem); },
         [](const Attention& a) {
           return std::vector<ScratchNeed>{{"S", score_bytes(a)}, {"P", score_bytes(a)}};
         },
         [](const Attention& a) {
           return std::vector<problem::KernelCost>{problem::scores_cost(a), problem::softmax_cost(a), problem::pv_cost(a)};
         },
         launch_variant}};
    return s;
  }();
  return step;
}
