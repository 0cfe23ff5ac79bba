// 08_few_tokens, experts_tiled: many tokens an expert. Tiles of pairs by tiles of rows, both through shared memory.
// Predecessor: 11_experts.cuh (option: many tokens an expert)
//
// `experts` reads a tile of weights again for each 16 pairs, and multiplies it with one mma a load. From a few dozen pairs an
// expert on, that is the loop of a matrix product with the wrong tile. Here is the tile of step 02: 128 pairs by 128 rows, a
// ring of four stages that cp.async fills, ldmatrix, and 16 mma for 6 of them.
//
// Only the rows of A are special: row r of a tile is the token of the tile's pair r. A thread copies the same two rows of every
// stage, so it asks `order` for them once. An expert's last tile is not padded in memory: rows behind its last pair are filled
// with zeros by copies of no bytes, and not stored.
//
// The host does not know how many tiles each expert has; there are at most ⌈pairs / 128⌉ + experts. A block finds the expert of
// its tile by walking over `bounds`, and leaves if there is none.
//
//   block    128 pairs of one expert by 128 rows of B
//   warp     64 pairs by 32 rows, as in step 02
//   thread   of each stage two chunks of A, two of B
//   Smem     stage[4]: a[128][32 + 8], b[128][32 + 8]; the padding puts 8 rows into different banks, for ldmatrix
//
// What to expect: at 64 pairs an expert half of a tile is zeros, and the weights are read once instead of four times. At 512,
// half of a tensor-core rate that step 02's tuned kernel reaches.
#pragma once

#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "steps/08_few_tokens/chunk.cuh"
#include "steps/08_few_tokens/routing.cuh"

namespace few_tokens {

constexpr int tiled_pairs = 128, tiled_rows = 128;  // of a block
constexpr int tiled_k = 32, tiled_stages = 4;
constexpr int tiled_threads = 256;

template <class W>
struct TiledSmem {
  struct Stage {
    alignas(16) W a[tiled_pairs][tiled_k + chunk];
    alignas(16) W b[tiled_rows][tiled_k + chunk];
  } stage[tiled_stages];
};

struct PairTile {
  int expert, first, count;  // places in `order`; count 0: there is no such tile
};

// [doc: tile_of_pairs]
__device__ inline PairTile tile_of_pairs(const int* bounds, int experts, int tile) {
  for (int expert = 0; expert < experts; ++expert) {
    const int begin = bounds[expert], end = bounds[expert + 1], tiles = ceil_div(end - begin, tiled_pairs);
    const int first = begin + tile * tiled_pairs;
    if (tile < tiles) return {expert, first, min(end - first, tiled_pairs)};
    tile -= tiles;
  }
  return {0, 0, 0};
}
// [/doc: tile_of_pairs]

// Grid: x over tiles of rows of B, and slower over tiles of pairs. k is a multiple of 8, and all rows begin at multiples of 16
// bytes.
template <class W>
__global__ void __launch_bounds__(tiled_threads, 2) tiled_experts_product(Shape shape, Routing routing,
                                                                          Matrices<const W> tokens,   // [m, k]
                                                                          Matrices<const W> weights,  // [experts, n, k]
                                                                          const int* bounds,          // [experts + 1]
                                                                          const int* order,           // [pairs]
                                                                          float* sums) {              // [pairs, n]
  auto& smem = device::shared_storage<TiledSmem<W>>();
  const int row_tiles = ceil_div(shape.n, tiled_rows), first_row = blockIdx.x % row_tiles * tiled_rows;
  const PairTile tile = tile_of_pairs(bounds, routing.count, blockIdx.x / row_tiles);
  if (tile.count == 0) return;  // the whole block
  const int* pairs = order + tile.first;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_pair = warp / 4 * 64, warp_row = warp % 4 * 32;  // within the tile

  // ---- what this thread copies: a chunk of two rows of A and of B ----
  constexpr int chunks_a_row = tiled_k / chunk, rows_a_turn = tiled_threads / chunks_a_row;
  const int copy_row = threadIdx.x / chunks_a_row, copy_k = threadIdx.x % chunks_a_row * chunk;
  const W *a_row[2], *b_row[2];
  bool has_a[2], has_b[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = copy_row + i * rows_a_turn;
    has_a[i] = row < tile.count;
    has_b[i] = first_row + row < shape.n;
    a_row[i] = tokens.row(0, 0, has_a[i] ? pairs[row] / routing.top : 0) + copy_k;
    b_row[i] = weights.row(0, tile.expert, has_b[i] ? first_row + row : 0) + copy_k;
  }
  const auto copy_stage = [&](int number) {
    const int k = number * tiled_k;
    if (k >= shape.k) return;
    auto& stage = smem.stage[number % tiled_stages];
    const bool inside = k + copy_k < shape.k;
    const int at = inside ? k : 0;  // where nothing is read, the address is still one of the row
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = copy_row + i * rows_a_turn;
      ptx::cp_async_16(&stage.a[row][copy_k], a_row[i] + at, inside && has_a[i] ? 16 : 0);
      ptx::cp_async_16(&stage.b[row][copy_k], b_row[i] + at, inside && has_b[i] ? 16 : 0);
    }
  };

  // ---- prologue ----
  for (int number = 0; number < tiled_stages - 1; ++number) {
    copy_stage(number);
    ptx::cp_async_commit_group();  // an empty group, too: the waits below count groups
  }
  // ---- main loop ----
  float acc[4][4][4] = {};
  for (int number = 0; number * tiled_k < shape.k; ++number) {
    ptx::cp_async_wait_group<tiled_stages - 2>();  // this thread's part of this stage has come
    __syncthreads();                               // so has everyone's; and everyone has read the stage that is filled next
    copy_stage(number + tiled_stages - 1);
    ptx::cp_async_commit_group();
    const auto& stage = smem.stage[number % tiled_stages];
#pragma unroll
    for (int k = 0; k < tiled_k; k += 16) {
      std::uint32_t a[4][4], b[2][4];
#pragma unroll
      for (int p = 0; p < 4; ++p) ptx::ldmatrix_x4(a[p], &stage.a[warp_pair + 16 * p + lane % 16][k + lane / 16 * chunk]);
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        ptx::ldmatrix_x4(b[q], &stage.b[warp_row + 16 * q + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * chunk]);
      }
#pragma unroll
      for (int p = 0; p < 4; ++p) {
#pragma unroll
        for (int q = 0; q < 4; ++q) ptx::mma_m16n8k16<W>(acc[p][q], a[p], {b[q / 2][q % 2 * 2], b[q / 2][q % 2 * 2 + 1]});
      }
    }
  }
  // ---- epilogue ----
#pragma unroll
  for (int p = 0; p < 8; ++p) {  // two rows of each of the four fragments
    const int row = warp_pair + 8 * p + lane / 4;
    if (row >= tile.count) continue;
    float* to = sums + std::int64_t{pairs[row]} * shape.n;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int j = first_row + warp_row + i / 2 * 8 + lane % 4 * 2 + i % 2;
      if (j < shape.n) to[j] = acc[p / 2][i / 2][p % 2 * 2 + i % 2];
    }
  }
}

}  // namespace few_tokens
