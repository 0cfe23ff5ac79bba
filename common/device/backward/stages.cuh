// Of 06_backward/07_pipeline.cuh: shared memory of the rungs that copy tiles of queries ahead.
#pragma once

#include "common/device/backward/tensor_tile.cuh"

namespace backward {

template <class T, int rows, int dim>
struct Stage {
  Tile<T, rows, dim> q;
  Tile<T, rows, dim> d_o;
  alignas(16) float lse2[rows];
  alignas(16) float minus_delta[rows];
};
// Of 06_backward/08_keys_32.cuh: a warp has 32 keys.
constexpr int key_slices = 2;                                   // of 16 keys, of a warp
constexpr int wide_keys = 16 * key_slices * tile_threads / 32;  // of a block: 128
// Of 06_backward/08_keys_32.cuh: all of a block's.
template <class T, int dim>
struct Keys32Smem {
  Tile<T, wide_keys, dim> k;
  Tile<T, wide_keys, dim> v;
  Stage<T, tile_rows, dim> stage[2];
  Tile<T, wide_keys, tile_rows> ds[2];
};

}  // namespace backward
