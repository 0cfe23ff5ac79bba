// Step 03, file 8: the state is its own message.
//
// File 7 exchanges the states of a row's parts in a chain: store, fence, count; then ask for the count, fence, load. Each link
// takes about as long as one access of L2, and the block writes nothing meanwhile. But (m, l) is 8 bytes, which one access
// moves whole or not at all, and l is never negative. So states start with l = −1, and who needs one reads it until l is
// another. Nothing else is told, so nothing must come before or after it: no fence, no count, and one link is left.
//
//   states[rows][parts]   each part's (m, l); l = −1: not there yet
//   ticket                the next part to be taken, as in file 7, and for its reason
//   Smem                  as in file 7
//
// The accesses are volatile: the compiler may not merge the reads of a loop, and they go to L2, where other multiprocessors
// write. Every warp reads the states itself, so there is no barrier either.
#pragma once

#include "steps/03_online_softmax/7_held_parts.cuh"

namespace online_softmax {

constexpr float absent = -1.0f;  // l of a state that is not there yet

// Grid: over count. Blocks of split_threads.
__global__ void clear_states(int count,
                             SoftmaxState* states,  // [count]
                             int* ticket) {         // [1]
  const int n = blockIdx.x * split_threads + threadIdx.x;
  if (n < count) store(&states[n], SoftmaxState{-INFINITY, absent});
  if (n == 0) *ticket = 0;
}

// [doc: post]
__device__ inline void post(SoftmaxState* to, SoftmaxState state) {
  *reinterpret_cast<volatile std::uint64_t*>(to) = std::bit_cast<std::uint64_t>(state);
}

__device__ inline SoftmaxState await(const SoftmaxState* from) {
  SoftmaxState state;
  do {
    const std::uint64_t word = *reinterpret_cast<const volatile std::uint64_t*>(from);
    state = std::bit_cast<SoftmaxState>(word);
  } while (state.l == absent);
  return state;
}
// [/doc: post]

// The state of a row from those of its parts [parts], as every lane of the warp gets it.
__device__ inline SoftmaxState await_parts(const SoftmaxState* states, int parts) {
  SoftmaxState state;
  for (int p = threadIdx.x % 32; p < parts; p += 32) state = device::merge(state, await(&states[p])).state;
  return merge_lanes(state);
}

// Grid: over rows · parts. Blocks of split_threads.
template <class T>
__global__ void __launch_bounds__(split_threads, 1024 / split_threads)
    posted_states_softmax(Shape shape, Split split,
                          Rows<const T> x,       // [rows, cols]
                          SoftmaxState* states,  // [rows, parts], all absent
                          int* next_ticket,      // [1], 0
                          Rows<T> y) {           // [rows, cols]
  auto& smem = device::shared_storage<HeldPartsSmem>();
  const int thread = threadIdx.x;
  if (thread == 0) smem.ticket = atomicAdd(next_ticket, 1);
  __syncthreads();  // the ticket is there before anyone reads it
  const int ticket = smem.ticket, i = ticket / split.parts, part = ticket % split.parts;
  HeldPart<T> held = part_of_row(x.row(i), shape.cols, split, part);
  held.load_row(x.row(i));
  const SoftmaxState mine = merge_warps<split_threads>(smem.warps, held.warp_state());
  if (thread == 0) post(&states[ticket], mine);
  const SoftmaxState row = await_parts(&states[std::size_t(i) * split.parts], split.parts);
  held.store_row(y.row(i), row);
}

}  // namespace online_softmax
