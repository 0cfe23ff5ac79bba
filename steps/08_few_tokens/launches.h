// Step 08, host side: launches that are compiled apart from step.cu, and the file that has each.
#pragma once

#include "steps/08_few_tokens/host.h"
#include "steps/08_few_tokens/routing.cuh"

namespace few_tokens {

void launch_wide_loads(const run::LinearLaunch& l);    // wide_loads.cu
void launch_in_flight_8k(const run::LinearLaunch& l);  // the same with other counts of slots
void launch_in_flight_16k(const run::LinearLaunch& l);
void launch_in_flight_64k(const run::LinearLaunch& l);

// A tensor-core rung as a variant needs it.
struct Rung {
  void (*launch)(const run::LinearLaunch&);
  std::size_t (*shared_bytes)(const problem::Linear&);  // of a block
};

Rung tensor_cores();  // tensor_cores.cu
Rung row_groups();
Rung ring();  // ring.cu
Rung split_k();
// Those whose instructions need compute capability 9.0.
Rung cluster();    // cluster.sm_90.cu
Rung dependent();  // dependent.sm_90.cu
Rung dependent_cluster();
Rung chosen();        // by choice.h
Rung chosen_alone();  // the same, and the launch is not dependent

// Of the device; the simulator has as many as an H100.
inline int multiprocessors() {
  const runtime::Properties& device = runtime::properties();
  return device.backend == "sim" ? 132 : device.multiprocessors;
}

// Sorts pairs by expert: bounds [experts + 1], order [pairs].
void launch_route(const Routing& routing, int* bounds, int* order);  // sort.cu
// The same for many of them: counts [experts, parts_of(pairs)].
void launch_count_scan_place(const Routing& routing, int* counts, int* bounds, int* order);
int parts_of(int pairs);

// Of products that are routed to experts, and the arrays that they need.
Rung experts();  // experts.cu
Rung experts_unsorted();
Rung experts_tiled();
Rung experts_many();
run::Arrays sums_array(const problem::Linear& g);      // of all four
run::Arrays sorted_arrays(const problem::Linear& g);   // and the permutation, of the sorted ones
run::Arrays counted_arrays(const problem::Linear& g);  // and the counts, of `experts_many`

// How many blocks share a tile of rows in `split_k`, and the arrays of their sums.
int splits_of(const problem::Linear& g);
run::Arrays split_k_arrays(const problem::Linear& g);

// Calls f with the columns of the mma, 8 or 16, that m tokens need, as a constant.
template <class F>
auto with_columns(int m, F f) {
  return device::with_at_least<8, most_tokens>(m, f);
}

// Calls f(W{}, A{}, TOK) for a launch, TOK as a constant.
template <class F>
void with_mma(const problem::Linear& g, F f) {
  with_types(g,
             [&]<class W, class A>(W weight, A token) { with_columns(g.m, [&](auto tokens) { f(weight, token, tokens); }); });
}

}  // namespace few_tokens
