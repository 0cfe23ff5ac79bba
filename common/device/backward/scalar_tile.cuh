// Step 06, without tensor cores: rows in shared memory, in fp32, and rows that a warp adds up in its registers. A lane has
// every 32nd column.
#pragma once

#include "common/device/backward/rows.cuh"

namespace backward {

constexpr int recompute_keys = 32;  // of a block: one for each lane
constexpr int recompute_warps = 8;  // one for each query of a tile
constexpr int keys_of_warp = recompute_keys / recompute_warps;

template <int columns>
struct RecomputeSmem {
  float k[recompute_keys][32 * columns + 1];
  float v[recompute_keys][32 * columns + 1];
  float q[recompute_warps][32 * columns];
  float d_o[recompute_warps][32 * columns];
  float p[recompute_warps][recompute_keys];
  float ds[recompute_warps][recompute_keys];
};

// P and dS of a pair become those with dropout, where there is any; dp: without it.
template <class Shape>
__device__ inline void drop_pair(const Shape& shape, const RowStatistics& rows, int batch, int head, int i, int j, float dp,
                                 float& p, float& ds) {
  if constexpr (device::drops<Shape>) {
    const float weight = device::kept_weight(shape, batch, head, i, j);
    ds = p * (weight * dp + rows.minus_delta[rows.at(shape, batch, head, i)]);
    p *= weight;
  }
}

// A row of a head, by a warp.
template <class T>
__device__ inline void load_row(float* to, const T* row, int dim) {
  for (int t = threadIdx.x % 32; t < dim; t += 32) to[t] = to_float(load(&row[t]));
}

__device__ inline float element(const float* row, int t) { return row[t]; }
template <class T>
__device__ inline float element(const T* row, int t) {
  return to_float(load(&row[t]));
}

// acc += factor · row, of this lane's columns; the row may lie in shared or in global memory.
template <int columns, class T>
__device__ inline void add_row(float (&acc)[columns], float factor, const T* row, int dim) {
#pragma unroll
  for (int c = 0; c < columns; ++c) {
    const int t = 32 * c + threadIdx.x % 32;
    if (t < dim) acc[c] += factor * element(row, t);
  }
}
template <int columns, class T>
__device__ inline void store_row(T* row, float factor, const float (&acc)[columns], int dim) {
#pragma unroll
  for (int c = 0; c < columns; ++c) {
    const int t = 32 * c + threadIdx.x % 32;
    if (t < dim) store(&row[t], from_float<T>(factor * acc[c]));
  }
}

}  // namespace backward
