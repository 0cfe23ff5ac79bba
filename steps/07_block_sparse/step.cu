// Step 07, host side: what the step offers, sizes, launches.
#include "common/device/dispatch.h"
#include "common/run/family/any_step.h"
#include "common/run/family/packed.h"
#include "steps/07_block_sparse/01_test_per_block.cuh"
#include "steps/07_block_sparse/07_balanced.cuh"
#include "steps/07_block_sparse/backward.h"
#include "steps/07_block_sparse/estimates.h"
#include "steps/07_block_sparse/host.h"

namespace {

using namespace block_sparse;
using device::with_16_bit_type;
using device::with_at_least;
using problem::Attention;
using problem::Dtype;
using run::AttentionLaunch;
using run::AttentionSupport;
using run::AttentionVariant;

// Blocks of 64 queries have tiles of 64: a warp has 16 rows.
template <int dim, class S>
struct Tile128 : TunedTile<dim> {
  using Shape = S;
};
template <int dim, class S>
struct Tile64 : TunedTile<dim> {
  using Shape = S;
  static constexpr int slices = 1;
  static constexpr int rows = 64;
};

int tile_queries(const Attention& a) { return a.sparse && a.sparse->block_q % 128 != 0 ? 64 : 128; }
constexpr int tile_keys = 64;

PlanSizes sizes_of(const Attention& a, bool splits) { return query_sizes(a, tile_queries(a), tile_keys, splits); }

template <bool splits>
run::Arrays scratch_arrays(const Attention& a) {
  const PlanSizes sizes = sizes_of(a, splits);
  run::Arrays arrays = plan_arrays(sizes, ceil_div(a.seq_k, tile_keys));
  if (splits) {
    arrays.push_back(run::scratch("part_o", Dtype::fp32, {slots_of(sizes), sizes.tile_queries, a.dim}));
    arrays.push_back(run::scratch("part_states", Dtype::fp32, {slots_of(sizes), sizes.tile_queries, 2}));
  }
  return arrays;
}

Plan plan_of(const AttentionLaunch& l) {
  return {l.arrays.get<int>("tiles"), l.arrays.get<TileList>("lists"), l.arrays.get<WorkItem>("work")};
}

// Rungs: tiles of 128 queries, without packed sequences and dropout.
template <class T, int dim>
struct TestPerBlock {
  static constexpr auto kernel = sparse_test_per_block<T, Tile128<dim, AttentionShape>>;
};
template <class T, int dim>
struct List {
  static constexpr auto kernel = sparse_list<T, Tile128<dim, AttentionShape>>;
};
template <class T, int dim>
struct TwoLoops {
  static constexpr auto kernel = sparse_two_loops<T, Tile128<dim, AttentionShape>>;
};
template <class T, int dim>
struct Prefetch {
  static constexpr auto kernel = sparse_prefetch<T, Tile128<dim, AttentionShape>>;
};
template <class T, int dim>
struct Ordered {
  static constexpr auto kernel = sparse_ordered<T, Tile128<dim, AttentionShape>>;
};
template <class T, int dim>
struct ByToken {
  static constexpr auto kernel = sparse_tokens<T, Tile128<dim, AttentionShape>>;
};

enum class Needs { mask, lists, order, order_and_mask };  // what a rung's kernel is given

template <template <class, int> class Rung, Needs needs>
void launch_rung(const AttentionLaunch& l) {
  const PlanSizes sizes = sizes_of(l.shape, false);
  const Mask mask = device_mask(l);
  const AttentionShape shape = l.device_shape();
  if (needs != Needs::mask) launch_plan<QueryRow>(l, sizes, mask, shape, needs >= Needs::order);
  with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
    with_at_least<64, 128>(l.shape.dim, [&](auto dim) {
      constexpr std::size_t shared_bytes = sizeof(SparseSmem<T, Tile128<dim, AttentionShape>>);
      const dim3 tiles(static_cast<unsigned>(sizes.rows_of_head), static_cast<unsigned>(l.shape.heads),
                       static_cast<unsigned>(l.shape.batch));
      const runtime::LaunchConfig config{.grid = needs >= Needs::order ? dim3(static_cast<unsigned>(sizes.items)) : tiles,
                                         .block = tile_threads,
                                         .shared_bytes = shared_bytes};
      const auto launch = [&](const auto&... given) {
        runtime::launch(Rung<T, dim>::kernel, config, shape, given..., l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(),
                        l.o.as<T>(), l.lse);
      };
      if constexpr (needs == Needs::mask) {
        launch(mask);
      } else if constexpr (needs == Needs::order_and_mask) {
        launch(mask, plan_of(l));
      } else {
        launch(plan_of(l));
      }
    });
  });
}

