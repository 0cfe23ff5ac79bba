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

#include "common/device/backward/rows.cuh"
#include "steps/06_backward/04_one_kernel.cuh"

namespace backward {

template <bool vector>
struct SumsByLane {
  template <class T, int dim>
  __device__ static void add(float* dq_sums, const float (&ds)[key_frags][4], const Tile<T, tile_keys, dim>& k_tile) {
#pragma unroll
    for (int column = 0; column < dim; column += 16) {
      float acc[2][4] = {};
      multiply_ds(acc, ds, k_tile, column);
      add_block<vector>(&dq_sums[column / 16 * sums_block], acc[0], acc[1]);
    }
  }
};

}  // namespace backward
