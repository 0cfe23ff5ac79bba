// Of 06_backward/05_fragment_order.cuh: dQ's sums in the order in which lanes hold them, and the kernel that makes dQ of them.
// A block of 16 × 16 sums lies as `fragment_order` says.
#pragma once

#include "common/device/backward/rows.cuh"
#include "common/device/ptx/red.cuh"

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
  float sum = 0.0f;           // not finite where one of them is not
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const float4 sums = load(reinterpret_cast<const float4*>(from) + t);
    sum += sums.x + sums.y + sums.z + sums.w;
    words[0][t] = packed<T>(shape.scale * sums.x, shape.scale * sums.y);
    words[1][t] = packed<T>(shape.scale * sums.z, shape.scale * sums.w);
  }
  flag_non_finite(sum, rows.flag(shape, batch, shape.kv_head(head)));
  uint4* to = reinterpret_cast<uint4*>(&dq.row(batch, head, i)[16 * block]);
  store(to, make_uint4(words[0][0], words[0][1], words[0][2], words[0][3]));
  store(to + 1, make_uint4(words[1][0], words[1][1], words[1][2], words[1][3]));
}

}  // namespace backward
