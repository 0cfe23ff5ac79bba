// 08_few_tokens, ring: weights through rings in shared memory, and warps that split rows.
// Predecessor: 05_row_groups.cuh
//
// The weights in flight of `row_groups` are destinations of loads: half of a thread's registers wait for memory. And its warps
// split k, so that the block adds 16 sums for each element of C. Here cp.async copies the weights to shared memory, and the
// warps split rows: a warp's sums are whole. ggml and Marlin do it like this.
//
//   block    16 · groups · warps rows of B
//   warp     16 · groups rows, all k, in tiles of 128 k: 256 bytes of each row. It has a ring of its own, so the loop has no
//            barrier of the block
//   lane     copies 16 bytes of every second row, and reads the same fragments as before, 16 bytes each. It holds the tokens of
//            the next tile in registers
//
//   Smem     ring[warps][stages][16 · groups][128]   chunk c of row r lies at c ^ 4 (r % 2): all rows begin in the same bank,
//   and
//            a quarter of a warp reads four chunks of two rows
//
// What to expect: 14336 × 4096 at the speed of `row_groups`, and 4096 × 4096 much slower, because a block has 128 rows, and 32
// blocks leave 100 of 132 SMs idle.
#pragma once

#include "common/device/ptx/shared_memory.cuh"
#include "steps/08_few_tokens/fragment_sums.cuh"
#include "steps/08_few_tokens/tiles.cuh"

namespace few_tokens {

// The product of a warp: its rows of weights by all tokens, over k in `range`.
template <class W, class A, int TOK, class Tile>
struct RingProduct {
  static constexpr int blocks = TOK / token_block, slots = Tile::k / slot;
  const W* first;  // this lane's first chunk of the warp's rows
  std::int64_t stride;
  int rows_left;  // from this lane's first row
  KRange range;
  W (&ring)[Tile::stages][Tile::warp_rows][Tile::k];
  LaneTokens<A, TOK> lane_tokens;
  Chunk<A> chunks[slots][blocks];  // of the next tile
  float sums[Tile::groups][blocks][4] = {};

  __device__ RingProduct(RingSmem<W, Tile>& smem, const Shape& shape, const Entry& entry, const Matrices<const A>& tokens,
                         const Matrices<const W>& weights, int first_row, KRange k)
      : stride(weights.row_stride), range(k), ring(smem.ring[threadIdx.x / 32]), lane_tokens(shape, entry, tokens, k.end) {
    const int row = first_row + threadIdx.x / 32 * Tile::warp_rows + copied_row();
    first = weights.row(entry.weight_sample, entry.weight_channel, row) + copied_chunk() * chunk;
    rows_left = shape.n - row;
  }

  __device__ static int copied_row() { return threadIdx.x % 32 / 16; }
  __device__ static int copied_chunk() { return threadIdx.x % 16; }
  __device__ static int swizzled(int row, int chunk_of_row) { return (chunk_of_row ^ row % 2 * 4) * chunk; }

  // Starts to copy the tile at k; zeros come from outside of the matrix.
  __device__ void request_weights(int k, int stage) {
#pragma unroll
    for (int i = 0; i < Tile::warp_rows; i += 2) {
      const bool inside = i < rows_left && k + copied_chunk() * chunk < range.end;
      ptx::cp_async_16(&ring[stage][i + copied_row()][swizzled(copied_row(), copied_chunk())],
                       first + (inside ? i * stride + k : 0), inside ? 16 : 0);
    }
    ptx::cp_async_commit_group();
  }
  __device__ void request_first_weights() {
#pragma unroll
    for (int stage = 0; stage < Tile::stages - 1; ++stage) request_weights(range.begin + stage * Tile::k, stage);
  }
  __device__ void request_tokens(int k) {
#pragma unroll
    for (int s = 0; s < slots; ++s) lane_tokens.request(chunks[s], k + s * slot);
  }

  // [doc: ring_loop]
  __device__ void multiply() {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int stage = 0;
    for (int k = range.begin; k < range.end; k += Tile::k) {
      uint4 operands[slots][blocks];
#pragma unroll
      for (int i = 0; i < slots * blocks; ++i) operands[i / blocks][i % blocks] = operand<W>(chunks[i / blocks][i % blocks]);
      request_tokens(k + Tile::k);
      ptx::cp_async_wait_group<Tile::stages - 2>();  // this lane's copies of this tile have come
      __syncwarp();  // so have the other lanes'; and all lanes have read the stage that is filled next
      request_weights(k + (Tile::stages - 1) * Tile::k, stage == 0 ? Tile::stages - 1 : stage - 1);
#pragma unroll
      for (int s = 0; s < slots; ++s) {
#pragma unroll
        for (int r = 0; r < Tile::groups; ++r) {
          const uint4* low = reinterpret_cast<const uint4*>(&ring[stage][r * group + g][swizzled(g, s * 4 + t)]);
          const uint4 rows[] = {load(low), load(low + 8 * Tile::k / chunk)};
#pragma unroll
          for (int b = 0; b < blocks; ++b) multiply_slot<W>(sums[r][b], rows[0], rows[1], operands[s][b]);
        }
      }
      stage = stage + 1 == Tile::stages ? 0 : stage + 1;
    }
  }
  // [/doc: ring_loop]
};

// Grid: x over tiles of rows of B, y and z over the batch. TOK: 8 or 16, m or more. k is a multiple of 8, and all rows begin at
// multiples of 16 bytes.
template <class W, class A, int TOK, class Tile>
__global__ void __launch_bounds__(Tile::threads)
    ring_product(Shape shape,
                 Matrices<const A> tokens,   // [samples, channels, m, k]
                 Matrices<const W> weights,  // [weight samples, weight channels, n, k]
                 Epilogue<W> epilogue) {
  if (!has_entry(shape)) return;
  auto& smem = device::shared_storage<RingSmem<W, Tile>>();
  const Entry entry = entry_of(shape, entry_number());
  const int first_row = blockIdx.x * Tile::rows;
  RingProduct<W, A, TOK, Tile> product(smem, shape, entry, tokens, weights, first_row, {0, shape.k});
  product.request_first_weights();
  product.request_tokens(0);
  product.multiply();
  store_fragments<Tile, TOK>(shape, entry, epilogue, first_row, product.sums);
}

}  // namespace few_tokens
