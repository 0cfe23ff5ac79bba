// Step 03, file 8: two parts in turns.
//
// A block of file 7 exchanges states, and has nothing else to do until they have come. Here a block has two parts at a time,
// and works on one while the other's row is not known yet:
//
//   begin    the part's state, as its chunks come from memory; told to the other blocks
//   finish   the row's state, from those of its parts; y is written; the next part is drawn, and its loads go out
//
//   begin(first)   begin(second)   finish(first)   begin(first)   finish(second)   begin(second)   finish(first)   …
//
// When a block wants to finish a part it has begun another since: the states of the others had that long to come.
//
// Two parts need room for two: one is in registers, as in file 7, one in shared memory, which files 5 to 7 leave empty. Four
// blocks of 256 threads have 256 KB of rows in hand, where file 7 has 128.
//
// A state is its own message. File 7 makes three accesses for one: state, fence, count. But (m, l) is 8 bytes, which one access
// moves whole or not at all, and l is never negative. So states start with l = −1, and who needs one reads it until l is
// another. Nothing else is told, so there is nothing that must come before or after it: no fence, no count.
//
// Parts are drawn by ticket, as in file 7, and for its reason, from two queues: the parts of some rows are for registers, those
// of the next rows for shared memory, and so on. Then the same accesses are made whoever comes first. What a block has drawn it
// begins before it waits again; so nobody waits for ever, as long as the device has room for as many blocks as a row has parts
// (page 03 has the proof). The host sees to that.
//
//   states[rows][parts]   each part's (m, l); l = −1: not there yet
//   tickets[2]            how many parts have been drawn for registers, and how many for shared memory
//   Smem                  stage[2048]   the chunks of the second part
//                         turns[2]      of each part: warps[8], (m, l) of each warp; row, the row's state; part, what was drawn
#pragma once

#include "common/device/ptx/shared_memory.cuh"
#include "steps/03_online_softmax/08_held_parts.cuh"

