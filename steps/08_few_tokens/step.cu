// Step 08, host side: what the step offers, sizes, launches.
#include "common/run/family/any_step.h"
#include "steps/08_few_tokens/01_thread_per_row.cuh"
#include "steps/08_few_tokens/02_warp_per_row.cuh"
#include "steps/08_few_tokens/host.h"

namespace {

using namespace few_tokens;
using problem::Dtype;
using problem::Linear;
using run::LinearLaunch;
using run::LinearSupport;
using run::LinearVariant;

// A launch of kernel(W{}, A{}, tokens), the kernel for these types and so many tokens.
template <class Kernel>
void launch(const LinearLaunch& l, dim3 grid, int threads, Kernel kernel) {
  with_types(l.shape, [&]<class W, class A>(W weight, A token) {
    with_tokens(l.shape.m, [&](auto tokens) {
      const auto o = operands<W, A>(l);
      runtime::launch(kernel(weight, token, tokens), {.grid = grid, .block = static_cast<unsigned>(threads)}, o.shape, o.tokens,
                      o.weights, o.epilogue);
    });
  });
}

void launch_thread_per_row(const LinearLaunch& l) {
  launch(l, grid_of(l.shape, thread_rows), thread_rows,
         []<class W, class A, int TOK>(W, A, device::Constant<TOK>) { return thread_per_row<W, A, TOK>; });
}

void launch_warp_per_row(const LinearLaunch& l) {
  launch(l, grid_of(l.shape, warp_rows), 32 * warp_rows,
         []<class W, class A, int TOK>(W, A, device::Constant<TOK>) { return warp_per_row<W, A, TOK>; });
}

auto cost_of(const char* kernel) {
  return [kernel](const Linear& g) { return std::vector{problem::linear_cost(g, kernel)}; };
}

const LinearSupport any_rows = {.max_m = most_tokens};

const std::vector<LinearVariant> variants = {
    {.name = "thread_per_row",
     .idea = "one thread per row of the weights: 32 lanes read 32 rows",
     .supports = any_rows,
     .cost = cost_of("thread_per_row"),
     .launch = launch_thread_per_row},
    {.name = "warp_per_row",
     .idea = "a warp per row, lanes on neighbouring elements: whole sectors",
     .supports = any_rows,
     .cost = cost_of("warp_per_row"),
     .launch = launch_warp_per_row},
};

}  // namespace

namespace few_tokens {

run::AnyStep step() {
  static const run::LinearStep step{.name = "08_few_tokens",
                                    .question = "How fast is a linear layer when there are only a few tokens?",
                                    .default_shape = {.m = 7, .n = 896, .k = 896},
                                    .default_variant = "warp_per_row",
                                    .variants = variants};
  return &step;
}

}  // namespace few_tokens
