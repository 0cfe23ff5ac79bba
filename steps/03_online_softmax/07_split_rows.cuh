// 03_online_softmax, split_rows: rows longer than a block can hold.
// Predecessor: 06_vectorised.cuh
//
// `vectorised` ends at 128 KB a row: no block has more registers. And 64 rows of a million columns would be 64 blocks, for 132
// SMs. So a row is cut into parts of at most 32 KB, a block for each. A part's state (m, l) is 8 bytes in global memory. A
// second kernel has the same blocks again: each merges the states of its row's parts by ⊕, and writes its part of y. The end of
// the first kernel is the barrier between the two: the only one that all blocks of a launch have for free.
//
//     (m, l) = (m₁, l₁) ⊕ … ⊕ (m_parts, l_parts)     the parts' y are scaled to this, not put side by side as they are
//
//   states[rows][parts]   in global memory
//   Smem                  states[8]   (m, l) of each warp
//
// What to expect: 0.67 of a copy's speed at the most, because blocks forget their registers between kernels, so x is read
// twice: 3 transfers again, where L2 does not still hold the part.
#pragma once

#include "steps/03_online_softmax/06_vectorised.cuh"

namespace online_softmax {

constexpr int split_threads = 256;
constexpr int most_part_chunks = split_threads * held_chunks;  // 32 KB

// How rows are cut: part p has the chunks p · chunks … of the row, `chunks` at the most; part 0 has the row's edges, too.
struct Split {
  int parts;
  int chunks;
};

using SplitSmem = WarpStatesSmem<split_threads>;
template <class T>
using HeldPart = Held<T, split_threads, held_chunks>;

template <class T>
__device__ inline Place<T, split_threads> part_of_row(const T* x_row, int cols, Split split, int part) {
  const int first = part * split.chunks;
  return {chunked(x_row, cols), cols, first, first + split.chunks, part == 0, static_cast<int>(threadIdx.x)};
}

// [doc: merge_parts]
// The state of a row from those of its parts [parts], as every lane of the warp gets it.
template <class T>
__device__ SoftmaxState merge_parts(const SoftmaxState* states, int parts) {
  SoftmaxState state;
  for (int first = 0; first < parts; first += 32) {
    const int p = first + threadIdx.x % 32;
    state = device::merge(state, load_if(p < parts, &states[p]), unit<T>).state;  // a state that is not there is empty
  }
  return merge_lanes<T>(state);
}
// [/doc: merge_parts]

// Grid: over rows · parts. Blocks of split_threads.
template <class T>
__global__ void __launch_bounds__(split_threads, 1024 / split_threads)
    split_states_softmax(Shape shape, Split split,
                         Rows<const T> x,         // [rows, cols]
                         SoftmaxState* states) {  // [rows, parts]
  auto& smem = device::shared_storage<SplitSmem>();
  const int i = blockIdx.x / split.parts, part = blockIdx.x % split.parts;
  HeldPart<T> held(part_of_row(x.row(i), shape.cols, split, part));
  held.load_row(x.row(i));
  const SoftmaxState mine = merge_warps<T, split_threads>(smem, held.warp_state());
  if (threadIdx.x == 0) store(&states[blockIdx.x], mine);
}

// The same grid and blocks.
template <class T>
__global__ void __launch_bounds__(split_threads, 1024 / split_threads)
    split_write_softmax(Shape shape, Split split,
                        Rows<const T> x,             // [rows, cols]
                        const SoftmaxState* states,  // [rows, parts]
                        Rows<T> y) {                 // [rows, cols]
  const int i = blockIdx.x / split.parts, part = blockIdx.x % split.parts;
  HeldPart<T> held(part_of_row(x.row(i), shape.cols, split, part));
  held.load_row(x.row(i));
  const SoftmaxState row = merge_parts<T>(&states[std::size_t(i) * split.parts], split.parts);
  held.store_row(y.row(i), row);
}

}  // namespace online_softmax
