// Step 07, host side: what the step offers, sizes, launches.
#include "common/launches/near_rows.h"
#include "common/run/family/any_step.h"
#include "steps/07_block_sparse/backward.h"
#include "steps/07_block_sparse/estimates.h"
#include "steps/07_block_sparse/launches.h"

namespace {

using namespace block_sparse;
using problem::Dtype;
using run::AttentionSupport;
using run::AttentionVariant;

template <bool split_long_rows>
run::Arrays scratch_arrays(const Attention& a) {
  const PlanSizes sizes = sizes_of(a, split_long_rows);
  run::Arrays arrays = plan_arrays(sizes, a);
  if (split_long_rows) {
    arrays.push_back(run::scratch("part_o", Dtype::fp32, {parts_of(sizes), sizes.tile_queries, a.dim}));
    arrays.push_back(run::scratch("part_states", Dtype::fp32, {parts_of(sizes), sizes.tile_queries, 2}));
  }
  return arrays;
}

// Heads that stream by token have more edges than the first rungs know.
const AttentionSupport by_block = {.dtypes = {Dtype::fp16, Dtype::bf16},
                                   .dims = {64, 128},
                                   .window = true,
                                   .sparse_q = {128},
                                   .sparse_k = {64, 128},
                                   .row_alignment = 16,
                                   .max_row_stride = most_row_stride};
const AttentionSupport with_tokens = [] {
  AttentionSupport supports = by_block;
  supports.sparse_tokens = true;
  return supports;
}();
const AttentionSupport any_16_bit = {.dtypes = {Dtype::fp16, Dtype::bf16},
                                     .dims = {32, 64, 96, 128},
                                     .window = true,
                                     .packed = true,
                                     .dropout = true,
                                     .packed_dropout = true,
                                     .sparse_q = {64, 128},
                                     .sparse_k = {64, 128},
                                     .sparse_tokens = true,
                                     .row_alignment = 16};

const std::vector<problem::KernelCost> plan_costs = {{"count_tiles"}, {"add_up"}, {"write_lists"}};

std::vector<problem::KernelCost> costs(const Attention& a, Needs needs, const std::string& kernel) {
  std::vector<problem::KernelCost> all = {problem::flash_cost(a, kernel)};
  if (kernel == "sparse_balanced") all.push_back({"merge_parts"});
  return run::with_options(a, all, needs == Needs::mask ? std::vector<problem::KernelCost>{} : plan_costs);
}

AttentionVariant rung(const std::string& name, std::string idea, const AttentionSupport& supports, Needs needs,
                      void (*launch)(const AttentionLaunch&)) {
  return {.name = name,
          .idea = std::move(idea),
          .supports = supports,
          .shared_bytes = shared_bytes,
          .scratch = needs == Needs::mask ? nullptr : scratch_arrays<false>,
          .cost = [=](const Attention& a) { return costs(a, needs, "sparse_" + name); },
          .plan = needs == Needs::mask    ? nullptr
                  : needs == Needs::lists ? plan_lists
                                          : plan_order,
          .launch = launch};
}

const std::vector<AttentionVariant> variants = {
    rung("test_per_block", "step 05's tuned loop, with a test for each tile of keys", by_block, Needs::mask,
         launch_test_per_block),
    rung("list", "the live tiles come from a list, made once on the device", by_block, Needs::lists, launch_list),
    rung("two_loops", "full tiles have a loop of their own, without masks", by_block, Needs::lists, launch_two_loops),
    rung("prefetch", "the next index comes with the copies of a tile", by_block, Needs::lists, launch_prefetch),
    rung("ordered", "long rows first, heavy heads first, the last heads together", by_block, Needs::order, launch_ordered),
    rung("tokens", "heads that stream by token: two more edges for partial tiles", with_tokens, Needs::order_and_mask,
         launch_tokens),
    {.name = "balanced",
     .idea = "rows above four times the mean are split, their parts merged by ⊕",
     .supports = near_rows(any_16_bit),
     .shared_bytes = shared_bytes,
     .scratch = scratch_arrays<true>,
     .cost = [](const Attention& a) { return costs(a, Needs::order, "sparse_balanced"); },
     .plan = plan_balanced,
     .launch = launch_balanced},
};

const Attention default_shape{.heads = 4, .kv_heads = 4, .seq_q = 256, .seq_k = 256, .dim = 64, .dtype = Dtype::fp16};

std::vector<problem::KernelCost> backward_costs(const problem::Backward& a) {
  const char* kernel = a.dim <= 64 ? "sparse_backward_64" : "sparse_backward_128";
  return run::with_options(a,
                           std::vector<problem::KernelCost>{problem::prepare_cost(a, true, "prepare_chunks"),
                                                            problem::backward_cost(a, kernel, 5, problem::BackwardResult::all),
                                                            {"merge_columns"},
                                                            problem::convert_cost(a, "convert_blocks"),
                                                            {"repair_rows"}},
                           plan_costs);
}

const std::vector<run::BackwardVariant> backward_variants = {
    {.name = "backward",
     .idea = "lists of tiles of queries for each tile of keys",
     .supports = any_16_bit,
     .compute_capability = 90,
     .shared_bytes = backward_bytes,
     .scratch = backward_arrays,
     .cost = backward_costs,
     .plan = plan_backward,
     .launch = launch_backward,
     .deterministic = false},
};

std::string too_large(const Attention& a) { return too_large_for_plan(a, tile_queries(a), keys_of_tile, false); }

// Each pass points at the other.
struct BothPasses {
  run::AttentionStep forward{{.name = "07_block_sparse",
                              .question = "How much time does a mask of blocks save?",
                              .default_shape = default_shape,
                              .default_variant = "balanced",
                              .variants = run::limited(variants, too_large),
                              .estimates = [](const Attention&) { return forward_estimates(variants); }},
                             {},
                             &backward};
  run::BackwardStep backward{{.name = "07_block_sparse",
                              .question = "How much time does a mask of blocks save in the backward pass?",
                              .default_shape = {default_shape},
                              .default_variant = "backward",
                              .variants = run::limited(backward_variants, too_large_backward),
                              .estimates = backward_estimates},
                             &forward};
};

}  // namespace

namespace block_sparse {

run::AnyStep step() {
  static const BothPasses passes;
  return &passes.forward;
}

}  // namespace block_sparse
