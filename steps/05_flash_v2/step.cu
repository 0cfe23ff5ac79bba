// Step 05, host side: what the step offers, sizes, launches.
#include "common/launches/near_rows.h"
#include "common/run/family/any_step.h"
#include "steps/05_flash_v2/launches.h"

namespace {

using namespace flash_v2;
using problem::Dtype;
using run::AttentionSupport;
using run::AttentionVariant;

// A variant of one kernel.
AttentionVariant variant(std::string name, std::string idea, const AttentionSupport& supports, std::string kernel,
                         const Rung& rung) {
  return {.name = std::move(name),
          .idea = std::move(idea),
          .supports = supports,
          .shared_bytes = rung.shared_bytes,
          .cost = [=](const Attention& a) { return run::with_options(a, std::vector{problem::flash_cost(a, kernel)}); },
          .launch = rung.launch};
}

const AttentionSupport any = {
    .dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16}, .window = true, .packed = true, .dropout = true, .packed_dropout = true};
// Options of scores have kernels of their own, without packed sequences and dropout.
std::string scores_with_others(const Attention& a) {
  if (!a.has_score_options()) return "";
  return a.is_packed() ? "options of scores with packed sequences" : a.dropout > 0 ? "options of scores with dropout" : "";
}
const AttentionSupport any_16_bit = {.dtypes = {Dtype::fp16, Dtype::bf16},
                                     .window = true,
                                     .packed = true,
                                     .dropout = true,
                                     .softcap = true,
                                     .alibi = true,
                                     .bias = true,
                                     .sinks = true,
                                     .lengths = true,
                                     .beyond = scores_with_others};
const AttentionSupport whole = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {32, 64, 128}, .window = true, .row_alignment = 16};
const AttentionSupport whole_near = near_rows(whole);  // whose copies count bytes in 32 bits
// Two sets of scores beside longer rows of O do not fit into the registers.
const AttentionSupport short_rows = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {32, 64}, .window = true, .row_alignment = 16};

const std::vector<AttentionVariant> variants = {
    variant("scalar", "the algorithm alone: queries outside, keys inside, O in registers", any, "flash_scalar", scalar_rung()),
    variant("tensor_cores", "mma.sync for both products; P stays in the registers it came out in", whole, "flash_tensor_cores",
            tensor_cores_rung()),
    variant("ldmatrix", "fragments by ldmatrix, V's by ldmatrix.trans, from swizzled rows", whole, "flash_ldmatrix",
            ldmatrix_rung()),
    variant("pipeline", "cp.async, two stages: one barrier for each tile of keys", whole, "flash_pipeline", pipeline_rung()),
    variant("edge_masks", "masks and votes about NaNs only for tiles on the edge of what is seen", whole, "flash_edge_masks",
            edge_masks_rung()),
    variant("folded_scale", "scale and maximum in one FMA for each score", whole, "flash_folded_scale", folded_scale_rung()),
    variant("registers", "Q in registers for all tiles of keys", whole, "flash_registers", registers_rung()),
    variant("overlap", "tried: the next tile's scores are issued before this tile's softmax", short_rows, "flash_overlap",
            overlap_rung()),
    variant("addresses", "addresses of copies and fragments one operation away", whole_near, "flash_addresses",
            addresses_rung()),
    variant("rows_32", "32 rows a warp: each fragment of K and V feeds two mma", whole_near, "flash_rows_32", rows_32_rung()),
    variant("lazy_rescale", "O is rescaled only where a row's maximum has grown by more than 8", whole_near,
            "flash_lazy_rescale", lazy_rescale_rung()),
    {.name = "tuned",
     .idea = "copies of the next tile and exponentials of the next keys between the mma",
     .supports = any_16_bit,
     .shared_bytes = tuned_rung().shared_bytes,
     .cost =
         [](const Attention& a) {
           const char* kernel = is_tuned_dim(a.dim) ? "flash_tuned" : "flash_any_dim";
           return run::with_options(a, std::vector{problem::flash_cost(a, kernel)});
         },
     .launch = tuned_rung().launch},
    variant("any_dim", "rows of any length at any address: narrower copies, padding with zeros", any_16_bit, "flash_any_dim",
            any_dim_rung()),
};

std::vector<run::Estimate> estimates(const Attention& a) {
  std::vector<run::Estimate> estimates{
      {"flash_scalar", runtime::Space::shared, runtime::Op::load,
       "nvcc reads four neighbouring elements of Q's row in one access, the source one"},
  };
  for (const char* kernel : {"flash_addresses", "flash_rows_32", "flash_lazy_rescale", "flash_tuned"}) {
    estimates.push_back(
        {kernel, runtime::Space::global, runtime::Op::copy_past_l1,
         "nvcc puts a predicate on the copies of the next tile, so that those of a tile that is not there count as "
         "executed"});
  }
  if (a.is_packed()) {
    estimates.push_back({"flash_scalar", runtime::Space::global, runtime::Op::load, "nvcc joins reads of the sequences' ends"});
  }
  if (a.is_packed() || a.dropout > 0 || a.has_score_options() || (a.dim <= 64 && a.dtype == Dtype::fp16)) {
    estimates.push_back({"flash_any_dim", runtime::Space::global, runtime::Op::store,
                         "nvcc makes one instruction of the stores of two ways to write O, where both are possible"});
  }
  return estimates;
}

}  // namespace

namespace flash_v2 {

run::AnyStep step() {
  static const run::AttentionStep step{
      {.name = "05_flash_v2",
       .question = "How fast is attention when a tile of queries stays on the chip until it is done?",
       .default_shape = {.heads = 4, .kv_heads = 4, .seq_q = 128, .seq_k = 128, .dim = 64, .dtype = Dtype::fp16},
       .default_variant = "tuned",
       .variants = variants,
       .next_best = {"scalar"},
       .estimates = estimates}};
  return &step;
}

}  // namespace flash_v2
