// Rows of Q, K and V in shared memory: how they come there, and where a lane finds its own.
#pragma once

#include <numeric>

#include "common/device/flash_v2/tile.cuh"
#include "common/device/ptx/shared_memory.cuh"

namespace flash_v2 {

// Of 05_flash_v2/04_pipeline.cuh: starts to copy `count` rows of a head, from `first` on, to swizzled rows of shared memory;
// rows from `end` on become zeros.
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

// Of 05_flash_v2/09_addresses.cuh: the byte offset of the chunk 16 · step columns to the right of the chunk at offset `bytes`.
// That chunk is in the same row, and is one of the two chunks of the row's first 16 columns.
// [doc: columns_beyond]
template <int dim>
__device__ int columns_beyond(int bytes, int step) {
  return dim % 64 == 0 ? bytes ^ 32 * step : (bytes ^ 32 * (step % 2)) + 64 * (step / 2);
}
// [/doc: columns_beyond]
template <class T>
__device__ const T* bytes_beyond(const T* start, std::int64_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(start) + bytes);
}

// Of 05_flash_v2/09_addresses.cuh: a thread's copies of the next tile of keys, which is whole: only the last of all keys may
// end early, and copy_rows brings that one. Of a tile's first `period` rows a thread copies `bases` chunks. `period` rows
// further down, a chunk has the same place in its row.
template <class T, int dim, int keys>
struct NextTile {
  // The fewest bases with which `period` is a multiple of 8: the swizzle repeats.
  static constexpr int bases = std::lcm(tile_threads, dim) / tile_threads, chunks = dim / chunk;
  static constexpr int period = tile_threads * bases / chunks, periods = keys / period;
  const int k_pitch, v_pitch;  // bytes of `period` rows
  int to[bases];               // element of stage.k, and of stage.v
  const T *k[bases], *v[bases];
  // Tile `first` is the next one.
  __device__ NextTile(const Heads<const T>& of_k, const Heads<const T>& of_v, const QueryTile& tile, int first)
      : k_pitch(static_cast<int>(of_k.row_stride) * period * int{sizeof(T)}),
        v_pitch(static_cast<int>(of_v.row_stride) * period * int{sizeof(T)}) {
#pragma unroll
    for (int i = 0; i < bases; ++i) {
      const int n = threadIdx.x + i * tile_threads, row = n / chunks, column = n % chunks * chunk;
      const std::int64_t key = std::int64_t{first} * keys + row;
      k[i] = of_k.row(tile.batch, tile.kv_head, 0) + key * of_k.row_stride + column;
      v[i] = of_v.row(tile.batch, tile.kv_head, 0) + key * of_v.row_stride + column;
      to[i] = row * dim + swizzled<dim>(row, column);
    }
  }
  // So many tiles further; below 0: to the left.
  __device__ void move(std::int64_t tiles) {
#pragma unroll
    for (int i = 0; i < bases; ++i) {
      k[i] = bytes_beyond(k[i], tiles * periods * k_pitch);
      v[i] = bytes_beyond(v[i], tiles * periods * v_pitch);
    }
  }
  // Starts copies first … end − 1 of bases · periods: a chunk of K and one of V each.
  template <class Stage>
  __device__ void load(Stage& stage, int first = 0, int end = bases * periods) const {
#pragma unroll
    for (int n = first; n < end; ++n) {
      const int i = n % bases, down = n / bases;
      ptx::cp_async_16(&stage.k[down * period][0] + to[i], bytes_beyond(k[i], std::int64_t{down} * k_pitch));
      ptx::cp_async_16(&stage.v[down * period][0] + to[i], bytes_beyond(v[i], std::int64_t{down} * v_pitch));
    }
  }
};

// Of 05_flash_v2/09_addresses.cuh: the byte of this lane's row in a fragment: a_from of A's rows, and of B's where ldmatrix
// transposes; b_from of B's columns.
template <class T, int dim>
struct LaneRows {
  const int lane = threadIdx.x % 32, a_from = (lane % 16 * dim + swizzled<dim>(lane % 16, lane / 16 * chunk)) * int{sizeof(T)},
            b_from = ((lane / 16 * 8 + lane % 8) * dim + swizzled<dim>(lane % 8, lane / 8 % 2 * chunk)) * int{sizeof(T)};
};

}  // namespace flash_v2
