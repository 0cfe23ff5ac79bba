// 08_few_tokens, split_k: several blocks share the rows of one, and each takes a part of k.
// Predecessor: 06_ring.cuh
//
// A block of `ring` has 128 rows: at n = 4096 there are 32 blocks, and 100 of 132 SMs read nothing. Smaller blocks would read
// each token more often. Here `splits` blocks have the same rows and read different k. Each writes its sums to global memory,
// and a second kernel adds them in the order of k: the result is the same in every run.
//
//   block    rows of number blockIdx.x / splits, and part blockIdx.x % splits of the tiles of k
//   warp     as in `ring`
//
//   Smem     as in `ring`
//   parts    [entries, row tiles, splits, fragments of a thread, threads] four sums each, as the lanes hold them: lane by lane,
//            so that each warp writes and reads 512 contiguous bytes
//
// What to expect: 4096 × 4096 near the time of `row_groups`, plus one to two microseconds for the second launch.
#pragma once

#include "steps/08_few_tokens/06_ring.cuh"

namespace few_tokens {

// Part `part` of `splits` parts of k: whole tiles, as equal as they can be.
__host__ __device__ inline KRange part_of_k(int k, int tile, int part, int splits) {
  const std::int64_t tiles = ceil_div(k, tile);
  const std::int64_t begin = tiles * part / splits * tile, end = tiles * (part + 1) / splits * tile;
  return {static_cast<int>(begin), static_cast<int>(end < k ? end : k)};
}

// Where the sums of thread 0 lie, of one part of a tile of rows of this block's entry.
template <class Tile, int TOK>
__device__ float4* sums_of_part(float4* parts, int row_tile, int row_tiles, int part, int splits) {
  const std::int64_t number = (entry_number() * row_tiles + row_tile) * splits + part;
  return parts + number * fragments<Tile, TOK> * Tile::threads;
}

// Grid: x over tiles of rows of B and, within, over parts of k; y and z over the batch. TOK: 8 or 16, m or more. k is a
// multiple of 8, and all rows begin at multiples of 16 bytes.
template <class W, class A, int TOK, class Tile>
__global__ void __launch_bounds__(Tile::threads)
    split_k_product(Shape shape,
                    Matrices<const A> tokens,   // [samples, channels, m, k]
                    Matrices<const W> weights,  // [weight samples, weight channels, n, k]
                    int splits, float4* parts) {
  if (!has_entry(shape)) return;
  auto& smem = device::shared_storage<RingSmem<W, Tile>>();
  const int row_tile = blockIdx.x / splits, part = blockIdx.x % splits;
  const KRange range = part_of_k(shape.k, Tile::k, part, splits);
  RingProduct<W, A, TOK, Tile> product(smem, shape, entry_of(shape, entry_number()), tokens, weights, row_tile * Tile::rows,
                                       range);
  product.request_first_weights();
  product.request_tokens(range.begin);
  product.multiply();
  float4* mine = sums_of_part<Tile, TOK>(parts, row_tile, gridDim.x / splits, part, splits);
#pragma unroll
  for (int i = 0; i < fragments<Tile, TOK>; ++i) {
    constexpr int blocks = TOK / token_block;
    store(&mine[i * Tile::threads + threadIdx.x], as_vector(product.sums[i / blocks][i % blocks]));
  }
}

__device__ inline float4 sum(const float4& a, const float4& b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// C from the parts. Grid: x over tiles of rows, y and z over the batch.
template <class W, int TOK, class Tile>
__global__ void __launch_bounds__(Tile::threads) add_parts(Shape shape, int splits, float4* parts, Epilogue<W> epilogue) {
  if (!has_entry(shape)) return;
  const Entry entry = entry_of(shape, entry_number());
  const int first_row = blockIdx.x * Tile::rows;
#pragma unroll
  for (int i = 0; i < fragments<Tile, TOK>; ++i) {
    float4 total = {};
    for (int part = 0; part < splits; ++part) {
      const float4* sums = sums_of_part<Tile, TOK>(parts, blockIdx.x, gridDim.x, part, splits);
      total = sum(total, load(&sums[i * Tile::threads + threadIdx.x]));
    }
    store_fragment(shape, entry, epilogue, first_row + fragment_row<Tile, TOK>(threadIdx.x, i),
                   fragment_token<TOK>(threadIdx.x, i), total);
  }
}

}  // namespace few_tokens
