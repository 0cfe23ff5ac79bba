// Step 06: the rungs on the way to `tuned_128`. Their instructions need compute capability 9.0.
#include "steps/06_backward/10_column_split.cuh"
#include "steps/06_backward/11_roles.cuh"
#include "steps/06_backward/launches.h"

namespace backward {
namespace {

template <class T, int dim>
struct ColumnSplit : Block<SplitSmem<T, dim>, split_keys, split_threads> {
  static constexpr auto kernel = backward_column_split<T, dim>;
  static constexpr bool by_lane = true;
};
template <class T, int dim>
struct Roles : Block<SplitSmem<T, dim>, split_keys, split_threads> {
  static constexpr auto kernel = backward_roles<T, dim>;
  static constexpr bool by_lane = true;
};

}  // namespace

Rung column_split() { return rung_of<ColumnSplit, 96, 128>(); }
Rung roles() { return rung_of<Roles, 96, 128>(); }

}  // namespace backward
