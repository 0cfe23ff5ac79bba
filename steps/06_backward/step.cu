// Step 06, host side: what the step offers, sizes, launches.
#include <algorithm>

#include "common/run/family/any_step.h"
#include "steps/06_backward/02_recompute.cuh"
#include "steps/06_backward/04_one_kernel.cuh"
#include "steps/06_backward/05_fragment_order.cuh"
#include "steps/06_backward/06_transposed.cuh"
#include "steps/06_backward/07_pipeline.cuh"
#include "steps/06_backward/any_dim.h"
#include "steps/06_backward/costs.h"
#include "steps/06_backward/estimates.h"
#include "steps/06_backward/gradient_of_queries.cuh"
#include "steps/06_backward/launches.h"
#include "steps/06_backward/shared_heads.h"
#include "steps/06_backward/standard.h"

namespace flash_v2 {
run::AnyStep step();  // step 05's, which step.cmake links: its forward makes O and LSE
}

namespace {

using namespace backward;
using problem::Backward;
using problem::Dtype;
using run::AttentionSupport;
using run::BackwardLaunch;
using run::BackwardVariant;

// ---- recompute ----

template <class F>
auto with_columns(int dim, F f) {  // 32 columns for each lane of a warp
  return with_at_least<2, 4, 8>(ceil_div(dim, 32), f);
}

void launch_recompute(const BackwardLaunch& l) {
  run::with_device_shape(l, [&]<class Shape>(const Shape& shape) {
    with_type(l.shape.dtype, [&]<class T>(T) {
      float* dq_sums = l.arrays.get<float>("dq_sums");
      launch_prepare<T>(l, dq_sums);
      with_columns(l.shape.dim, [&](auto columns) {
        runtime::launch(backward_recompute<T, columns, Shape>,
                        {.grid = grid_of(ceil_div(l.shape.seq_k, recompute_keys), l.shape.kv_heads, l.shape.batch),
                         .block = 32 * recompute_warps,
                         .shared_bytes = sizeof(RecomputeSmem<columns>)},
                        shape, l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.d_o.as<const T>(), statistics_of(l),
                        dq_sums, l.dk.as<T>(), l.dv.as<T>());
      });
      launch_convert<T>(l);
    });
  });
}
std::size_t recompute_bytes(const Backward& a) {
  return with_columns(a.dim, [](auto columns) { return sizeof(RecomputeSmem<columns>); });
}

// ---- tensor cores ----

void launch_two_kernels(const BackwardLaunch& l) {
  with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
    launch_prepare_chunks<T>(l, nullptr);
    with_at_least<32, 64, 96, 128>(l.shape.dim, [&](auto dim) {
      const auto& a = l.shape;
      runtime::launch(gradient_of_keys<T, dim>,
                      {.grid = grid_of(ceil_div(a.seq_k, tile_keys), a.kv_heads, a.batch),
                       .block = tile_threads,
                       .shared_bytes = sizeof(KeysSmem<T, dim>)},
                      l.device_shape(), l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.d_o.as<const T>(),
                      statistics_of(l), l.dk.as<T>(), l.dv.as<T>());
      runtime::launch(gradient_of_queries<T, dim>,
                      {.grid = grid_of(ceil_div(a.seq_q, tile_rows), a.heads, a.batch),
                       .block = tile_threads,
                       .shared_bytes = sizeof(QueriesSmem<T, dim>)},
                      l.device_shape(), l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.d_o.as<const T>(),
                      statistics_of(l), l.dq.as<T>());
    });
    repair(l, device::any_shape(l.device_shape()));
  });
}

template <class T, int dim>
struct OneKernel : Block<KeysSmem<T, dim>, tile_keys, tile_threads> {
  static constexpr auto kernel = backward_one_kernel<T, dim, SumsByRow>;
  static constexpr bool by_lane = false;
};
// For compute capability 8.0.
template <class T, int dim>
struct PipelineFor80 : Block<PipelineSmem<T, dim>, tile_keys, tile_threads> {
  static constexpr auto kernel = backward_pipeline<T, dim, false>;
  static constexpr bool by_lane = true;
};
template <class T, int dim>
struct TransposedFor80 : Block<TransposedSmem<T, dim>, tile_keys, tile_threads> {
  static constexpr auto kernel = backward_transposed<T, dim, false>;
  static constexpr bool by_lane = true;
};

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

std::size_t keys_bytes(const Backward& a) {
  return with_at_least<32, 64, 96, 128>(a.dim, [](auto dim) { return sizeof(KeysSmem<__half, dim>); });
}

