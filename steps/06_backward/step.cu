// Step 06, host side: what the step offers.
#include "common/run/family/any_step.h"
#include "steps/06_backward/choice.h"
#include "steps/06_backward/estimates.h"
#include "steps/06_backward/standard.h"
#include "steps/06_backward/supports.h"

namespace flash_v2 {
run::AnyStep step();  // step 05's, which step.cmake links: its forward makes O and LSE
}

namespace {

using namespace backward;
using run::BackwardVariant;

// A variant that adds up dQ in global memory.
BackwardVariant rung(std::string name, std::string idea, const AttentionSupport& supports, std::string kernel, const Rung& rung,
                     int compute_capability = run::least_compute_capability) {
  return {.name = std::move(name),
          .idea = std::move(idea),
          .supports = supports,
          .compute_capability = compute_capability,
          .shared_bytes = rung.shared_bytes,
          .scratch = sums_arrays,
          .cost = [=](const Backward& a) { return tiled_costs(a, kernel, rung.convert); },
          .launch = rung.launch,
          .deterministic = false};
}

// Apart from the step: g++ 12 takes the empty pointer of a temporary for one that is not initialised.
const Backward default_shape{{.heads = 4, .kv_heads = 4, .seq_q = 128, .seq_k = 128, .dim = 64, .dtype = Dtype::fp16}};

const std::vector<BackwardVariant> variants = {
    {.name = "standard",
     .idea = "P, dP and dS through global memory, a kernel for each product",
     .supports = any_type,
     .scratch = standard_arrays,
     .cost = standard_costs,
     .launch = launch_standard},
    {.name = "recompute",
     .idea = "a block has a tile of keys and makes P and dS again, tile by tile; dQ is added up in global memory",
     .supports = with_options(any_type, true),
     .shared_bytes = recompute().shared_bytes,
     .scratch = sums_arrays,
     .cost = recompute_costs,
     .launch = recompute().launch,
     .deterministic = false},
    {.name = "two_kernels",
     .idea = "all products by mma.sync; a second kernel makes dQ, with S and dP once more",
     .supports = tiles_16_bit,
     .shared_bytes = two_kernels().shared_bytes,
     .scratch = statistics_arrays,
     .cost = two_kernels_costs,
     .launch = two_kernels().launch},
    rung("one_kernel", "five products: dQ from the same dS, added up in global memory", tiles_16_bit, "backward_one_kernel",
         one_kernel()),
    rung("fragment_order", "dQ's sums lie as the lanes hold them: one red for four numbers", tiles_16_bit,
         "backward_one_kernel", fragment_order(), 90),
    rung("transposed", "P and dS go on in their registers; only dS goes through shared memory", tiles_16_bit,
         "backward_transposed", transposed(), 90),
    rung("pipeline", "copies of the next tile beside the products of this one; masks only at the edges", tiles_16_bit,
         "backward_pipeline", pipeline(), 90),
    rung("keys_32", "32 keys a warp: each fragment feeds four mma; dQ one tile late", short_rows, "backward_keys_32", keys_32(),
         90),
    rung("tuned_64", "addresses made once, copies between the mma, dP from −D on", with_options(short_rows),
         "backward_tuned_64", tuned_64(), 90),
    rung("column_split", "eight warps: each has half of the columns of dK and dV; P and dS through shared memory", long_rows,
         "backward_column_split", column_split(), 90),
    rung("roles", "four warps make P and dV, four make dS, dK and dQ", long_rows, "backward_roles", roles(), 90),
    rung("tuned_128", "the two roles, with dK and dQ one tile late: nobody waits for dS", with_options(long_rows),
         "backward_tuned_128", tuned_128(), 90),
    {.name = "deterministic",
     .idea = "the tuned rungs without dQ, and a kernel that makes it: the same bits in every run",
     .supports = tiles_16_bit,
     .compute_capability = 90,
     .shared_bytes = deterministic().shared_bytes,
     .scratch = [](const Backward& a) { return with_parts(statistics_arrays(a), a); },
     .cost = deterministic_costs,
     .launch = deterministic().launch},
    {.name = "any_dim",
     .idea = "rows of any length at any address: padded with zeros; above 128 columns two blocks share the keys",
     .supports = with_options(any_16_bit),
     .compute_capability = 90,
     .shared_bytes = any_dim().shared_bytes,
     .scratch = any_dim_arrays,
     .cost = any_dim_costs,
     .launch = any_dim().launch,
     .deterministic = false},
    {.name = "tuned",
     .idea = "tuned_64 or tuned_128, by the head dim; any_dim where neither fits",
     .supports = with_options(any_16_bit),
     .compute_capability = 90,
     .shared_bytes = best_bytes<tuned>,
     .scratch = best_arrays,
     .cost = best_costs<tuned>,
     .launch = launch_best<tuned>,
     .deterministic = false},
    {.name = "tuned_80",
     .idea = "for compute capability 8.0: pipeline, transposed, any_dim or recompute; red one by one, tiles that fit 99 KB",
     .supports = any_16_bit,
     .shared_bytes = best_bytes<tuned_80>,
     .scratch = best_arrays,
     .cost = best_costs<tuned_80>,
     .launch = launch_best<tuned_80>,
     .deterministic = false},
};

}  // namespace

namespace backward {

run::AnyStep step() {
  static const run::BackwardStep step{
      {.name = "06_backward",
       .question = "How fast are the gradients of attention when P is computed again instead of being stored?",
       .default_shape = default_shape,
       .default_variant = "tuned",
       .variants = run::limited(variants, too_large),
       .next_best = {"pipeline", "transposed", "any_dim", "tuned_80", "recompute", "deterministic", "two_kernels", "standard"},
       .estimates = estimates},
      std::get<const run::AttentionStep*>(flash_v2::step())};
  return &step;
}

}  // namespace backward
