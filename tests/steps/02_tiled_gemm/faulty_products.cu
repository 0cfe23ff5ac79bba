// A product of one warp, and what people get wrong in it. No access is wrong in any of these, so only a check of C can tell.
#include "steps/02_tiled_gemm/06_swizzle.cuh"
#include "steps/02_tiled_gemm/host.h"
#include "tests/steps/02_tiled_gemm/faulty_products.h"

namespace faulty {
namespace {

using namespace tiled_gemm;

enum class Mistake {
  none,
  swizzle_on_one_side,
  a_in_the_order_of_b,
  b_in_the_order_of_a,
  a_registers_swapped,
  b_registers_swapped
};

constexpr int edge = 16;  // of the tile of C

struct ProductSmem {
  alignas(16) __half a[edge][tc_k];
  alignas(16) __half b[edge][tc_k];
};

// Grid: x over tiles, y over the batch. Blocks of one warp.
template <Mistake mistake>
__global__ void warp_product(Shape shape, Matrix<const __half> a, Matrix<const __half> b, Matrix<__half> c) {
  auto& smem = device::shared_storage<ProductSmem>();
  const TileOrigin tile = tile_origin(shape, edge, edge);
  const int batch = blockIdx.y;
  const int lane = threadIdx.x;
  // ldmatrix.x4 fills registers 0 … 3 from the rows that lanes 0 … 7, 8 … 15, 16 … 23 and 24 … 31 name.
  const int rows_first = lane % 16, then_columns = lane / 16 * chunk;  // A: two halves of the rows, then of k
  const int columns_second = lane / 8 % 2 * chunk,
            rows_last = lane / 16 * 8 + lane % 8;  // B: two halves of k, then of the rows
  constexpr bool a_wrong = mistake == Mistake::a_in_the_order_of_b, b_wrong = mistake == Mistake::b_in_the_order_of_a;
  const int a_row = a_wrong ? rows_last : rows_first, a_column = a_wrong ? columns_second : then_columns;
  const int b_row = b_wrong ? rows_first : rows_last, b_column = b_wrong ? then_columns : columns_second;

  float acc[2][4] = {};
  for (int first = 0; first < shape.k; first += tc_k) {
    for (int i = lane; i < edge * tc_k / chunk; i += 32) {
      const int row = i / (tc_k / chunk), t = i % (tc_k / chunk) * chunk;
      const int b_place = mistake == Mistake::swizzle_on_one_side ? t : swizzled(row, t);
      store(reinterpret_cast<uint4*>(&smem.a[row][swizzled(row, t)]),
            chunk_or_zero(a, batch, tile.row + row, first + t, shape.m, shape.k));
      store(reinterpret_cast<uint4*>(&smem.b[row][b_place]),
            chunk_or_zero(b, batch, tile.column + row, first + t, shape.n, shape.k));
    }
    __syncwarp();  // both tiles are written before other lanes read them
    for (int step = 0; step < tc_k; step += 16) {
      std::uint32_t a_frag[4], b_frag[4];
      ptx::ldmatrix_x4(a_frag, &smem.a[a_row][swizzled(a_row, step + a_column)]);
      ptx::ldmatrix_x4(b_frag, &smem.b[b_row][swizzled(b_row, step + b_column)]);
      if (mistake == Mistake::a_registers_swapped) std::swap(a_frag[1], a_frag[2]);
      if (mistake == Mistake::b_registers_swapped) std::swap(b_frag[0], b_frag[1]);
      for (int q = 0; q < 2; ++q) {
        ptx::mma_m16n8k16<__half>(acc[q], a_frag, {b_frag[2 * q], b_frag[2 * q + 1]});
      }
    }
    __syncwarp();  // everyone has read the tiles before the next ones overwrite them
  }
  for (int q = 0; q < 2; ++q) {
    for (int e = 0; e < 4; ++e) {
      const int i = tile.row + e / 2 * 8 + lane / 4, j = tile.column + 8 * q + lane % 4 * 2 + e % 2;
      store_if(i < shape.m && j < shape.n, &c.row(batch, i)[j], from_float<__half>(acc[q][e]));
    }
  }
}

template <Mistake mistake>
run::GemmVariant product(const char* name) {
  return {.name = name,
          .idea = "a warp for each 16 × 16 elements of C",
          .supports = {.dtypes = {problem::Dtype::fp16}, .k_multiple = chunk, .ld_multiple = chunk},
          .shared_bytes = [](const problem::Gemm&) { return sizeof(ProductSmem); },
          .cost = [](const problem::Gemm& g) { return std::vector{problem::gemm_cost(g)}; },
          .launch =
              [](const run::GemmLaunch& l) {
                launch_tiles<__half>(l, warp_product<mistake>, edge, edge, 32, sizeof(ProductSmem));
              }};
}

}  // namespace

std::vector<run::GemmVariant> products() {
  return {product<Mistake::none>("none"),
          product<Mistake::swizzle_on_one_side>("swizzle on one side"),
          product<Mistake::a_in_the_order_of_b>("A's fragment in the order of B's"),
          product<Mistake::b_in_the_order_of_a>("B's fragment in the order of A's"),
          product<Mistake::a_registers_swapped>("two registers of A swapped"),
          product<Mistake::b_registers_swapped>("two registers of B swapped")};
}

}  // namespace faulty
