// Step 08: the tensor-core rungs that keep weights in registers.
#include "steps/08_few_tokens/05_row_groups.cuh"
#include "steps/08_few_tokens/launches.h"

namespace few_tokens {
namespace {

void launch_tensor_cores(const run::LinearLaunch& l) {
  with_mma(l.shape, [&]<class W, class A, int TOK>(W, A, device::Constant<TOK>) {
    launch_kernel<W, A>(l, tensor_core_product<W, A, TOK>, grid_of(l.shape, group), tc_threads, sizeof(TensorCoreSmem<TOK>));
  });
}

void launch_row_groups(const run::LinearLaunch& l) {
  with_mma(l.shape, [&]<class W, class A, int TOK>(W, A, device::Constant<TOK>) {
    launch_kernel<W, A>(l, row_groups_product<W, A, TOK, FewRows>, grid_of(l.shape, FewRows::rows), FewRows::threads,
                        sizeof(RowSmem<FewRows, TOK>));
  });
}

}  // namespace

Rung tensor_cores() {
  return {launch_tensor_cores, [](const problem::Linear& g) {
            return with_columns(g.m, [](auto tokens) { return sizeof(TensorCoreSmem<tokens>); });
          }};
}
Rung row_groups() {
  return {launch_row_groups, [](const problem::Linear& g) {
            return with_columns(g.m, [](auto tokens) { return sizeof(RowSmem<FewRows, tokens>); });
          }};
}

}  // namespace few_tokens
