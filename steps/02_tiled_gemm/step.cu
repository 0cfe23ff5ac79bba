// Step 02, host side: what the step offers, sizes, launches.
#include "common/run/family/any_step.h"
#include "steps/02_tiled_gemm/01_element_per_thread.cuh"
#include "steps/02_tiled_gemm/02_shared_tile.cuh"
#include "steps/02_tiled_gemm/03_register_tile.cuh"
#include "steps/02_tiled_gemm/04_tensor_cores.cuh"
#include "steps/02_tiled_gemm/05_padding.cuh"
#include "steps/02_tiled_gemm/06_swizzle.cuh"
#include "steps/02_tiled_gemm/07_pipeline.cuh"
#include "steps/02_tiled_gemm/08_large_tiles.cuh"
#include "steps/02_tiled_gemm/09_double_buffering.cuh"
#include "steps/02_tiled_gemm/10_block_order.cuh"
#include "steps/02_tiled_gemm/11_wide_epilogue.cuh"
#include "steps/02_tiled_gemm/12_addresses.cuh"
#include "steps/02_tiled_gemm/13_tuned.cuh"
#include "steps/02_tiled_gemm/14_edges.cuh"
#include "steps/02_tiled_gemm/15_any_k.cuh"
#include "steps/02_tiled_gemm/host.h"

namespace {

using namespace tiled_gemm;
using problem::Dtype;
using problem::Gemm;
using run::GemmLaunch;
using run::GemmSupport;
using run::GemmVariant;

// Calls f(T{}) with the element type of the problem.
template <class F>
void with_type(Dtype dtype, F f) {
  if (dtype == Dtype::fp16) {
    f(__half{});
  } else {
    f(__nv_bfloat16{});
  }
}

using H = __half;  // what is said of shared memory holds for __nv_bfloat16, too: it is as large

// What a block computes, and what it takes.
struct Block {
  int rows, columns;  // of C
  dim3 threads;
  std::size_t shared_bytes;
};

const Block tc_block{tc_rows, tc_columns, tc_threads, sizeof(TensorCoreSmem<H>)};

template <class Tile, template <class, class> class Smem>
Block block_of() {
  return {Tile::rows, Tile::columns, Tile::threads, sizeof(Smem<H, Tile>)};
}

// A launch of kernel(T{}), the kernel for elements of type T.
template <class Kernel>
void launch(const GemmLaunch& l, const Block& block, Kernel kernel) {
  with_type(l.shape.dtype, [&]<class T>(T type) {
    launch_tiles<T>(l, kernel(type), block.rows, block.columns, block.threads, block.shared_bytes);
  });
}

using Tile64 = TunedTile<64>;
using Tile32 = TunedTile<32>;  // for GPUs with 99 KB of shared memory

const auto tuned_kernel = []<class T>(T) { return tuned_gemm<T, Tile64>; };

bool has_strips(const Gemm& g) {
  const Edges edges = edges_of<Tile64>(shape_of(g));
  return edges.right + edges.lower > 0;
}

void launch_edges(const GemmLaunch& l) {
  if (!has_strips(l.shape)) return launch(l, block_of<Tile64, TunedSmem>(), tuned_kernel);
  with_type(l.shape.dtype, [&]<class T>(T) {
    const Operands<T> o = operands<T>(l);
    const Edges edges = edges_of<Tile64>(shape_of(l.shape));
    const dim3 grid(static_cast<unsigned>(edges.blocks()), static_cast<unsigned>(l.shape.batch));
    runtime::launch(edges_gemm<T, Tile64>,
                    {.grid = grid, .block = Tile64::threads, .shared_bytes = sizeof(EdgesSmem<T, Tile64>)}, shape_of(l.shape),
                    edges, o.a, o.b, o.c);
  });
}

int padded(int k) { return ceil_div(k, chunk) * chunk; }

void launch_any_k(const GemmLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) {
    const Operands<T> o = operands<T>(l);
    GemmLaunch inner = l;
    const auto pad = [&](const char* name, Matrix<const T> from, int rows, int batch) {
      T* to = l.arrays.get<T>(name);
      const Matrix<T> target{to, std::int64_t{rows} * padded(l.shape.k), padded(l.shape.k)};
      runtime::launch(pad_rows<T>, {.grid = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(batch)), .block = 256},
                      l.shape.k, padded(l.shape.k), from, target);
      return to;
    };
    inner.a = pad("A padded", o.a, l.shape.m, l.shape.batch_a);
    inner.b = pad("B padded", o.b, l.shape.n, l.shape.batch);
    inner.shape.k = inner.shape.lda = inner.shape.ldb = padded(l.shape.k);
    inner.a_batch_stride = l.shape.batch_a == 1 ? 0 : std::int64_t{l.shape.m} * padded(l.shape.k);
    inner.b_batch_stride = std::int64_t{l.shape.n} * padded(l.shape.k);
    launch_edges(inner);
  });
}

