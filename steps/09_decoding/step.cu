// Step 09, host side: what the step offers, sizes, launches.
#include <climits>

#include "common/run/family/any_step.h"
#include "steps/09_decoding/launches.h"

namespace {

using namespace decoding;
using problem::Dtype;
using run::AttentionSupport;
using run::AttentionVariant;

// Queries of heads, and items, are counted by ints; a cluster has several blocks an item.
std::string too_many_queries(const Attention& a) {
  const double rows = static_cast<double>(a.seq_q) * (a.heads / a.kv_heads);
  const double items = static_cast<double>(a.batch) * a.kv_heads * (rows / item_rows + 1);
  if (static_cast<double>(a.batch) * a.heads * a.seq_q < INT_MAX - item_rows && items <= INT_MAX / 16) return "";
  return "so many queries: batch · heads · seq-q goes up to " + std::to_string(INT_MAX - item_rows - 1) +
         ", and batch · kv-heads · ⌈seq-q · heads / kv-heads / 16⌉ to " + std::to_string(INT_MAX / 16);
}

// With options of scores, lengths of a padded cache, and pages.
AttentionSupport with_score_options(AttentionSupport supports) {
  supports.softcap = supports.alibi = supports.bias = supports.sinks = true;
  supports.lengths = supports.pages = true;
  return supports;
}

const AttentionSupport any = with_score_options({.dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16}, .window = true});
const AttentionSupport whole = {.dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {64, 128}, .window = true, .row_alignment = 16};
const AttentionSupport more_dims = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {32, 64, 128, 256}, .window = true, .row_alignment = 16};
const AttentionSupport more_options = with_score_options(more_dims);

using Kernels = std::function<std::vector<std::string>(const Attention&)>;
Kernels always(std::vector<std::string> names) {
  return [names = std::move(names)](const Attention&) { return names; };
}

// The kernel that attends reads Q, K and V, and writes O; one behind it reads the parts that it wrote.
std::vector<problem::KernelCost> costs(const Attention& a, const Kernels& kernels, const Rung& rung) {
  const double parts = rung.scratch ? static_cast<double>(run::scratch_bytes(rung.scratch(a))) : 0;
  std::vector<problem::KernelCost> all;
  bool attended = false;
  for (const std::string& kernel : kernels(a)) {
    if (kernel == "clear_arrived" || kernel == "count_tiles") {
      all.push_back({.kernel = kernel});
    } else if (attended) {
      all.push_back({kernel, 0, parts, problem::flash_cost(a, kernel).bytes_written});
    } else {
      all.push_back(problem::flash_cost(a, kernel));
      attended = true;
    }
  }
  return all;
}

AttentionVariant variant(std::string name, std::string idea, const AttentionSupport& supports, const Kernels& kernels,
                         const Rung& rung, int compute_capability = run::least_compute_capability) {
  return {.name = std::move(name),
          .idea = std::move(idea),
          .supports = supports,
          .compute_capability = compute_capability,
          .shared_bytes = rung.shared_bytes,
          .scratch = rung.scratch,
          .cost = [=](const Attention& a) { return costs(a, kernels, rung); },
          .launch = rung.launch};
}

// Where a GPU counts otherwise than the simulator.
std::vector<run::Estimate> estimates(const Attention&) {
  const std::string window = "a block's stores to its own part of the cluster's shared memory count there, and not here";
  const std::string kept = "nvcc reads m and l of a block's state together or apart, and keeps some of them in registers";
  const std::string apart = "nvcc reads m and l of a part's state apart";
  return {{"cluster", runtime::Space::shared, runtime::Op::store, window},
          {"cluster", runtime::Space::shared, runtime::Op::load, kept},
          {"dependent_cluster", runtime::Space::shared, runtime::Op::store, window},
          {"dependent_cluster", runtime::Space::shared, runtime::Op::load, kept},
          {"fix_seams", runtime::Space::global, runtime::Op::load, apart},
          {"dependent_seams", runtime::Space::global, runtime::Op::load, apart}};
}

const std::vector<AttentionVariant> variants = {
    variant("any_dim", "CUDA cores: warps and blocks split the keys of each query of each head", any,
            always({"any_dim", "combine_any_dim"}), any_dim_rung()),
    variant("packed_heads", "query heads that share keys are rows of one mma", whole, always({"packed_heads"}),
            packed_heads_rung()),
    variant("warp_rings", "each warp copies its own keys: no barrier of the block in the loop", whole, always({"warp_rings"}),
            warp_rings_rung()),
    variant("split_kv", "blocks split the keys, a second kernel merges their parts", whole, always({"split_kv", "combine"}),
            split_kv_rung()),
    variant("last_block", "the block that comes last merges", whole, always({"clear_arrived", "last_block"}),
            last_block_rung()),
    variant("whole_rows", "a fixed grid, whose blocks go from item to item: nothing is cut", more_dims, always({"stream_k"}),
            whole_rows_rung()),
    variant("stream_k", "a fixed grid shares all tiles evenly, a second kernel merges items that were cut", more_options,
            stream_k_rung().kernels, stream_k_rung()),
    variant("cluster", "eight blocks of a cluster split the keys, and merge through shared memory", whole, always({"cluster"}),
            cluster_rung(), 90),
    variant("dependent", "cluster; keys and values are requested before the launch before has ended", whole,
            always({"dependent_cluster"}), dependent_rung(), 90),
    variant("tuned", "whole_rows, cluster or stream_k, by the number of items and keys", more_options, chosen_rung().kernels,
            chosen_rung(), 90),
    variant("tuned_dependent", "the same; keys and values are requested before the launch before has ended", more_dims,
            chosen_dependent_rung().kernels, chosen_dependent_rung(), 90),
    variant("tuned_99k", "tuned in smaller blocks, for devices with 99 KB of shared memory a block", more_options,
            chosen_99k_rung().kernels, chosen_99k_rung(), 90),
};

}  // namespace

namespace decoding {

run::AnyStep step() {
  static const run::AttentionStep step{
      {.name = "09_decoding",
       .question = "How fast is attention when each sequence has one new token, and a long cache?",
       .default_shape = {.batch = 2, .heads = 8, .kv_heads = 2, .seq_q = 1, .seq_k = 1000, .dim = 64, .dtype = Dtype::fp16},
       .default_variant = "tuned",
       .variants = run::limited(variants, too_many_queries),
       .next_best = {"tuned_99k", "stream_k", "any_dim"},
       .estimates = estimates}};
  return &step;
}

}  // namespace decoding
