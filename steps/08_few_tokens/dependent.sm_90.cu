// Step 08: the rungs that begin before the launch before has ended, and the default, which chooses among their tiles. They need
// compute capability 9.0.
#include "steps/08_few_tokens/09_dependent.cuh"
#include "steps/08_few_tokens/choice.h"
#include "steps/08_few_tokens/launches.h"

namespace few_tokens {
namespace {

template <class T>
void launch_rows(const run::LinearLaunch& l, bool dependent) {
  with_mma(l.shape, [&]<class W, class A, int TOK>(W, A, device::Constant<TOK>) {
    const Operands<W, A> o = operands<W, A>(l);
    runtime::launch(dependent_row_groups<W, A, TOK, T>,
                    {.grid = grid_of(l.shape, T::rows),
                     .block = T::threads,
                     .shared_bytes = sizeof(RowSmem<T, TOK>),
                     .dependent = dependent},
                    o.shape, o.tokens, o.weights, o.epilogue);
  });
}

template <class T>
std::size_t rows_bytes(const problem::Linear& g) {
  return with_columns(g.m, [](auto tokens) { return sizeof(RowSmem<T, tokens>); });
}

using ManyRows = RowTile<2, 8, 2>;
using ShortRows = RowTile<4, 8, 4>;
using Alone = RowTile<1, 8, 4>;

template <class F>
auto with_tile(Tile tile, F f) {
  switch (tile) {
    case Tile::few_rows:
      return f(FewRows{});
    case Tile::many_rows:
      return f(ManyRows{});
    case Tile::short_rows:
      return f(ShortRows{});
    case Tile::alone:
      break;
  }
  return f(Alone{});
}

template <bool dependent>
void launch_chosen(const run::LinearLaunch& l) {
  launch_tile(l, choose(l.shape, dependent, multiprocessors()), dependent);
}
template <bool dependent>
std::size_t chosen_bytes(const problem::Linear& g) {
  return with_tile(choose(g, dependent, multiprocessors()), [&]<class T>(T) { return rows_bytes<T>(g); });
}

void launch_dependent_cluster(const run::LinearLaunch& l) {
  dim3 grid = grid_of(l.shape, ClusterOf4::rows);
  grid.x *= ClusterOf4::cluster;
  with_mma(l.shape, [&]<class W, class A, int TOK>(W, A, device::Constant<TOK>) {
    const Operands<W, A> o = operands<W, A>(l);
    runtime::launch(dependent_cluster<W, A, TOK, ClusterOf4>,
                    {.grid = grid,
                     .block = ClusterOf4::threads,
                     .shared_bytes = sizeof(ClusterSmem<W, TOK, ClusterOf4>),
                     .cluster = ClusterOf4::cluster,
                     .dependent = true},
                    o.shape, o.tokens, o.weights, o.epilogue);
  });
}

}  // namespace

void launch_tile(const run::LinearLaunch& l, Tile tile, bool dependent) {
  with_tile(tile, [&]<class T>(T) { launch_rows<T>(l, dependent); });
}

Rung dependent() {
  return {[](const run::LinearLaunch& l) { launch_rows<FewRows>(l, true); }, rows_bytes<FewRows>};
}
Rung dependent_cluster() {
  return {launch_dependent_cluster, [](const problem::Linear& g) {
            return with_columns(g.m, [](auto tokens) { return sizeof(ClusterSmem<__half, tokens, ClusterOf4>); });
          }};
}
Rung chosen() { return {launch_chosen<true>, chosen_bytes<true>}; }
Rung chosen_alone() { return {launch_chosen<false>, chosen_bytes<false>}; }

}  // namespace few_tokens
