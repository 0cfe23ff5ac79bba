// Step 05, host side: what the step offers, sizes, launches.
#include "common/device/dispatch.h"
#include "common/run/family/any_step.h"
#include "common/run/family/packed.h"
#include "steps/05_flash_v2/01_scalar.cuh"
#include "steps/05_flash_v2/02_tensor_cores.cuh"
#include "steps/05_flash_v2/03_ldmatrix.cuh"
#include "steps/05_flash_v2/04_pipeline.cuh"
#include "steps/05_flash_v2/05_edge_masks.cuh"
#include "steps/05_flash_v2/06_folded_scale.cuh"
#include "steps/05_flash_v2/07_registers.cuh"
#include "steps/05_flash_v2/08_overlap.cuh"
#include "steps/05_flash_v2/09_addresses.cuh"
#include "steps/05_flash_v2/10_rows_32.cuh"
#include "steps/05_flash_v2/11_lazy_rescale.cuh"
#include "steps/05_flash_v2/12_tuned.cuh"
#include "steps/05_flash_v2/13_any_dim.cuh"
#include "steps/05_flash_v2/host.h"

namespace {

using namespace flash_v2;
using device::with_16_bit_type;
using device::with_at_least;
using device::with_type;
using problem::Attention;
using problem::Dtype;
using run::AttentionLaunch;
using run::AttentionSupport;
using run::AttentionVariant;

template <class F>
auto with_scalar_columns(int dim, F f) {  // 32 columns for each lane of a warp
  return with_at_least<2, 4, 8>(ceil_div(dim, 32), f);
}

void launch_scalar(const AttentionLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) {
    with_scalar_columns(l.shape.dim, [&](auto columns) {
      run::with_device_shape(l, [&]<class Shape>(const Shape& shape) {
        launch_tiles<T>(l, shape, flash_scalar<T, columns, Shape>, scalar_rows, scalar_threads, sizeof(ScalarSmem<columns>));
      });
    });
  });
}
std::size_t scalar_bytes(const Attention& a) {
  return with_scalar_columns(a.dim, [](auto columns) { return sizeof(ScalarSmem<columns>); });
}

// Each tensor-core rung, for one type and one head dim: a kernel, the shared memory of its block, and the block's queries.
template <class S, int queries = tile_rows>
struct Block {
  using Smem = S;
  static constexpr int rows = queries;
};
template <class T, int dim>
struct TensorCores : Block<TensorCoreSmem<T, dim>> {
  static constexpr auto kernel = flash_tensor_cores<T, dim>;
};
template <class T, int dim>
struct Ldmatrix : Block<TensorCoreSmem<T, dim>> {
  static constexpr auto kernel = flash_ldmatrix<T, dim>;
};
template <class T, int dim>
struct Pipeline : Block<PipelineSmem<T, dim>> {
  static constexpr auto kernel = flash_pipeline<T, dim>;
};
template <class T, int dim>
struct EdgeMasks : Block<PipelineSmem<T, dim>> {
  static constexpr auto kernel = flash_edge_masks<T, dim>;
};
template <class T, int dim>
struct FoldedScale : Block<PipelineSmem<T, dim>> {
  static constexpr auto kernel = flash_folded_scale<T, dim>;
};
template <class T, int dim>
struct Registers : Block<RecycledSmem<T, dim>> {
  static constexpr auto kernel = flash_registers<T, dim>;
};
template <class T, int dim>
struct Overlap : Block<OverlapSmem<T, dim>> {
  static constexpr auto kernel = flash_overlap<T, dim>;
};
template <class T, int dim>
struct Addresses : Block<RecycledSmem<T, dim>> {
  static constexpr auto kernel = flash_addresses<T, dim>;
};
template <class T, int dim>
struct Rows32 : Block<TunedSmem<T, TunedTile<dim>>, TunedTile<dim>::rows> {
  static constexpr auto kernel = flash_rows_32<T, TunedTile<dim>>;
};
template <class T, int dim>
struct LazyRescale : Block<TunedSmem<T, TunedTile<dim>>, TunedTile<dim>::rows> {
  static constexpr auto kernel = flash_lazy_rescale<T, TunedTile<dim>>;
};
template <class T, int dim>
struct Tuned : Block<TunedSmem<T, TunedTile<dim>>, TunedTile<dim>::rows> {
  static constexpr auto kernel = flash_tuned<T, TunedTile<dim>>;
  static constexpr auto packed = flash_tuned<T, PackedTile<dim>>;
  static constexpr auto dropped = flash_tuned<T, DroppedTile<dim>>;
};
template <class T, int dim>  // dims padded to `dim`
struct AnyDim : Block<typename AnyDimTile<T, dim>::Smem> {
  static constexpr auto kernel = flash_any_dim<T, dim>;
  static constexpr auto packed = flash_any_dim<T, dim, device::PackedShape>;
  static constexpr auto dropped = flash_any_dim<T, dim, device::Dropped<AttentionShape>>;
};

template <template <class, int> class Tiled, int... dims>
void launch_tiled(const AttentionLaunch& l) {
  with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
    with_at_least<dims...>(l.shape.dim, [&](auto dim) {
      using K = Tiled<T, dim>;
      run::with_device_shape(l, [&](const auto& shape) {
        run::with_kernel<K>(shape, [&](const auto& kernel) {
          launch_tiles<T>(l, shape, kernel, K::rows, tile_threads, sizeof(typename K::Smem));
        });
      });
    });
  });
}
template <template <class, int> class Tiled, int... dims>
std::size_t tiled_bytes(const Attention& a) {
  using H = __half;  // a __nv_bfloat16 is as large
  return with_at_least<dims...>(a.dim, [](auto dim) { return sizeof(typename Tiled<H, dim>::Smem); });
}

