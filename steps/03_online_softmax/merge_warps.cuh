// 03_online_softmax: the states of the warps that share a row, merged through shared memory as `block_per_row` does.
#pragma once

#include "steps/03_online_softmax/03_warp_per_row.cuh"

namespace online_softmax {

template <int block>
struct WarpStatesSmem {
  SoftmaxState states[block / 32];
};

// The states of a group's warps as one. All threads of the block must make the call.
template <class T, int group, int block>
__device__ SoftmaxState merge_warps(WarpStatesSmem<block>& smem, SoftmaxState warp_state) {
  if constexpr (group == 32) return warp_state;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr int warps = group / 32;
  if (lane == 0) store(&smem.states[warp], warp_state);
  __syncthreads();  // the states of all warps are written before any warp merges its group's
  return merge_lanes<T>(lane < warps ? load(&smem.states[warp / warps * warps + lane]) : SoftmaxState{});
}

}  // namespace online_softmax
