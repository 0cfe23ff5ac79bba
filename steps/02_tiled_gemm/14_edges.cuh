// 02_tiled_gemm, edges: thin strips at the edges of C.
// Predecessor: 13_tuned.cuh (option: any M and N)
//
// A tile that holds one row or column of C takes as long as a full one. At 4097 × 4097 there are 49 such tiles, beside 512 full
// ones. On 132 SMs 512 tiles are 3.9 waves, and 561 are 4.3: the fifth wave costs as much as each of the others, for a
// thousandth of the work. So if the last row or column of tiles would hold at most 32 rows or columns of C, strips take it.
// They are 128 long and up to 32 wide. Their blocks come last, when some SMs have no tile any more.
//
//   right strips   rows of A are the long side, the last rows of B the short one
//   lower strips   the other way round: rows of B are long, and what comes out is a part of Cᵀ
//
//   block    8 warps, each 16 × 32
//   Smem     tuned, or strip.stage[8], each with longs[128][64] and shorts[32][64], swizzled (160 KB)
//
// What to expect: no time lost at 4097, because the strips fit into the last wave. A strip has 4 mma for 3 ldmatrix, so it
// waits for memory: 1.3 MB at k = 4096, which the 64 bytes per cycle of one SM's way to L2 bring in 12 µs; 8 stages are there
// to keep 140 KB in flight. There are 65 strips, and the fourth wave leaves 16 SMs free for some 65 µs: five strips for each of
// them.
#pragma once

#include "steps/02_tiled_gemm/07_pipeline.cuh"
#include "steps/02_tiled_gemm/13_tuned.cuh"

namespace tiled_gemm {

constexpr int strip_length = 128;
constexpr int strip_width = 32;
constexpr int strip_stages = 8;

template <class T>
struct StripSmem {
  struct Stage {
    alignas(16) T longs[strip_length][tc_k];
    alignas(16) T shorts[strip_width][tc_k];
  };
  Stage stage[strip_stages];
};

template <class T, class Tile>
union EdgesSmem {
  TunedSmem<T, Tile> tuned;
  StripSmem<T> strip;
};

// Rows first … end − 1 of a matrix; a strip takes as many of them as it can hold.
template <class T>
struct Rows {
  const T* data;  // of this entry of the batch
  std::int64_t stride;
  int first, end;

  __device__ const T* row(int i) const { return data + min(first + i, end - 1) * stride; }  // beyond the end: the last one
};

// The part of C that goes into tiles, and the blocks for it and for the rest.
struct Edges {
  int m, n;  // of the part in tiles
  int tiles, right, lower;