run::Arrays padded_operands(const Gemm& g) {
  return {run::scratch("A padded", g.dtype, {g.batch_a, g.m, padded(g.k)}),
          run::scratch("B padded", g.dtype, {g.batch, g.n, padded(g.k)})};
}

problem::KernelCost pad_cost(int batch, int rows, int columns) {
  const double moved = double{2} * batch * rows;
  return {"pad_rows", 0, moved * columns, moved * padded(columns)};
}

std::size_t edges_shared_bytes(const Gemm& g) {
  return has_strips(g) ? sizeof(EdgesSmem<H, Tile64>) : sizeof(TunedSmem<H, Tile64>);
}

problem::KernelCost edges_cost(const Gemm& g) {
  problem::KernelCost cost = problem::gemm_cost(g);
  cost.kernel = has_strips(g) ? "edges_gemm" : "tuned_gemm";
  return cost;
}

// A variant of one kernel. kernel(T{}) is that for elements of type T.
template <class Kernel>
GemmVariant variant(std::string name, std::string idea, const GemmSupport& supports, const Block& block,
                    std::string kernel_name, Kernel kernel) {
  const auto cost = [=](const Gemm& g) {
    problem::KernelCost one = problem::gemm_cost(g);
    one.kernel = kernel_name;
    return std::vector{one};
  };
  return {.name = std::move(name),
          .idea = std::move(idea),
          .supports = supports,
          .shared_bytes = [=](const Gemm&) { return block.shared_bytes; },
          .cost = cost,
          .launch = [=](const GemmLaunch& l) { launch(l, block, kernel); }};
}

const GemmSupport any;
const GemmSupport chunks = {.k_multiple = chunk, .ld_multiple = chunk};  // rows that cp.async and 16-byte loads can read
const GemmSupport narrow = {
    .k_multiple = chunk, .ld_multiple = chunk, .max_ld = tuned_max_ld};  // 32 bits for offsets in a tile
const GemmSupport padded_narrow = {.max_k = tuned_max_ld};               // rows as long as k, padded