const AttentionSupport tiles_16_bit = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {32, 64, 96, 128}, .window = true, .row_alignment = 16};
// dK and dV of 32 longer rows do not fit into the registers of a warp.
const AttentionSupport short_rows = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {32, 64}, .window = true, .row_alignment = 16};
const AttentionSupport long_rows = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {96, 128}, .window = true, .row_alignment = 16};
const AttentionSupport any_16_bit = {.dtypes = {Dtype::fp16, Dtype::bf16}, .window = true};
const AttentionSupport any = {.dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16}, .window = true};

AttentionSupport with_options(AttentionSupport supports, bool both = false) {
  supports.packed = supports.dropout = true;
  supports.packed_dropout = both;
  return supports;
}

// ---- the best for a shape ----

// A rung, and its main kernel: by the head dim, and by whether all rows begin at multiples of 16 bytes.
struct Choice {
  const char* kernel;
  Rung rung;
};
const Choice by_recompute = {"backward_recompute", {launch_recompute, recompute_bytes, "convert_dq"}};
Choice tuned(const Backward& a, bool aligned) {
  if (!aligned || !is_tuned_dim(a.dim)) return {"backward_any_dim", any_dim()};
  if (a.dim <= 64) return {"backward_tuned_64", shared_64()};
  return {"backward_tuned_128", shared_128()};
}
Choice tuned_80(const Backward& a, bool aligned) {
  if (a.dim > 192) return by_recompute;  // any_dim does not fit 99 KB there
  if (!aligned || !is_tuned_dim(a.dim))
    return {"backward_any_dim", {launch_any_dim<false>, any_dim_bytes<false>, "convert_padded"}};
  if (a.dim <= 96) return {"backward_pipeline", shared_rung_of<PipelineFor80, 32, 64, 96>()};
  return {"backward_transposed", shared_rung_of<TransposedFor80, 128>()};
}

template <Choice (*choice)(const Backward&, bool)>
void launch_best(const BackwardLaunch& l) {
  choice(l.shape, has_aligned_rows(l)).rung.launch(l);
}
run::Arrays best_arrays(const Backward& a) { return with_parts(any_dim_arrays(a), a); }
template <Choice (*choice)(const Backward&, bool)>
std::size_t best_bytes(const Backward& a) {  // at most
  return std::max(choice(a, true).rung.shared_bytes(a), choice(a, false).rung.shared_bytes(a));
}
template <Choice (*choice)(const Backward&, bool)>
Costs best_costs(const Backward& a) {
  const std::string kernel = choice(a, true).kernel;
  if (kernel == "backward_recompute") return recompute_costs(a);
  if (kernel == "backward_any_dim") return any_dim_costs(a);
  return with_add_parts(a, tiled_costs(a, kernel), 2);
}

// Apart from the step: g++ 12 takes the empty pointer of a temporary for one that is not initialised.
const Backward default_shape{{.heads = 4, .kv_heads = 4, .seq_q = 128, .seq_k = 128, .dim = 64, .dtype = Dtype::fp16}};

const std::vector<BackwardVariant> variants = {
    {.name = "standard",
     .idea = "P, dP and dS through global memory, a kernel for each product",
     .supports = any,
     .scratch = standard_arrays,
     .cost = standard_costs,
     .launch = launch_standard},
    {.name = "recompute",
     .idea = "a block has a tile of keys and makes P and dS again, tile by tile; dQ is added up in global memory",
     .supports = with_options(any, true),
     .shared_bytes = recompute_bytes,
     .scratch = sums_arrays,
     .cost = recompute_costs,
     .launch = launch_recompute,
     .deterministic = false},
    {.name = "two_kernels",
     .idea = "all products by mma.sync; a second kernel makes dQ, with S and dP once more",
     .supports = tiles_16_bit,
     .shared_bytes = keys_bytes,
     .scratch = statistics_arrays,
     .cost = two_kernels_costs,
     .launch = launch_two_kernels},
    rung("one_kernel", "five products: dQ from the same dS, added up in global memory", tiles_16_bit, "backward_one_kernel",
         rung_of<OneKernel, 32, 64, 96, 128>()),
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
    rung("tuned_128", "four warps make P and dV, four make dS, dK and dQ", with_options(long_rows), "backward_tuned_128",
         tuned_128(), 90),
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
     .shared_bytes = any_dim_bytes<true>,
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
