// Exercise 4 of step 03: rows in parts, a block for each, merged by a second kernel. Yours to write: task.cuh.
#include EXERCISE_KERNEL
#include "common/run/family/any_step.h"
#include "common/runtime/launch.h"

namespace {

using problem::Attention;
using problem::Dtype;

std::int64_t rows_of(const Attention& a) { return std::int64_t{a.batch} * a.heads * a.seq_q; }
int parts_of(const Attention& a) { return device::ceil_div(a.seq_k, exercise::part_keys); }

run::Arrays states(const Attention& a) {
  return {run::scratch("m and l", Dtype::fp32, {rows_of(a), parts_of(a), 2}),
          run::scratch("O of parts", Dtype::fp32, {rows_of(a), parts_of(a), a.dim})};
}

void launch_variant(const run::AttentionLaunch& l) {
  const auto shape = l.device_shape();
  const int parts = parts_of(l.shape);
  const auto rows = static_cast<unsigned>(rows_of(l.shape));
  float2* ml = l.arrays.get<float2>("m and l");
  float* o_parts = l.arrays.get<float>("O of parts");
  runtime::launch(exercise::part_states, {.grid = rows * parts, .block = 32, .shared_bytes = sizeof(exercise::Smem)}, shape,
                  parts, l.q.as<const float>(), l.k.as<const float>(), l.v.as<const float>(), ml, o_parts);
  runtime::launch(exercise::merge_parts, {.grid = rows, .block = 32}, shape, parts, static_cast<const float2*>(ml),
                  static_cast<const float*>(o_parts), l.o.as<float>(), l.lse);
}

std::vector<problem::KernelCost> cost(const Attention& a) {
  const problem::KernelCost whole = problem::flash_cost(a);
  const auto rows = static_cast<double>(rows_of(a));
  const double state_bytes = rows * parts_of(a) * sizeof(float) * (a.dim + 2.0);
  return {{"part_states", whole.flops, whole.bytes_read, state_bytes},
          {"merge_parts", 0, state_bytes, rows * sizeof(float) * (a.dim + 1.0)}};
}

}  // namespace

run::AnyStep run::this_step() {
  static const AttentionStep step = [] {
    AttentionVariant variant;
    variant.name = "split";
    variant.idea = "your two kernels";
    variant.shared_bytes = [](const Attention&) { return sizeof(exercise::Smem); };
    variant.scratch = states;
    variant.cost = cost;
    variant.launch = launch_variant;
    AttentionStep made;
    made.name = "exercise_03_4";
    made.question = "How do several blocks share one row?";
    made.default_shape = {.heads = 2, .kv_heads = 2, .seq_q = 3, .seq_k = 500, .dim = 32};
    made.default_variant = variant.name;
    made.variants = {std::move(variant)};
    return made;
  }();
  return &step;
}