namespace online_softmax {

constexpr int at_once = 2;  // chunks

struct TurnSmem {
  SplitSmem warps;
  SoftmaxState row;
  int part;
};
struct InTurnsSmem {
  uint4 stage[most_part_chunks];
  TurnSmem turns[2];
};

// ---- states as messages ----

constexpr float absent = -1.0f;  // l of a state that is not there yet

// Grid: over count. Blocks of split_threads.
__global__ void clear_states(int count,
                             SoftmaxState* states,  // [count]
                             int* tickets) {        // [2]
  const int n = blockIdx.x * split_threads + threadIdx.x;
  if (n < count) store(&states[n], SoftmaxState{-INFINITY, absent});
  if (n < 2) tickets[n] = 0;
}

// [doc: tell]
// Volatile: the compiler must not merge the reads of a loop, and they must go to L2, where other multiprocessors write.
__device__ inline void tell(SoftmaxState* to, SoftmaxState state) {
  *reinterpret_cast<volatile std::uint64_t*>(to) = std::bit_cast<std::uint64_t>(state);
}

__device__ inline SoftmaxState hear(const SoftmaxState* from) {
  SoftmaxState state;
  do {
    const std::uint64_t word = *reinterpret_cast<const volatile std::uint64_t*>(from);
    state = std::bit_cast<SoftmaxState>(word);
  } while (state.l == absent);
  return state;
}
// [/doc: tell]

// The state of a row from those of its parts [parts], as every lane of the warp gets it.
template <class T>
__device__ SoftmaxState hear_parts(const SoftmaxState* states, int parts) {
  SoftmaxState state;
  for (int p = threadIdx.x % 32; p < parts; p += 32) state = device::merge(state, hear(&states[p]), unit<T>).state;
  return merge_lanes<T>(state);
}

// ---- a thread's state, from its chunks as they come ----

__device__ inline float largest_of(const std::array<float, 4>& elements) {
  return fmaxf(fmaxf(elements[0], elements[1]), fmaxf(elements[2], elements[3]));
}
__device__ inline float largest_of(const std::array<__half, 8>& elements) {  // two an instruction
  const auto pair = [&](int e) { return __halves2half2(elements[e], elements[e + 1]); };
  const __half2 largest = __hmax2(__hmax2(pair(0), pair(2)), __hmax2(pair(4), pair(6)));
  return fmaxf(__low2float(largest), __high2float(largest));
}

// Of one element.
template <class T>
__device__ SoftmaxState state_of(float element) {
  const float m = maximum_of<T>(element);
  return {m, exp_below<T>(element, device::safe_maximum(m))};
}

// [doc: add_chunks]
// The state with some chunks more; those that are not `there` are left out.
template <class T, int count>
__device__ inline SoftmaxState add_chunks(SoftmaxState state, const uint4 (&chunks)[count], const bool (&there)[count]) {
  float largest = -INFINITY;
#pragma unroll
  for (int c = 0; c < count; ++c) {
    if (there[c]) largest = fmaxf(largest, largest_of(elements_of<T>(chunks[c])));
  }
  const float m = fmaxf(state.m, maximum_of<T>(largest)), subtracted = device::safe_maximum(m);
  float l = state.l * device::rescale_factor(state.m, m, unit<T>);
#pragma unroll
  for (int c = 0; c < count; ++c) {
    if (!there[c]) continue;
    float of_chunk = 0.0f;
#pragma unroll
    for (const T element : elements_of<T>(chunks[c])) of_chunk += exp_below<T>(to_float(element), subtracted);
    l += of_chunk;
  }
  return {m, l};
}
// [/doc: add_chunks]

// The states of a warp's lanes as one, which every lane gets: the maximum first, and then one factor a lane, where ⊕ in five
// rounds has ten. All lanes must make the call.
template <class T>
__device__ SoftmaxState add_lanes(SoftmaxState state) {
  float m = state.m;
  for (int distance = 16; distance > 0; distance /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, distance));
  float l = state.l * device::rescale_factor(state.m, m, unit<T>);
  for (int distance = 16; distance > 0; distance /= 2) l += __shfl_xor_sync(0xffffffffu, l, distance);
  return {m, l};
}

// ---- where a part is held ----

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

// A thread reads only what it has copied itself, so there is no barrier between.
template <class T>
struct InShared {
  Place<T, split_threads> place;
  uint4* stage;  // this thread's chunk 0; chunk k is k · split_threads behind it
  float edge;

  __device__ InShared(Place<T, split_threads> of_thread, uint4* of_block) : place(of_thread), stage(&of_block[threadIdx.x]) {}

  // [doc: shared_load]
  __device__ void load_row(const T* x_row) {  // [cols]
    edge = place.load_edge(x_row);
    const uint4* x_chunks = place.chunks_of(x_row);
#pragma unroll
    for (int k = 0; k < held_chunks; ++k) {
      if (place.has(k)) ptx::cp_async_16(&stage[k * split_threads], &x_chunks[k * split_threads]);
      if ((k + 1) % at_once == 0) ptx::cp_async_commit_group();
    }
  }

  // `state`, and all chunks that this thread holds, as they come.
  template <int k = 0>
  __device__ SoftmaxState add_to(SoftmaxState state) const {
    if constexpr (k < held_chunks) {
      ptx::cp_async_wait_group<(held_chunks - k) / at_once - 1>();  // chunks k and k + 1 have come; the later ones may not have
      __syncwarp();  // those of the other lanes, too: they make their next access together
      const bool there[] = {place.has(k), place.has(k + 1)};
      const uint4 next[] = {load_if(there[0], &stage[k * split_threads]), load_if(there[1], &stage[(k + 1) * split_threads])};
      return add_to<k + at_once>(add_chunks<T>(state, next, there));
    } else {
      return state;
    }
  }
  // [/doc: shared_load]