// `tuned` where it can, elsewhere `any_dim`.
bool is_tuned_dim(int dim) { return dim == 32 || dim == 64 || dim == 96 || dim == 128 || dim == 256; }

template <bool Const>
bool has_tuned_rows(const device::AnyHeads<Const>& x) {  // of elements of 16 bits
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && (x.batch_stride | x.head_stride | x.row_stride) % chunk == 0 &&
         x.row_stride <= tuned_max_row_stride;
}
void launch_tuned(const AttentionLaunch& l) {
  if (!is_tuned_dim(l.shape.dim) || !has_tuned_rows(l.q) || !has_tuned_rows(l.k) || !has_tuned_rows(l.v) ||
      !has_tuned_rows(l.o)) {
    return launch_tiled<AnyDim, 32, 64, 96, 128, 256>(l);
  }
  launch_tiled<Tuned, 32, 64, 96, 128, 256>(l);
}

// A variant of one kernel.
AttentionVariant variant(std::string name, std::string idea, const AttentionSupport& supports, std::string kernel,
                         std::function<std::size_t(const Attention&)> shared_bytes,
                         std::function<void(const AttentionLaunch&)> launch) {
  return {.name = std::move(name),
          .idea = std::move(idea),
          .supports = supports,
          .shared_bytes = std::move(shared_bytes),
          .cost = [=](const Attention& a) { return run::with_options(a, std::vector{problem::flash_cost(a, kernel)}); },
          .launch = std::move(launch)};
}

template <template <class, int> class Tiled, int... dims>
AttentionVariant tiled(std::string name, std::string idea, const AttentionSupport& supports, std::string kernel) {
  return variant(std::move(name), std::move(idea), supports, std::move(kernel), tiled_bytes<Tiled, dims...>,
                 launch_tiled<Tiled, dims...>);
}

const AttentionSupport any = {
    .dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16}, .window = true, .packed = true, .dropout = true, .packed_dropout = true};
const AttentionSupport any_16_bit = {.dtypes = {Dtype::fp16, Dtype::bf16}, .window = true, .packed = true, .dropout = true};
const AttentionSupport whole = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {32, 64, 128}, .window = true, .row_alignment = 16};
// Two sets of scores beside longer rows of O do not fit into the registers.
const AttentionSupport short_rows = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {32, 64}, .window = true, .row_alignment = 16};

const std::vector<AttentionVariant> variants = {
    variant("scalar", "the algorithm alone: queries outside, keys inside, O in registers", any, "flash_scalar", scalar_bytes,
            launch_scalar),
    tiled<TensorCores, 32, 64, 128>("tensor_cores", "mma.sync for both products; P stays in the registers it came out in",
                                    whole, "flash_tensor_cores"),
    tiled<Ldmatrix, 32, 64, 128>("ldmatrix", "fragments by ldmatrix, V's by ldmatrix.trans, from swizzled rows", whole,
                                 "flash_ldmatrix"),
    tiled<Pipeline, 32, 64, 128>("pipeline", "cp.async, two stages: one barrier for each tile of keys", whole,
                                 "flash_pipeline"),
    tiled<EdgeMasks, 32, 64, 128>("edge_masks", "masks and votes about NaNs only for tiles on the edge of what is seen", whole,
                                  "flash_edge_masks"),
    tiled<FoldedScale, 32, 64, 128>("folded_scale", "scale and maximum in one FMA for each score", whole, "flash_folded_scale"),
    tiled<Registers, 32, 64, 128>("registers", "Q in registers for all tiles of keys", whole, "flash_registers"),
    tiled<Overlap, 32, 64>("overlap", "tried: the next tile's scores are issued before this tile's softmax", short_rows,
                           "flash_overlap"),
    tiled<Addresses, 32, 64, 128>("addresses", "addresses of copies and fragments one operation away", whole,
                                  "flash_addresses"),
    tiled<Rows32, 32, 64, 128>("rows_32", "32 rows a warp: each fragment of K and V feeds two mma", whole, "flash_rows_32"),
    tiled<LazyRescale, 32, 64, 128>("lazy_rescale", "O is rescaled only where a row's maximum has grown by more than 8", whole,
                                    "flash_lazy_rescale"),
    {.name = "tuned",
     .idea = "copies of the next tile and exponentials of the next keys between the mma",
     .supports = any_16_bit,
     .shared_bytes = tiled_bytes<Tuned, 32, 64, 96, 128, 256>,  // never less than any_dim's
     .cost =
         [](const Attention& a) {
           const char* kernel = is_tuned_dim(a.dim) ? "flash_tuned" : "flash_any_dim";
           return run::with_options(a, std::vector{problem::flash_cost(a, kernel)});
         },
     .launch = launch_tuned},
    tiled<AnyDim, 32, 64, 96, 128, 256>("any_dim", "rows of any length at any address: narrower copies, padding with zeros",
                                        any_16_bit, "flash_any_dim"),
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
  if (a.is_packed() || a.dropout > 0 || (a.dim <= 64 && a.dtype == Dtype::fp16)) {
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
       .estimates = estimates}};
  return &step;
}

}  // namespace flash_v2
