// 98_gather, warp_per_row: rows that ids name, one warp a row.
//
// This step is here to be copied, with its family: tests/tools/test_toy_step.py adds them to a copy of the project.
//
//   warp    one row of y, or of the rows that no id names; or 32 rows of x, of which it counts how many ids name them
#pragma once

#include "common/device/dialect.h"

namespace gather {

constexpr int warps = 4;  // of a block

// Grid: x over rows of y. A warp a row.
template <class T>
__global__ void take_rows(int ids, int cols, const T* x,  // [rows, cols]
                          const signed char* factors,     // [cols]
                          const int* id_of,               // [ids]
                          float* y) {                     // [ids, cols]
  const int n = static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x / 32);
  if (n >= ids) return;
  const T* row = x + std::int64_t{id_of[n]} * cols;
  for (int c = threadIdx.x % 32; c < cols; c += 32) {
    y[std::int64_t{n} * cols + c] = device::to_float(device::load(&row[c])) * static_cast<float>(factors[c]);
  }
}

// One warp, which has 32 rows of x at a time.
__global__ void count_rows(int rows, int ids, const int* id_of,  // [ids]
                           int* taken,                           // [rows]
                           int* missed_count,                    // [1]
                           int* missed) {                        // [missed_count], in room for [rows]
  int count = 0;
  for (int first = 0; first < rows; first += 32) {
    const int row = first + static_cast<int>(threadIdx.x);
    int named = 0;
    for (int n = 0; n < ids; ++n) named += id_of[n] == row ? 1 : 0;
    if (row < rows) taken[row] = named;
    const unsigned none = __ballot_sync(~0u, row < rows && named == 0);
    if ((none >> threadIdx.x & 1) != 0) missed[count + __popc(none & ((1u << threadIdx.x) - 1))] = row;
    count += __popc(none);
  }
  if (threadIdx.x == 0) *missed_count = count;
}

// Grid: x over rows of x, which are as many as may be missed. A warp a block.
template <class T>
__global__ void copy_rest(int cols, const T* x,     // [rows, cols]
                          const int* missed_count,  // [1]
                          const int* missed,        // [missed_count]
                          T* rest) {                // [missed_count, cols]
  const int n = static_cast<int>(blockIdx.x);
  if (n >= *missed_count) return;
  for (int c = threadIdx.x; c < cols; c += 32) {
    device::store(&rest[std::int64_t{n} * cols + c], device::load(&x[std::int64_t{missed[n]} * cols + c]));
  }
}

}  // namespace gather
