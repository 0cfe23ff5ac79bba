// 03_online_softmax, messages: a state is its own message.
// Predecessor: 08_held_parts.cuh
//
// `held_parts` spends 30 % of its warps' time at barriers, and its exchange is a chain of trips to L2: write the state, fence,
// raise the count, read the count, fence, read the states. Here nothing is counted. (m, l) is 8 bytes, which one access moves
// whole or not at all, and l is never negative. So every state starts with l = −1, and a block that needs it reads it until l
// has changed. A fence orders two accesses, the data before the flag. Here the data is the flag, so no order is needed.
//
//   block    draws a part by ticket, as before; thread 0 publishes the part's state, and warp 0 waits for the row's
//
//   states[rows][parts]   each part's (m, l); l = −1: not there yet
//   Smem                  warps[8], (m, l) of each warp; row, the row's state; part, what was drawn
//
// All states must be cleared before each launch, by a kernel that costs what clearing the counters did.
//
// What to expect: no gain over `held_parts`, between 5 % faster and 15 % slower at 1024 × 65536, because a block still has
// nothing to do until the other states have come, whether by three trips or by one. What it gains is for `in_turns`: there the
// first question finds the answer.
#pragma once

#include "steps/03_online_softmax/08_held_parts.cuh"

namespace online_softmax {

struct PartSmem {
  SplitSmem warps;
  SoftmaxState row;
  int part;  // counted through all rows
};

constexpr float absent = -1.0f;  // l of a state that is not there yet

// Grid: over count. Blocks of split_threads.
__global__ void clear_states(int count,
                             SoftmaxState* states,  // [count]
                             int* tickets) {        // [2]
  const int n = blockIdx.x * split_threads + threadIdx.x;
  if (n < count) store(&states[n], SoftmaxState{-INFINITY, absent});
  if (n < 2) tickets[n] = 0;
}

// [doc: publish]
// Volatile: the compiler must not merge the reads of a loop, and they must go to L2, where other SMs write.
__device__ inline void publish(SoftmaxState* to, SoftmaxState state) {
  *reinterpret_cast<volatile std::uint64_t*>(to) = std::bit_cast<std::uint64_t>(state);
}

__device__ inline SoftmaxState wait_for(const SoftmaxState* from) {
  SoftmaxState state;
  do {
    const std::uint64_t word = *reinterpret_cast<const volatile std::uint64_t*>(from);
    state = std::bit_cast<SoftmaxState>(word);
  } while (state.l == absent);
  return state;
}
// [/doc: publish]

// The state of a row from those of its parts [parts], as every lane of the warp gets it.
template <class T>
__device__ SoftmaxState wait_for_parts(const SoftmaxState* states, int parts) {
  SoftmaxState state;
  for (int p = threadIdx.x % 32; p < parts; p += 32) state = device::merge(state, wait_for(&states[p]), unit<T>).state;
  return merge_lanes<T>(state);
}

// Grid: over rows · parts. Blocks of split_threads.
template <class T>
__global__ void __launch_bounds__(split_threads, 1024 / split_threads)
    messages_softmax(Shape shape, Split split,
                     Rows<const T> x,       // [rows, cols]
                     SoftmaxState* states,  // [rows, parts], all absent
                     int* tickets,          // [2], 0; blocks draw from the first
                     Rows<T> y) {           // [rows, cols]
  auto& smem = device::shared_storage<PartSmem>();
  const int thread = threadIdx.x;
  if (thread == 0) smem.part = atomicAdd(&tickets[0], 1);
  __syncthreads();  // the part is there before anyone reads it
  const int ticket = smem.part, i = ticket / split.parts, part = ticket % split.parts;
  HeldPart<T> held(part_of_row(x.row(i), shape.cols, split, part));
  held.load_row(x.row(i));
  const SoftmaxState mine = merge_warps<T, split_threads>(smem.warps, held.warp_state());

  // [doc: message]
  if (thread == 0) publish(&states[ticket], mine);
  if (thread < 32) {
    const SoftmaxState row = wait_for_parts<T>(&states[std::size_t(i) * split.parts], split.parts);
    if (thread == 0) store(&smem.row, row);
  }
  __syncthreads();  // the row's state is there before anyone reads it
  // [/doc: message]
  held.store_row(y.row(i), load(&smem.row));
}

}  // namespace online_softmax
