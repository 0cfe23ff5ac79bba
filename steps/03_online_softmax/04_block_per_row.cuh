// 03_online_softmax, block_per_row: a block per row, merged through shared memory.
// Predecessor: 03_warp_per_row.cuh
//
// A warp that walks a row of 16,384 columns makes 512 steps, each with one load of a lane in flight; and with few rows there
// are few warps. Here a block of 8 warps shares the row: 64 steps, and 8 times the loads in flight for a row.
//
// Lanes merge their states by shuffles as before. Then there are 8 states, one of each warp, and warps can only talk through
// shared memory: each writes its state, and after a barrier every warp reads all 8 and merges them again. All warps do this
// same work, and no time could be saved: if one warp did it alone, it would have to pass the result to the others, through a
// second barrier.
//
//   Smem   states[8]   (m, l) of each warp, 8 bytes each
//
// A lane without a warp's state brings the empty one, (−∞, 0): ⊕ leaves the others as they are.
//
// What to expect: the same 3 transfers for many rows; with few, long rows several times less time, because 8 warps share a row.
#pragma once

#include "steps/03_online_softmax/03_warp_per_row.cuh"

namespace online_softmax {

constexpr int block_threads = 256;

struct BlockSmem {
  SoftmaxState states[block_threads / 32];
};

// Grid: over rows. Blocks of block_threads.
template <class T>
__global__ void block_per_row_softmax(Shape shape,
                                      Rows<const T> x,  // [rows, cols]
                                      Rows<T> y) {      // [rows, cols]
  auto& smem = device::shared_storage<BlockSmem>();
  const int i = blockIdx.x, thread = threadIdx.x;
  const int warp = thread / 32, lane = thread % 32;

  // [doc: block_merge]
  const SoftmaxState mine = merge_lanes<T>(state_of_columns(x.row(i), shape.cols, thread, block_threads));
  if (lane == 0) store(&smem.states[warp], mine);
  __syncthreads();  // the states of all warps are written before any warp merges them
  const SoftmaxState row = merge_lanes<T>(lane < block_threads / 32 ? load(&smem.states[lane]) : SoftmaxState{});
  // [/doc: block_merge]
  write_columns(x.row(i), y.row(i), shape.cols, thread, block_threads, row);
}

}  // namespace online_softmax
