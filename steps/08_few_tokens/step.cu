// Step 08, host side: what the step offers, sizes, launches.
#include "common/run/family/any_step.h"
#include "steps/08_few_tokens/01_thread_per_row.cuh"
#include "steps/08_few_tokens/02_warp_per_row.cuh"
#include "steps/08_few_tokens/chunk.cuh"
#include "steps/08_few_tokens/launches.h"

namespace {

using namespace few_tokens;
using problem::Dtype;
using problem::Linear;
using run::LinearLaunch;
using run::LinearSupport;
using run::LinearVariant;

void launch_thread_per_row(const LinearLaunch& l) {
  launch_for_types(l, grid_of(l.shape, thread_rows), thread_rows,
                   []<class W, class A, int TOK>(W, A, device::Constant<TOK>) { return thread_per_row<W, A, TOK>; });
}

void launch_warp_per_row(const LinearLaunch& l) {
  launch_for_types(l, grid_of(l.shape, warp_rows), 32 * warp_rows,
                   []<class W, class A, int TOK>(W, A, device::Constant<TOK>) { return warp_per_row<W, A, TOK>; });
}

auto cost_of(const char* kernel) {
  return [kernel](const Linear& g) { return std::vector{problem::linear_cost(g, kernel)}; };
}

const LinearSupport any_rows = {.max_m = most_tokens};
const LinearSupport chunks = {.max_m = most_tokens, .k_multiple = chunk, .row_bytes = 16};
const LinearSupport one_token = {.fp32_tokens = false, .max_m = 1, .k_multiple = chunk, .row_bytes = 16};

const LinearSupport routed = {.k_multiple = chunk, .row_bytes = 16, .experts = true};
const LinearSupport few_pairs = {.k_multiple = chunk, .row_bytes = 16, .experts = true, .max_pairs = most_unsorted_pairs};
const LinearSupport routed_tiles = {.fp32_tokens = false, .k_multiple = chunk, .row_bytes = 16, .experts = true};

LinearVariant in_flight(std::string name, std::string idea, void (*launch)(const LinearLaunch&)) {
  return {
      .name = std::move(name), .idea = std::move(idea), .supports = one_token, .cost = cost_of("wide_loads"), .launch = launch};
}

LinearVariant variant(std::string name, std::string idea, const char* kernel, const Rung& rung,
                      int compute_capability = run::least_compute_capability) {
  return {.name = std::move(name),
          .idea = std::move(idea),
          .supports = chunks,
          .compute_capability = compute_capability,
          .shared_bytes = rung.shared_bytes,
          .cost = cost_of(kernel),
          .launch = rung.launch};
}

// The sums of all parts, written by one kernel and read by the other.
std::vector<problem::KernelCost> split_k_costs(const Linear& g) {
  const double parts = static_cast<double>(run::scratch_bytes(split_k_arrays(g)));
  problem::KernelCost product = problem::linear_cost(g, "split_k_product");
  const problem::KernelCost add = {"add_parts", 0, parts, product.bytes_written};
  product.bytes_written = parts;
  return {product, add};
}

// Of a routed product: the kernels that make the permutation, and the bytes of what is passed on.
std::vector<problem::KernelCost> experts_costs(const Linear& g, std::initializer_list<const char*> sorts, const char* kernel) {
  const double ids = sizeof(int) * static_cast<double>(g.pairs());
  const double sums = static_cast<double>(run::scratch_bytes(sums_array(g)));
  std::vector<problem::KernelCost> all;
  for (const char* sort : sorts) all.push_back({sort, 0, ids, ids});
  problem::KernelCost product = problem::linear_cost(g, kernel);
  const problem::KernelCost combine = {"combine", 2 * static_cast<double>(g.pairs()) * g.n, sums, product.bytes_written};
  product.bytes_written = sums;
  all.push_back(product);
  all.push_back(combine);
  return all;
}

// Where a GPU counts otherwise than the simulator.
std::vector<run::Estimate> estimates(const Linear& g) {
  const std::string window = "a block's stores to its own part of the cluster's shared memory count there, and not here";
  std::vector<run::Estimate> all = {{"cluster_product", runtime::Space::shared, runtime::Op::store, window},
                                    {"dependent_cluster", runtime::Space::shared, runtime::Op::store, window}};
  if (g.dtype_a == Dtype::fp32) {
    all.push_back({"warp_per_row", runtime::Space::global, runtime::Op::load,
                   "with tokens of fp32 an H100 counts 4 of 9,550 sectors more; we do not know of which load"});
  }
  return all;
}

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
    {.name = "wide_loads",
     .idea = "loads of 16 bytes, four of a lane under way at a time: 32 KB an SM",
     .supports = chunks,
     .cost = cost_of("wide_loads"),
     .launch = launch_wide_loads},
    in_flight("in_flight_8k", "the same with one load of a lane under way: 8 KB an SM", launch_in_flight_8k),
    in_flight("in_flight_16k", "the same with two: 16 KB an SM", launch_in_flight_16k),
    in_flight("in_flight_64k", "the same with eight: 64 KB an SM", launch_in_flight_64k),
    variant("tensor_cores", "weights straight from memory to mma fragments, k permuted alike on both sides",
            "tensor_core_product", tensor_cores()),
    variant("row_groups", "32 rows share the tokens' fragments; a slot is requested anew as soon as it is multiplied",
            "row_groups_product", row_groups()),
    variant("ring", "weights through rings in shared memory; warps split rows", "ring_product", ring()),
    {.name = "split_k",
     .idea = "the ring; blocks split k, a second kernel adds their sums",
     .supports = chunks,
     .shared_bytes = split_k().shared_bytes,
     .scratch = split_k_arrays,
     .cost = split_k_costs,
     .launch = split_k().launch},
    variant("cluster", "the ring; four blocks of a cluster split k, and add through shared memory", "cluster_product",
            cluster(), 90),
    variant("dependent", "row_groups; the weights are requested before the launch before has ended", "dependent_row_groups",
            dependent(), 90),
    variant("dependent_cluster", "cluster; the weights are requested before the launch before has ended", "dependent_cluster",
            dependent_cluster(), 90),
    variant("tuned", "dependent, its tile chosen by rows and k", "dependent_row_groups", chosen(), 90),
    variant("tuned_alone", "the same tiles, for a launch that waits until the one before has ended", "dependent_row_groups",
            chosen_alone(), 90),
    {.name = "experts_unsorted",
     .idea = "a block looks among the ids for the pairs of its expert",
     .supports = few_pairs,
     .shared_bytes = experts_unsorted().shared_bytes,
     .scratch = sums_array,
     .cost = [](const Linear& g) { return experts_costs(g, {}, "unsorted_experts_product"); },
     .launch = experts_unsorted().launch},
    {.name = "experts",
     .idea = "pairs sorted in one launch without atomics; one launch over the row tiles of all experts",
     .supports = routed,
     .shared_bytes = experts().shared_bytes,
     .scratch = sorted_arrays,
     .cost = [](const Linear& g) { return experts_costs(g, {"route"}, "experts_product"); },
     .launch = experts().launch},
    {.name = "experts_tiled",
     .idea = "many tokens an expert: tiles of 128 pairs by 128 rows, through the permutation",
     .supports = routed_tiles,
     .shared_bytes = experts_tiled().shared_bytes,
     .scratch = sorted_arrays,
     .cost = [](const Linear& g) { return experts_costs(g, {"route"}, "tiled_experts_product"); },
     .launch = experts_tiled().launch},
    {.name = "experts_many",
     .idea = "the same for many ids: blocks count parts of them, one block scans, blocks place their pairs",
     .supports = routed_tiles,
     .shared_bytes = experts_many().shared_bytes,
     .scratch = counted_arrays,
     .cost =
         [](const Linear& g) {
           return experts_costs(g, {"count_part", "scan_counts", "place_part"}, "tiled_experts_product");
         },
     .launch = experts_many().launch},
};

}  // namespace

namespace few_tokens {

run::AnyStep step() {
  static const run::LinearStep step{.name = "08_few_tokens",
                                    .question = "How fast is a linear layer when there are only a few tokens?",
                                    .default_shape = {.m = 7, .n = 896, .k = 896},
                                    .default_variant = "tuned",
                                    .variants = variants,
                                    .next_best = {"row_groups", "warp_per_row", "experts_unsorted", "experts_tiled", "experts"},
                                    .default_for = [](const Linear& g) { return g.experts > 0 ? "experts" : "tuned"; },
                                    .estimates = estimates};
  return &step;
}

}  // namespace few_tokens