template <template <int, class> class Tile>
void launch_tiled(const AttentionLaunch& l) {
  const Attention& a = l.shape;
  const PlanSizes sizes = sizes_of(a, true);
  const Mask mask = device_mask(l);
  const Parts parts{l.arrays.get<float>("part_o"), l.arrays.get<SoftmaxState>("part_states")};
  run::with_device_shape(l, [&]<class Shape>(const Shape& shape) {
    launch_plan<QueryRow>(l, sizes, mask, shape);
    with_16_bit_type(a.dtype, [&]<class T>(T) {
      with_at_least<32, 64, 96, 128>(a.dim, [&](auto dim) {
        using OneTile = Tile<dim, Shape>;
        runtime::launch(
            sparse_balanced<T, OneTile>,
            {.grid = static_cast<unsigned>(sizes.items), .block = tile_threads, .shared_bytes = sizeof(SparseSmem<T, OneTile>)},
            shape, mask, plan_of(l), l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), l.o.as<T>(), l.lse, parts);
        runtime::launch(
            merge_parts<T, OneTile>,
            {.grid = dim3(static_cast<unsigned>(sizes.most_splits()), OneTile::rows / merge_warps), .block = 32 * merge_warps},
            l.device_shape(), sizes, l.arrays.get<int>("split_rows"), l.arrays.get<Rank>("ranks"), parts, l.o.as<T>(), l.lse);
      });
    });
  });
}
void launch_balanced(const AttentionLaunch& l) {
  if (tile_queries(l.shape) == 64) return launch_tiled<Tile64>(l);
  launch_tiled<Tile128>(l);
}

// Heads that stream by token have more edges than the first rungs know.
const AttentionSupport by_block = {.dtypes = {Dtype::fp16, Dtype::bf16},
                                   .dims = {64, 128},
                                   .window = true,
                                   .sparse_q = {128},
                                   .sparse_k = {64, 128},
                                   .row_alignment = 16};
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

std::size_t shared_bytes(const Attention& a) {
  return with_at_least<32, 64, 96, 128>(a.dim,
                                        [](auto dim) { return sizeof(SparseSmem<__half, Tile128<dim, AttentionShape>>); });
}
std::vector<problem::KernelCost> costs(const Attention& a, Needs needs, const std::string& kernel) {
  std::vector<problem::KernelCost> all;
  if (needs != Needs::mask) all = {{"count_tiles"}, {"add_up"}, {"write_lists"}};
  all.push_back(problem::flash_cost(a, kernel));
  if (kernel == "sparse_balanced") all.push_back({"merge_parts"});
  return run::with_options(a, all);
}

template <template <class, int> class Rung, Needs needs>
AttentionVariant rung(const std::string& name, std::string idea, const AttentionSupport& supports) {
  return {.name = name,
          .idea = std::move(idea),
          .supports = supports,
          .shared_bytes = shared_bytes,
          .scratch = needs == Needs::mask ? nullptr : scratch_arrays<false>,
          .cost = [=](const Attention& a) { return costs(a, needs, "sparse_" + name); },
          .launch = launch_rung<Rung, needs>};
}

const std::vector<AttentionVariant> variants = {
    rung<TestPerBlock, Needs::mask>("test_per_block", "step 05's tuned loop, with a test for each tile of keys", by_block),
    rung<List, Needs::lists>("list", "the live tiles come from a list, made once on the device", by_block),
    rung<TwoLoops, Needs::lists>("two_loops", "full tiles have a loop of their own, without masks", by_block),
    rung<Prefetch, Needs::lists>("prefetch", "the next index comes with the copies of a tile", by_block),
    rung<Ordered, Needs::order>("ordered", "long rows first, heavy heads first, the last heads together", by_block),
    rung<ByToken, Needs::order_and_mask>("tokens", "heads that stream by token: two more edges for partial tiles", with_tokens),
    {.name = "balanced",
     .idea = "rows above four times the mean are split, their parts merged by ⊕",
     .supports = any_16_bit,
     .shared_bytes = shared_bytes,
     .scratch = scratch_arrays<true>,
     .cost = [](const Attention& a) { return costs(a, Needs::order, "sparse_balanced"); },
     .launch = launch_balanced},
};

const Attention default_shape{.heads = 4, .kv_heads = 4, .seq_q = 256, .seq_k = 256, .dim = 64, .dtype = Dtype::fp16};

std::vector<problem::KernelCost> backward_costs(const problem::Backward& a) {
  const char* kernel = a.dim <= 64 ? "sparse_backward_64" : "sparse_backward_128";
  return run::with_options(a,
                           std::vector<problem::KernelCost>{{"count_tiles"},
                                                            {"add_up"},
                                                            {"write_lists"},
                                                            problem::prepare_cost(a, true, "prepare_chunks"),
                                                            problem::backward_cost(a, kernel, 5, problem::BackwardResult::all),
                                                            {"merge_columns"},
                                                            problem::convert_cost(a, "convert_blocks"),
                                                            {"repair_sparse"}});
}

const std::vector<run::BackwardVariant> backward_variants = {
    {.name = "backward",
     .idea = "lists of tiles of queries for each tile of keys",
     .supports = any_16_bit,
     .compute_capability = 90,
     .shared_bytes = backward_bytes,
     .scratch = backward_arrays,
     .cost = backward_costs,
     .launch = launch_backward,
     .deterministic = false},
};

// Each pass points at the other.
struct BothPasses {
  run::AttentionStep forward{{.name = "07_block_sparse",
                              .question = "How much time does a mask of blocks save?",
                              .default_shape = default_shape,
                              .default_variant = "balanced",
                              .variants = variants,
                              .estimates = [](const Attention&) { return forward_estimates(variants); }},
                             {},
                             &backward};
  run::BackwardStep backward{{.name = "07_block_sparse",
                              .question = "How much time does a mask of blocks save in the backward pass?",
                              .default_shape = {default_shape},
                              .default_variant = "backward",
                              .variants = backward_variants,
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
