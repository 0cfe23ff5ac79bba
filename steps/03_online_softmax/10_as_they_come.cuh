// 03_online_softmax, as_they_come: a thread's state, from its chunks as they come.
// Predecessor: 09_messages.cuh
//
// A thread of `messages` needs all its chunks before the first exponential, because it takes the maximum of all of them first.
// While memory brings the last chunk, the special function units have nothing to do. Here a thread takes two chunks at a time,
// and merges them into its state as `online` merges a score: 16 elements (8 of fp32) for one rescale. The loads still go out
// all together; the work on the first two chunks begins while six are in flight.
//
//   thread   8 chunks in registers, as before; two at a time join its state
//   warp     the lanes' maximum first, and then one factor a lane, since each lane now has a maximum of its own
//
//   Smem     as `messages`
//
// What to expect: nothing measurable alone, because the other blocks of the SM already fill the time until the last chunk
// comes; and 4 rescales more a thread. It is what lets the next rung begin on a part before all of it has come.
#pragma once

#include "steps/03_online_softmax/09_messages.cuh"

namespace online_softmax {

constexpr int at_once = 2;  // chunks

__device__ inline float chunk_max(const std::array<float, 4>& elements) {
  return fmaxf(fmaxf(elements[0], elements[1]), fmaxf(elements[2], elements[3]));
}
__device__ inline float chunk_max(const std::array<__half, 8>& elements) {  // two an instruction
  const auto pair = [&](int e) { return __halves2half2(elements[e], elements[e + 1]); };
  const __half2 max = __hmax2(__hmax2(pair(0), pair(2)), __hmax2(pair(4), pair(6)));
  return fmaxf(__low2float(max), __high2float(max));
}

// `state` with some more chunks; those that are not `there` are left out.

// [doc: add_chunks]
template <class T, int count>
__device__ inline SoftmaxState add_chunks(SoftmaxState state, const uint4 (&chunks)[count], const bool (&there)[count]) {
  float new_max = -INFINITY;
#pragma unroll
  for (int c = 0; c < count; ++c) {
    if (there[c]) new_max = fmaxf(new_max, chunk_max(elements_of<T>(chunks[c])));
  }
  const float m = fmaxf(state.m, maximum_of<T>(new_max)), subtracted = device::safe_maximum(m);
  float l = state.l * device::rescale_factor(state.m, m, unit<T>);
#pragma unroll
  for (int c = 0; c < count; ++c) {
    if (!there[c]) continue;
    float chunk_sum = 0.0f;
#pragma unroll
    for (const T element : elements_of<T>(chunks[c])) chunk_sum += exp_below<T>(to_float(element), subtracted);
    l += chunk_sum;
  }
  return {m, l};
}
// [/doc: add_chunks]

// Merges the states of a warp's lanes into one, which every lane gets: first the maximum, then one factor per lane. ⊕ in five
// steps would need ten factors. All lanes must make the call.
template <class T>
__device__ SoftmaxState add_lanes(SoftmaxState state) {
  float m = state.m;
  for (int distance = 16; distance > 0; distance /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, distance));
  float l = state.l * device::rescale_factor(state.m, m, unit<T>);
  for (int distance = 16; distance > 0; distance /= 2) l += __shfl_xor_sync(0xffffffffu, l, distance);
  return {m, l};
}

template <class T>
struct InRegisters : HeldPart<T> {
  using HeldPart<T>::HeldPart;

  // `state`, and all chunks that this thread holds.
  __device__ SoftmaxState add_to(SoftmaxState state) const {
#pragma unroll
    for (int k = 0; k < held_chunks; k += at_once) {
      const uint4 next[] = {this->chunks[k], this->chunks[k + 1]};
      state = add_chunks<T>(state, next, {this->place.has(k), this->place.has(k + 1)});
    }
    return state;
  }
};

// Grid: over rows · parts. Blocks of split_threads.
template <class T>
__global__ void __launch_bounds__(split_threads, 1024 / split_threads)
    as_they_come_softmax(Shape shape, Split split,
                         Rows<const T> x,       // [rows, cols]
                         SoftmaxState* states,  // [rows, parts], all absent
                         int* tickets,          // [2], 0; blocks draw from the first
                         Rows<T> y) {           // [rows, cols]
  auto& smem = device::shared_storage<PartSmem>();
  const int thread = threadIdx.x;
  if (thread == 0) smem.part = atomicAdd(&tickets[0], 1);
  __syncthreads();  // the part is there before anyone reads it
  const int ticket = smem.part, i = ticket / split.parts, part = ticket % split.parts;
  InRegisters<T> held(part_of_row(x.row(i), shape.cols, split, part));
  held.load_row(x.row(i));
  const SoftmaxState of_thread = held.add_to(state_of<T>(held.edge));
  const SoftmaxState mine = merge_warps<T, split_threads>(smem.warps, add_lanes<T>(of_thread));

  if (thread == 0) publish(&states[ticket], mine);
  if (thread < 32) {
    const SoftmaxState row = wait_for_parts<T>(&states[std::size_t(i) * split.parts], split.parts);
    if (thread == 0) store(&smem.row, row);
  }
  __syncthreads();  // the row's state is there before anyone reads it
  held.store_row(y.row(i), load(&smem.row));
}

}  // namespace online_softmax
