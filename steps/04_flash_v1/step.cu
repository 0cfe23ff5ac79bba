// 04_flash_v1: FlashAttention's first algorithm. S and P stay on the chip; O, l and m do not.
//
// Host side: what the step offers, and what each kernel is predicted to ask of memory.
#include "common/run/family/any_step.h"
#include "steps/04_flash_v1/02_wrong_update.cuh"
#include "steps/04_flash_v1/host.h"

namespace {

using namespace flash_v1;
using problem::Dtype;

constexpr int kib = 1024;

template <int smem_bytes>
BlockSizes scalar_sizes(const Attention& a) {
  return with_budget<smem_bytes>(a.dim, []<class B>(B) { return B::sizes; });
}

template <int smem_bytes>
std::size_t scalar_shared_bytes(const Attention& a) {
  return with_budget<smem_bytes>(a.dim, []<class B>(B) { return sizeof(ScalarSmem<B>); });
}

BlockSizes tensor_sizes(const Attention& a) {
  return with_tensor_tile(a.dim, []<class Tile>(Tile) { return BlockSizes{Tile::rows, Tile::keys}; });
}

// Of one type for both: bfloat16 is as large as half.
std::size_t scores_shared_bytes(const Attention& a) {
  return with_tensor_tile(a.dim, []<class Tile>(Tile) { return sizeof(ScoresSmem<__half, Tile>); });
}
std::size_t tensor_shared_bytes(const Attention& a) {
  return with_tensor_tile(a.dim, []<class Tile>(Tile) { return sizeof(TensorSmem<__half, Tile>); });
}

template <int smem_bytes, class Update = PapersUpdate>
run::AttentionVariant scalar(std::string name, std::string idea, std::string demonstration = "") {
  return {.name = std::move(name),
          .idea = std::move(idea),
          .supports = {.dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16}},
          .shared_bytes = scalar_shared_bytes<smem_bytes>,
          .scratch = state_arrays,
          .cost = [](const Attention& a) { return cost_of(a, scalar_sizes<smem_bytes>(a), "algorithm_1"); },
          .launch = launch_scalar<smem_bytes, Update>,
          .demonstration = std::move(demonstration)};
}

run::AttentionVariant tensor(std::string name, std::string idea, std::string kernel,
                             std::size_t (*shared_bytes)(const Attention&), void (*launch)(const AttentionLaunch&)) {
  return {.name = std::move(name),
          .idea = std::move(idea),
          .supports = {.dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {32, 64, 96, 128, 256}, .row_alignment = 16},
          .shared_bytes = shared_bytes,
          .scratch = state_arrays,
          .cost = [=](const Attention& a) { return cost_of(a, tensor_sizes(a), kernel); },
          .launch = launch};
}

const std::vector<run::AttentionVariant> variants = {
    scalar<48 * kib>("scalar_48k", "Algorithm 1 with the 48 KB of shared memory that every GPU gives"),
    scalar<99 * kib>("scalar_99k", "the same with the 99 KB of an RTX 30 or 40: fewer passes over Q and O"),
    scalar<227 * kib>("scalar", "the same with all that one multiprocessor of an H200 has"),
    tensor("tensor_scores", "S by mma.sync and ldmatrix; S and P in shared memory", "algorithm_1_tensor_scores",
           scores_shared_bytes, launch_tensor_scores),
    tensor("register_softmax", "S stays in registers; P in shared memory", "algorithm_1_register_softmax", scores_shared_bytes,
           launch_register_softmax),
    tensor("tensor_cores", "mma.sync and ldmatrix; S and P in registers", "algorithm_1_tensor_cores", tensor_shared_bytes,
           launch_tensor_cores),
    scalar<48 * kib, WrongUpdate>("wrong_update", "the update that many explanations print: no factor on P·V",
                                  "wrong on purpose, to be rejected"),
};

std::vector<run::Estimate> estimates(const Attention& a) {
  std::vector<run::Estimate> estimates;
  estimates.push_back({"algorithm_1", runtime::Space::shared, runtime::Op::load,
                       "nvcc unrolls the sums, and reads four neighbouring elements of Q or P at once"});
  estimates.push_back({"algorithm_1", runtime::Space::shared, runtime::Op::store,
                       "lanes leave the loops over a tile in different rounds; on the hardware some then store apart"});
  for (const runtime::Op op : {runtime::Op::load, runtime::Op::store}) {
    if (a.dim % 32 == 0) break;
    estimates.push_back({"algorithm_1", runtime::Space::global, op,
                         "rows are no multiple of 32 elements, so lanes leave the copying loops in different rounds"});
  }
  for (const char* kernel : {"algorithm_1_tensor_scores", "algorithm_1_register_softmax"}) {
    estimates.push_back({kernel, runtime::Space::shared, runtime::Op::load,
                         "nvcc unrolls the sums, and reads neighbouring elements of P at once"});
  }
  estimates.push_back({"algorithm_1_tensor_scores", runtime::Space::shared, runtime::Op::store,
                       "lanes leave the loops over a row in different rounds; on the hardware some then store apart"});
  return estimates;
}

}  // namespace

namespace flash_v1 {

run::AnyStep step() {
  static const run::AttentionStep step{
      {.name = "04_flash_v1",
       .question = "What does attention move when S and P never leave the chip?",
       .default_shape = {.heads = 4, .kv_heads = 4, .seq_q = 128, .seq_k = 128, .dim = 64, .dtype = Dtype::fp16},
       .default_variant = "scalar",
       .variants = variants,
       .next_best = {"scalar_99k", "scalar_48k"},
       .estimates = estimates}};
  return &step;
}

}  // namespace flash_v1
