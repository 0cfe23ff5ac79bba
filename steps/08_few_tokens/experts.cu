// Step 08, host side: the scratch memory and the launches of products that are routed to experts.
#include <algorithm>

#include "steps/08_few_tokens/12_experts_unsorted.cuh"
#include "steps/08_few_tokens/13_experts_tiled.cuh"
#include "steps/08_few_tokens/launches.h"

namespace few_tokens {
namespace {

using problem::Linear;
using run::LinearLaunch;

Routing routing_of(const LinearLaunch& l) { return {l.experts, l.routing, l.shape.m, l.shape.top, l.shape.experts}; }

struct Sorted {
  int* bounds;
  int* order;
};

Sorted sorted_of(const LinearLaunch& l) { return {l.arrays.get<int>("bounds"), l.arrays.get<int>("order")}; }

Sorted sort_pairs(const LinearLaunch& l) {
  const Sorted sorted = sorted_of(l);
  launch_route(routing_of(l), sorted.bounds, sorted.order);
  return sorted;
}

Sorted sort_many_pairs(const LinearLaunch& l) {
  const Sorted sorted = sorted_of(l);
  launch_count_scan_place(routing_of(l), l.arrays.get<int>("counts"), sorted.bounds, sorted.order);
  return sorted;
}

float* sums_of(const LinearLaunch& l) { return l.arrays.get<float>("sums"); }

void launch_combine(const LinearLaunch& l) {
  device::with_16_bit_type(l.shape.dtype, [&]<class W>(W) {
    const auto columns = std::min<std::int64_t>(ceil_div(l.shape.n, combine_threads), run::most_grid_y);
    runtime::launch(combine<W>,
                    {.grid = dim3(static_cast<unsigned>(l.shape.m), static_cast<unsigned>(columns)), .block = combine_threads},
                    routing_of(l), l.shape.n, static_cast<const float*>(sums_of(l)), operands<W, W>(l).epilogue);
  });
}

// An expert rarely has more pairs than there are tokens; then it takes them in several groups.
template <class F>
auto with_pairs(const Linear& g, F f) {
  return with_columns(std::min(g.m, most_tokens), f);
}

template <class Tile>
dim3 grid_of_experts(const Linear& g) {
  return {static_cast<unsigned>(ceil_div(g.n, Tile::rows)), static_cast<unsigned>(g.experts)};
}

void launch_experts(const LinearLaunch& l) {
  const Sorted sorted = sort_pairs(l);
  with_types(l.shape, [&]<class W, class A>(W, A) {
    const Operands<W, A> o = operands<W, A>(l);
    with_pairs(l.shape, [&]<int pairs>(device::Constant<pairs>) {
      using Tile = ExpertTile<pairs>;
      runtime::launch(
          experts_product<W, A, pairs, Tile>,
          {.grid = grid_of_experts<Tile>(l.shape), .block = Tile::threads, .shared_bytes = sizeof(RowSmem<Tile, pairs>)},
          o.shape, routing_of(l), o.tokens, o.weights, static_cast<const int*>(sorted.bounds),
          static_cast<const int*>(sorted.order), sums_of(l));
    });
  });
  launch_combine(l);
}

void launch_unsorted(const LinearLaunch& l) {
  with_types(l.shape, [&]<class W, class A>(W, A) {
    const Operands<W, A> o = operands<W, A>(l);
    with_pairs(l.shape, [&]<int pairs>(device::Constant<pairs>) {
      using Tile = ExpertTile<pairs>;
      runtime::launch(
          unsorted_experts_product<W, A, pairs, Tile>,
          {.grid = grid_of_experts<Tile>(l.shape), .block = Tile::threads, .shared_bytes = sizeof(UnsortedSmem<pairs, Tile>)},
          o.shape, routing_of(l), o.tokens, o.weights, sums_of(l));
    });
  });
  launch_combine(l);
}

template <Sorted (*sort)(const LinearLaunch&)>
void launch_tiled(const LinearLaunch& l) {
  const Sorted sorted = sort(l);
  // As many tiles as there can be: each expert's last one may be cut.
  const auto pairs = static_cast<int>(l.shape.pairs());
  const auto pair_tiles = pairs / tiled_pairs + std::min(l.shape.experts, pairs);
  const auto blocks = std::int64_t{ceil_div(l.shape.n, tiled_rows)} * pair_tiles;
  device::with_16_bit_type(l.shape.dtype, [&]<class W>(W) {
    const Operands<W, W> o = operands<W, W>(l);
    runtime::launch(tiled_experts_product<W>,
                    {.grid = static_cast<unsigned>(blocks), .block = tiled_threads, .shared_bytes = sizeof(TiledSmem<W>)},
                    o.shape, routing_of(l), o.tokens, o.weights, static_cast<const int*>(sorted.bounds),
                    static_cast<const int*>(sorted.order), sums_of(l));
  });
  launch_combine(l);
}

}  // namespace

Rung experts() {
  return {launch_experts, [](const Linear& g) {
            return with_pairs(g, []<int pairs>(device::Constant<pairs>) { return sizeof(RowSmem<ExpertTile<pairs>, pairs>); });
          }};
}
Rung experts_unsorted() {
  return {launch_unsorted, [](const Linear& g) {
            return with_pairs(
                g, []<int pairs>(device::Constant<pairs>) { return sizeof(UnsortedSmem<pairs, ExpertTile<pairs>>); });
          }};
}
Rung experts_tiled() {
  return {launch_tiled<sort_pairs>, [](const Linear&) { return sizeof(TiledSmem<__half>); }};
}
Rung experts_many() {
  return {launch_tiled<sort_many_pairs>, [](const Linear&) { return sizeof(TiledSmem<__half>); }};
}

run::Arrays sums_array(const Linear& g) { return {run::scratch("sums", problem::Dtype::fp32, {g.pairs(), g.n})}; }
run::Arrays sorted_arrays(const Linear& g) {
  return sums_array(g) + run::Arrays{run::scratch("bounds", run::Element::int32(), {g.experts + 1}),
                                     run::scratch("order", run::Element::int32(), {g.pairs()})};
}
run::Arrays counted_arrays(const Linear& g) {
  const int parts = parts_of(static_cast<int>(g.pairs()));
  return sorted_arrays(g) + run::Arrays{run::scratch("counts", run::Element::int32(), {g.experts, parts})};
}

}  // namespace few_tokens
