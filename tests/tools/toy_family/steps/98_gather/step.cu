// Toy step of the toy family, host side: what the step offers, and launches.
#include "common/device/dialect.h"
#include "common/device/dispatch.h"
#include "common/run/family/any_step.h"
#include "common/runtime/launch.h"
#include "steps/98_gather/1_warp_per_row.cuh"

namespace {

using namespace gather;

void launch_warp_per_row(const run::GatherLaunch& l) {
  const auto rows = static_cast<unsigned>(l.shape.rows);
  runtime::launch(count_rows, {.grid = 1, .block = 32}, l.shape.rows, l.shape.ids, l.ids, l.taken, l.missed_count, l.missed);
  device::with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
    const T* x = static_cast<const T*>(l.x);
    runtime::launch(take_rows<T>, {.grid = static_cast<unsigned>(device::ceil_div(l.shape.ids, warps)), .block = 32 * warps},
                    l.shape.ids, l.shape.cols, x, l.factors, l.ids, l.y);
    runtime::launch(copy_rest<T>, {.grid = rows, .block = 32}, l.shape.cols, x, l.missed_count, l.missed,
                    static_cast<T*>(l.rest));
  });
}

std::vector<problem::KernelCost> cost(const run::Gather& g) {
  const double elements = double(g.ids) * g.cols;
  return {{"count_rows", 0, g.ids * 4.0, g.rows * 8.0 + 4},
          {"take_rows", elements, elements * 2 + g.cols + g.ids * 4.0, elements * 4},
          {"copy_rest", 0, g.rows * (2.0 * g.cols + 4) + 4, g.rows * 2.0 * g.cols}};
}

std::vector<run::GatherVariant> variants() {
  return {run::GatherVariant{.name = "warp_per_row", .idea = "one warp a row", .cost = cost, .launch = launch_warp_per_row}};
}

}  // namespace

namespace gather {

run::AnyStep step() {
  static const run::GatherStep step{.name = "98_gather",
                                    .question = "How little is a family?",
                                    .default_shape = {.rows = 40, .cols = 33, .ids = 17},
                                    .default_variant = "warp_per_row",
                                    .variants = variants()};
  return &step;
}

}  // namespace gather