  __host__ __device__ int blocks() const { return tiles + right + lower; }
};

__host__ __device__ inline int without_thin_rest(int extent, int tile) {
  return extent % tile <= strip_width ? extent - extent % tile : extent;
}

template <class Tile>
__host__ __device__ Edges edges_of(const Shape& shape) {
  const int m = without_thin_rest(shape.m, Tile::rows), n = without_thin_rest(shape.n, Tile::columns);
  return {m, n, ceil_div(m, Tile::rows) * ceil_div(n, Tile::columns), n < shape.n ? ceil_div(m, strip_length) : 0,
          m < shape.m ? ceil_div(shape.n, strip_length) : 0};
}

// Products of rows of `longs` and rows of `shorts`. put(inside, i, j, value) gets the product of row i of `longs` and row j of
// `shorts`. `inside` says whether both rows exist.
template <class T, class Put>
__device__ void strip(StripSmem<T>& smem, int k, const Rows<T>& longs, const Rows<T>& shorts, Put put) {
  const int lane = threadIdx.x % 32;
  const int warp_row = threadIdx.x / 32 * 16;
  const int k_tiles = ceil_div(k, tc_k);

  // Copies as in `tuned`: this thread's chunk of every 32nd row.
  constexpr int pass = tc_threads / (tc_k / chunk);
  constexpr int copies = strip_length / pass;  // of long rows; and one of a short row
  const int copy_row = threadIdx.x / (tc_k / chunk);
  const int copy_t = threadIdx.x % (tc_k / chunk) * chunk;
  const T* from[copies];
#pragma unroll
  for (int i = 0; i < copies; ++i) from[i] = longs.row(copy_row + i * pass) + copy_t;
  const T* from_short = shorts.row(copy_row) + copy_t;
  const int to = swizzled(copy_row, copy_t);
  const auto copy_tile = [&](int k_tile) {
    auto& stage = smem.stage[k_tile % strip_stages];
    const int bytes = k_tile * tc_k + copy_t < k ? 16 : 0;  // zeros behind the last column
#pragma unroll
    for (int i = 0; i < copies; ++i) ptx::cp_async_16(&stage.longs[copy_row + i * pass][to], from[i] + k_tile * tc_k, bytes);
    ptx::cp_async_16(&stage.shorts[copy_row][to], from_short + k_tile * tc_k, bytes);
  };

  // ---- prologue ----
  for (int k_tile = 0; k_tile < strip_stages - 1; ++k_tile) {
    copy_tile(k_tile);
    ptx::cp_async_commit_group();
  }
  // ---- main loop ----
  float acc[4][4] = {};
#pragma unroll 1
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    ptx::cp_async_wait_group<strip_stages - 2>();
    __syncthreads();  // this k-tile is there, for everyone; and everyone has read the stage that is filled next
    copy_tile(k_tile + strip_stages - 1);  // copies of k-tile + 7; behind the last column, zeros that nobody waits for
    ptx::cp_async_commit_group();
    const auto& stage = smem.stage[k_tile % strip_stages];
#pragma unroll
    for (int step = 0; step < tc_k; step += 16) {
      std::uint32_t long_frag[4], short_frag[2][4];  // fragments of these 16 columns of k
      const int long_row = warp_row + lane % 16;
      ptx::ldmatrix_x4(long_frag, &stage.longs[long_row][swizzled(long_row, step + lane / 16 * chunk)]);
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int row = 16 * q + lane / 16 * 8 + lane % 8;
        ptx::ldmatrix_x4(short_frag[q], &stage.shorts[row][swizzled(row, step + lane / 8 % 2 * chunk)]);
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) {  // C += A B
        ptx::mma_m16n8k16<T>(acc[q], long_frag, {short_frag[q / 2][q % 2 * 2], short_frag[q / 2][q % 2 * 2 + 1]});
      }
    }
  }
  // ---- epilogue ----
#pragma unroll
  for (int q = 0; q < 4; ++q) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = longs.first + warp_row + e / 2 * 8 + lane / 4;
      const int j = shorts.first + 8 * q + lane % 4 * 2 + e % 2;
      put(i < longs.end && j < shorts.end, i, j, from_float<T>(acc[q][e]));
    }
  }
}

// Grid: x over tiles, then strips (edges_of), y over the batch. Blocks of Tile::threads. k is a multiple of 8, and so are the
// row strides of A and B.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads, 1) edges_gemm(Shape shape, Edges edges,
                                                               Matrix<const T> a,  // [batch, m, k]
                                                               Matrix<const T> b,  // [batch, n, k]
                                                               Matrix<T> c) {      // [batch, m, n]
  auto& smem = device::shared_storage<EdgesSmem<T, Tile>>();
  const int batch = blockIdx.y;
  const int block = blockIdx.x;
  if (block >= edges.tiles) {
    const bool right = block < edges.tiles + edges.right;
    const int first = (block - edges.tiles - (right ? 0 : edges.right)) * strip_length;
    const T* a_data = a.row(batch, 0);
    const T* b_data = b.row(batch, 0);
    const Rows<T> longs{right ? a_data : b_data, right ? a.row_stride : b.row_stride, first, right ? edges.m : shape.n};
    const Rows<T> shorts{right ? b_data : a_data, right ? b.row_stride : a.row_stride, right ? edges.n : edges.m,
                         right ? shape.n : shape.m};
    strip<T>(smem.strip, shape.k, longs, shorts, [&](bool inside, int i, int j, T value) {
      store_if(inside, right ? &c.row(batch, i)[j] : &c.row(batch, j)[i], value);
    });
    return;
  }
  const Shape in_tiles{edges.m, edges.n, shape.k};
  tuned_tile<T, Tile>(smem.tuned, in_tiles, grouped_origin<Tile>(in_tiles, block), batch, a, b, c);
}

}  // namespace tiled_gemm
