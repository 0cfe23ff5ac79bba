// Of 05_flash_v2/04_pipeline.cuh: rows of global memory to swizzled rows of shared memory, by cp.async.
#pragma once

#include "common/device/flash_v2/warp_tile.cuh"
#include "common/device/ptx/shared_memory.cuh"

namespace flash_v2 {

// Starts to copy `count` rows of a head, from `first` on, to swizzled rows of shared memory; rows from `end` on become zeros.
template <class T, int count, int dim>
__device__ void copy_rows(T (&to)[count][dim], const Heads<const T>& from, int batch, int head, int first, int end) {
#pragma unroll 4
  for (int i = 0; i < count * dim / chunk; i += tile_threads) {
    const int mine = i + threadIdx.x;
    const int row = mine / (dim / chunk), column = mine % (dim / chunk) * chunk;
    const bool inside = first + row < end;
    ptx::cp_async_16(&to[row][swizzled<dim>(row, column)], &from.row(batch, head, inside ? first + row : 0)[column],
                     inside ? 16 : 0);
  }
}

}  // namespace flash_v2
