// 06_backward, fragment_order: dQ's sums in the order in which lanes hold them.
// Predecessor: 04_one_kernel.cuh
//
// `one_kernel` adds 8 numbers of each 16 × 16 block of dQ with 8 instructions, and each touches 8 sectors of 32 bytes, one for
// a row. But nobody reads the sums before they are complete. So they need not lie as a matrix does: here a block lies as a warp
// holds it, the four numbers of row g beside each other, lane after lane. One `red` of 16 bytes a lane adds 512 bytes in a row.
// The kernel that makes dQ of the sums puts them in order.
//
//     element (row, column) of a 16 × 16 block lies at 16 · row + 4 (column % 8 / 2) + 2 (column / 8) + column % 2
//
// The vector form of `red` needs compute capability 9.0. For 8.0 (`tuned_80`) the same four numbers are added one by one.
//
// What to expect: 8 `red` for a warp and tile instead of 32, and half of the sectors: 1.15 times `one_kernel`. The products are
// the same.
#pragma once

#include "steps/06_backward/04_one_kernel.cuh"

namespace backward {

constexpr int sums_block = 16 * 16;  // elements

__device__ inline int lane_in_block() { return threadIdx.x % 32 * 4; }
// A lane's eight numbers of a block: the accumulators of columns 0 … 7 and of 8 … 15. `vector`: by one instruction for each
// half.
template <bool vector>
__device__ void add_lane(float* place, const float (&left)[4], const float (&right)[4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float* to = place + 128 * r;
    if constexpr (vector) {
      ptx::red_add_v4_f32(to, left[2 * r], left[2 * r + 1], right[2 * r], right[2 * r + 1]);
    } else {
      ptx::red_add_f32(to, left[2 * r]);
      ptx::red_add_f32(to + 1, left[2 * r + 1]);
      ptx::red_add_f32(to + 2, right[2 * r]);
      ptx::red_add_f32(to + 3, right[2 * r + 1]);
    }
  }
}
template <bool vector>
__device__ void add_block(float* block, const float (&left)[4], const float (&right)[4]) {
  add_lane<vector>(block + lane_in_block(), left, right);
}

template <bool vector>
struct SumsByLane {
  template <class T, int dim>
  __device__ static void add(float* sums, const float (&ds)[key_frags][4], const Tile<T, tile_keys, dim>& k_tile) {
#pragma unroll
    for (int column = 0; column < dim; column += 16) {
      float acc[2][4] = {};
      multiply_ds(acc, ds, k_tile, column);
      add_block<vector>(&sums[column / 16 * sums_block], acc[0], acc[1]);
    }
  }
};

// dQ = scale · its sums. A thread has 16 columns of a row. Grid: x over them, y over heads, z over the batch. dim: a multiple
// of 16.
template <class T>
__global__ void __launch_bounds__(convert_threads)
    convert_blocks(AttentionShape shape, const float* dq_sums, RowStatistics rows,
                   Heads<T> dq) {  // [batch, heads, seq_q, dim]
  const std::int64_t n = std::int64_t{blockIdx.x} * convert_threads + threadIdx.x;
  const int head = blockIdx.y, batch = blockIdx.z;
  const int blocks = shape.dim / 16, i = static_cast<int>(n / blocks), block = static_cast<int>(n % blocks);
  if (i >= shape.seq_q) return;
  const float* from = &dq_sums[rows.at(shape, batch, head, i / 16 * 16) * shape.dim + block * 16 * 16 + i % 16 * 16];
  std::uint32_t words[2][4];  // columns 0 … 7 and 8 … 15
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const float4 sums = load(reinterpret_cast<const float4*>(from) + t);
    flag_non_finite(sums.x + sums.y + sums.z + sums.w, rows.flag(shape, batch, shape.kv_head(head)));
    words[0][t] = packed<T>(shape.scale * sums.x, shape.scale * sums.y);
    words[1][t] = packed<T>(shape.scale * sums.z, shape.scale * sums.w);
  }
  uint4* to = reinterpret_cast<uint4*>(&dq.row(batch, head, i)[16 * block]);
  store(to, make_uint4(words[0][0], words[0][1], words[0][2], words[0][3]));
  store(to + 1, make_uint4(words[1][0], words[1][1], words[1][2], words[1][3]));
}

}  // namespace backward
