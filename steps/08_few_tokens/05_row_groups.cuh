// 08_few_tokens, row_groups: a token's fragment serves several groups of rows, and slots of registers roll.
// Predecessor: 04_tensor_cores.cuh
//
// In `tensor_cores` a warp loads 16 rows of weights and, of the same k, all tokens: at 16 tokens as many bytes of tokens as of
// weights. They come from L2 or L1, and these have a rate, too. And each warp waits for its loads, multiplies, and only then
// requests the next: while it multiplies, it has no bytes in flight.
//
//   block    16 · groups rows of B
//   warp     every line number warp, warp + warps, … of these rows. It holds `slots` slots of 32 k in registers; as soon as the
//            mma of a slot are issued, the slot is requested anew, so that all slots but one are always in flight
//   lane     as before, for each group of 16 rows
//
//   Smem     as before: the sums of each warp
//
// Bytes in flight, of a block: 1 KB · groups · slots · warps. 2 groups, 2 slots and 16 warps: 64 KB.
//
// What to expect: 4096 × 4096 at 16 tokens takes a tenth less time, because the tokens are loaded 128 times instead of 256
// times, and no warp is ever without a request.
#pragma once

#include "steps/08_few_tokens/04_tensor_cores.cuh"
#include "steps/08_few_tokens/tiles.cuh"

namespace few_tokens {

template <class Tile, int TOK>
using RowSmem = WarpSums<Tile::warps, Tile::rows, TOK>;

// The product of a warp: the block's rows of weights by all tokens, over the warp's lines of k. Tokens: where they lie.
template <class W, class A, int TOK, class Tile, class Tokens = LaneTokens<A, TOK>>
struct WarpProduct {
  static constexpr int blocks = TOK / token_block, slots = Tile::slots;
  LaneWeights<W, Tile::groups> lane_weights;
  Tokens lane_tokens;
  int k, k_end;  // of slot 0
  uint4 rows[slots][Tile::groups][2];
  Chunk<A> chunks[slots][blocks];
  float sums[Tile::groups][blocks][4] = {};

  __device__ WarpProduct(const Shape& shape, const Entry& entry, const Tokens& tokens, const Matrices<const W>& weights,
                         int first_row)
      : lane_weights(shape, entry, weights, first_row, shape.k),
        lane_tokens(tokens),
        k(threadIdx.x / 32 * line),
        k_end(shape.k) {}

  // Where the warp's slot s begins, from slot 0. All lanes of a warp agree whether it is there.
  static constexpr int slot_k(int s) { return s / 2 * Tile::warps * line + s % 2 * slot; }
  __device__ bool has(int s) const { return k + slot_k(s) < k_end; }

  // Under a branch: loads that are only predicated, nvcc moves behind a later griddepcontrol.wait (09_dependent.cuh).
  __device__ void request_weights() {
#pragma unroll
    for (int s = 0; s < slots && has(s); ++s) lane_weights.request(rows[s], k + slot_k(s));
  }
  __device__ void request_tokens() {
#pragma unroll
    for (int s = 0; s < slots; ++s) lane_tokens.request(chunks[s], k + slot_k(s));
  }
  __device__ void multiply_slots(int s) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      const uint4 token = operand<W>(chunks[s][b]);
#pragma unroll
      for (int r = 0; r < Tile::groups; ++r) multiply_slot<W>(sums[r][b], rows[s][r][0], rows[s][r][1], token);
    }
  }
  // [doc: rolling_slots]
  __device__ void multiply() {
    for (; has(2 * slots - 1); k += slot_k(slots)) {
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        multiply_slots(s);
        lane_weights.request(rows[s], k + slot_k(s + slots));  // the registers of the slot are free again
        lane_tokens.request(chunks[s], k + slot_k(s + slots));
      }
    }
    for (; has(0); k += slot_k(slots)) {  // the last slots: not all are requested again
#pragma unroll
      for (int s = 0; s < slots; ++s) {
        if (has(s)) multiply_slots(s);
        if (!has(s + slots)) continue;
        lane_weights.request(rows[s], k + slot_k(s + slots));
        lane_tokens.request(chunks[s], k + slot_k(s + slots));
      }
    }
  }
  // [/doc: rolling_slots]
};

// Grid: x over tiles of rows of B, y and z over the batch. TOK: 8 or 16, m or more. k is a multiple of 8, and all rows begin at
// multiples of 16 bytes.
template <class W, class A, int TOK, class Tile>
__global__ void __launch_bounds__(Tile::threads)
    row_groups_product(Shape shape,
                       Matrices<const A> tokens,   // [samples, channels, m, k]
                       Matrices<const W> weights,  // [weight samples, weight channels, n, k]
                       Epilogue<W> epilogue) {
  if (!has_entry(shape)) return;
  auto& smem = device::shared_storage<RowSmem<Tile, TOK>>();
  const Entry entry = entry_of(shape, entry_number());
  const int first_row = blockIdx.x * Tile::rows;
  WarpProduct<W, A, TOK, Tile> product(shape, entry, {shape, entry, tokens, shape.k}, weights, first_row);
  product.request_weights();
  product.request_tokens();
  product.multiply();
  smem.put(product.sums);
  smem.store_total(shape, entry, epilogue, first_row);
}

}  // namespace few_tokens
