// Toy step, host side: what the step offers, and launches.
#include "common/device/dialect.h"
#include "common/run/family/any_step.h"
#include "common/runtime/launch.h"
#include "steps/99_toy/1_row_per_thread.cuh"
#include "steps/99_toy/launches.h"

namespace online_softmax {
run::AnyStep step();  // step 03's, which step.cmake links
}

namespace {

using namespace toy;
using problem::Dtype;
using problem::Softmax;

void launch_row_per_thread(const run::SoftmaxLaunch& l) {
  const auto blocks = static_cast<unsigned>(device::ceil_div(l.shape.rows, threads));
  runtime::launch(row_per_thread, {.grid = blocks, .block = threads}, l.shape.rows, l.shape.cols,
                  static_cast<const float*>(l.x), l.shape.ldx, static_cast<float*>(l.y), l.shape.ldy);
}

std::vector<problem::KernelCost> cost(const Softmax& s) { return {problem::row_softmax_cost(s, "row_per_thread", 3)}; }

std::vector<run::SoftmaxVariant> variants() {
  const run::SoftmaxStep& step_03 = *std::get<const run::SoftmaxStep*>(online_softmax::step());
  run::SoftmaxVariant borrowed = run::variant_named(step_03, "warp_per_row");
  borrowed.name = "borrowed";
  borrowed.idea = "step 03's launch, without its headers";
  return {{.name = "row_per_thread",
           .idea = "one thread a row",
           .supports = {.dtypes = {Dtype::fp32}},
           .cost = cost,
           .launch = launch_row_per_thread},
          {.name = "hopper",
           .idea = "a kernel that is compiled for sm_90a alone",
           .supports = {.dtypes = {Dtype::fp32}},
           .compute_capability = run::only(90),
           .cost = cost,
           .launch = launch_on_hopper},
          borrowed};
}

}  // namespace

namespace toy {

run::AnyStep step() {
  static const run::SoftmaxStep step{.name = "99_toy",
                                     .question = "How little is a step?",
                                     .default_shape = {.rows = 8, .cols = 100},
                                     .default_variant = "row_per_thread",
                                     .variants = variants()};
  return &step;
}

}  // namespace toy