  // Writes the softmax of what is held, where `row` is the state of the whole row.
  __device__ void store_row(T* y_row, SoftmaxState row) const {  // [cols]
    const float m = device::safe_maximum(row.m), factor = device::inverse_sum(row.l);
    uint4* y_chunks = place.chunks_of(y_row);
#pragma unroll
    for (int k = 0; k < held_chunks; ++k) {
      const uint4 words = load_if(place.has(k), &stage[k * split_threads]);
      store_if(place.has(k), &y_chunks[k * split_threads], softmax_of<T>(words, m, factor));
    }
    store_if(place.has_edge, &y_row[place.edge_place], from_float<T>(exp_below<T>(edge, m) * factor));
  }
};

// One of a block's two parts.
template <class Memory>
struct Turn {
  Memory memory;
  TurnSmem& smem;
  int which;     // 0: in registers, 1: in shared memory
  int part = 0;  // counted through all rows
};

// ---- the kernel ----

// Grid: any number. Blocks of split_threads.
template <class T>
__global__ void __launch_bounds__(split_threads, 1024 / split_threads)
    in_turns_softmax(Shape shape, Split split,
                     int stretch,           // parts, of whole rows, between two changes of memory
                     Rows<const T> x,       // [rows, cols]
                     SoftmaxState* states,  // [rows, parts], all absent
                     int* tickets,          // [2], 0
                     Rows<T> y) {           // [rows, cols]
  auto& smem = device::shared_storage<InTurnsSmem>();
  const int thread = threadIdx.x, parts = shape.rows * split.parts;
  const auto draw = [&](const auto& turn) {
    int drawn = 0;
    if (thread == 0) {
      const int ticket = atomicAdd(&tickets[turn.which], 1);
      drawn = ticket + (ticket / stretch + turn.which) * stretch;
    }
    __syncwarp();  // the other lanes wait for thread 0, so that all make their next access together
    return drawn;
  };

  // [doc: turn]
  const auto take = [&](auto& turn, int drawn) {
    if (thread == 0) turn.smem.part = drawn;
    __syncthreads();  // the part is there before anyone reads it
    turn.part = turn.smem.part;
    if (turn.part >= parts) return;
    const T* x_row = x.row(turn.part / split.parts);
    turn.memory.place = part_of_row(x_row, shape.cols, split, turn.part % split.parts);
    turn.memory.load_row(x_row);
  };
  const auto begin = [&](auto& turn) {
    if (turn.part >= parts) return;
    const SoftmaxState of_thread = turn.memory.add_to(state_of<T>(turn.memory.edge));
    const SoftmaxState state = merge_warps<T, split_threads>(turn.smem.warps, add_lanes<T>(of_thread));
    if (thread == 0) tell(&states[turn.part], state);
  };
  const auto finish = [&](auto& turn) {
    if (turn.part >= parts) return;
    const int i = turn.part / split.parts;
    if (thread < 32) {
      const SoftmaxState row = hear_parts<T>(&states[std::size_t(i) * split.parts], split.parts);
      if (thread == 0) store(&turn.smem.row, row);
    }
    __syncthreads();               // the row's state is there before anyone reads it
    const int drawn = draw(turn);  // comes while the other warps write y
    turn.memory.store_row(y.row(i), load(&turn.smem.row));
    take(turn, drawn);
  };
  // [/doc: turn]

  const Place<T, split_threads> nowhere = part_of_row(x.row(0), 0, split, 0);
  Turn<InRegisters<T>> first{InRegisters<T>(nowhere), smem.turns[0], 0};
  Turn<InShared<T>> second{InShared<T>(nowhere, smem.stage), smem.turns[1], 1};
  take(first, draw(first));
  take(second, draw(second));
  begin(first);
  while (first.part < parts || second.part < parts) {
    begin(second);
    finish(first);
    begin(first);
    finish(second);
  }
}

}  // namespace online_softmax