const std::vector<GemmVariant> variants = {
    variant("element_per_thread", "one thread per element of C, straight from global memory", any,
            {element_rows, 32, dim3(32, element_rows), 0}, "element_per_thread",
            []<class T>(T) { return element_per_thread<T>; }),
    variant("shared_tile", "tiles of A and B in shared memory, each element used 32 times", any,
            {shared_tile, shared_tile, dim3(shared_tile, shared_tile), sizeof(SharedTileSmem)}, "shared_tile_gemm",
            []<class T>(T) { return shared_tile_gemm<T>; }),
    variant("register_tile", "8 × 8 sums in the registers of a thread: one load for 16 multiply-adds", any,
            {register_block, register_block, register_threads, sizeof(RegisterTileSmem)}, "register_tile_gemm",
            []<class T>(T) { return register_tile_gemm<T>; }),
    variant("tensor_cores", "ldmatrix and mma.sync, rows of 128 bytes: eight-way bank conflicts", chunks, tc_block,
            "tensor_core_gemm", []<class T>(T) { return tensor_core_gemm<T>; }),
    variant("padding", "rows of 144 bytes: no conflicts, a ninth of the memory wasted", chunks,
            {tc_rows, tc_columns, tc_threads, sizeof(PaddedSmem<H>)}, "padded_gemm", []<class T>(T) { return padded_gemm<T>; }),
    variant("swizzle", "the chunks of a row in another order: no conflicts, nothing wasted", chunks, tc_block, "swizzled_gemm",
            []<class T>(T) { return swizzled_gemm<T>; }),
    variant("pipeline", "cp.async, three stages: copies beside the mma", chunks,
            {tc_rows, tc_columns, tc_threads, sizeof(PipelineSmem<H>)}, "pipelined_gemm",
            []<class T>(T) { return pipelined_gemm<T>; }),
    variant("large_tiles", "128 × 256 tiles of a block, 64 × 64 of a warp: 8 ldmatrix for 32 mma", chunks,
            block_of<Tile64, LargeTileSmem>(), "large_tile_gemm", []<class T>(T) { return large_tile_gemm<T, Tile64>; }),
    variant("double_buffering", "two sets of fragments: ldmatrix of the next step before the mma of this one", narrow,
            block_of<Tile64, LargeTileSmem>(), "double_buffered_gemm",
            []<class T>(T) { return double_buffered_gemm<T, Tile64>; }),
    variant("block_order", "blocks that run together take neighbouring tiles, and find their rows in L2", narrow,
            block_of<Tile64, LargeTileSmem>(), "block_order_gemm", []<class T>(T) { return block_order_gemm<T, Tile64>; }),
    variant("wide_epilogue", "rows of B permuted, so that a lane stores 16 bytes of C at once", narrow,
            block_of<Tile64, TunedSmem>(), "wide_epilogue_gemm", []<class T>(T) { return wide_epilogue_gemm<T, Tile64>; }),
    variant("addresses", "32-bit offsets made before the loop, one moving pointer, ldmatrix by XOR", narrow,
            block_of<Tile64, TunedSmem>(), "addresses_gemm", []<class T>(T) { return addresses_gemm<T, Tile64>; }),
    variant("tuned", "128 × 256 tiles, two sets of fragments, few instructions beside the mma", narrow,
            block_of<Tile64, TunedSmem>(), "tuned_gemm", tuned_kernel),
    variant("tuned_99k", "the same with k-tiles of 32, for GPUs with 99 KB of shared memory", narrow,
            block_of<Tile32, TunedSmem>(), "tuned_gemm", []<class T>(T) { return tuned_gemm<T, Tile32>; }),
    {.name = "edges",
     .idea = "the tuned tiles, and thin strips where C ends a little behind them",
     .supports = narrow,
     .shared_bytes = edges_shared_bytes,
     .cost = [](const Gemm& g) { return std::vector{edges_cost(g)}; },
     .launch = launch_edges},
    {.name = "any_k",
     .idea = "rows padded to a multiple of 16 bytes first, then the kernels of edges",
     .supports = padded_narrow,
     .shared_bytes = edges_shared_bytes,
     .scratch = padded_operands,
     .cost =
         [](const Gemm& g) {
           return std::vector{pad_cost(g.batch_a, g.m, g.k), pad_cost(g.batch, g.n, g.k), edges_cost(g)};
         },
     .launch = launch_any_k},
};

}  // namespace

namespace tiled_gemm {

run::AnyStep step() {
  static const run::GemmStep step{.name = "02_tiled_gemm",
                                  .question = "How does a matrix product reach the speed of the tensor cores?",
                                  .default_shape = {.m = 256, .n = 256, .k = 128, .dtype = Dtype::fp16},
                                  .default_variant = "tuned",
                                  .variants = variants,
                                  .next_best = {"tuned_99k"}};
  return &step;
}

}  // namespace tiled_gemm
