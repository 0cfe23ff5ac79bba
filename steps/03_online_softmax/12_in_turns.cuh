// 03_online_softmax, in_turns: two parts in turns.
// Predecessor: 11_in_shared.cuh
//
// A block that has published its state has nothing else to do until those of the other parts have come. Here a block stays, and
// has two parts at a time: it works on one while the other's row is not known yet.
//
//   begin    the part's state, as its chunks come from memory; published to the other blocks
//   finish   the row's state, from those of its parts; y is written; the next part is drawn, and its loads go out
//
//   begin(first)   begin(second)   finish(first)   begin(first)   finish(second)   begin(second)   finish(first)   …
//
// Before a block finishes a part, it has begun another one: the states of the other parts had that time to come.
//
// Two parts need two slots: one slot is in registers, as in `as_they_come`, the other in shared memory, as in `in_shared`. Four
// blocks of 256 threads hold 256 KB of rows.
//
// Parts are drawn by ticket, for the same reason as in `held_parts`, but from two queues: the parts of some rows are for
// registers, those of the next rows for shared memory, and so on. So the accesses are the same whichever block comes first. A
// block begins every part that it has drawn before it waits again; so no block waits for ever, as long as the device has room
// for as many blocks as a row has parts (page 03b has the proof). The host makes sure of that.
//
//   states[rows][parts]   each part's (m, l); l = −1: not there yet
//   tickets[2]            how many parts have been drawn for registers, and how many for shared memory
//   Smem                  stage[2048]   the chunks of the second slot's part
//                         slots[2]      warps[8], (m, l) of each warp; row, the row's state; part, what was drawn
//
// What to expect: 0.93 to 0.96 of a copy's speed, whatever the length of the rows, because the exchange is out of the way: what
// is left beside a copy is the launch that clears, 2 of 66 µs in fp16 and of 129 in fp32, and the ends of the grid.
#pragma once

#include "steps/03_online_softmax/11_in_shared.cuh"

namespace online_softmax {

struct InTurnsSmem {
  uint4 stage[most_part_chunks];
  PartSmem slots[2];
};

// What holds one of a block's two parts.
template <class Memory>
struct Slot {
  Memory memory;
  PartSmem& smem;
  int queue;     // 0: in registers, 1: in shared memory
  int part = 0;  // counted through all rows
};

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
  const auto draw = [&](const auto& slot) {
    int drawn = 0;
    if (thread == 0) {
      const int ticket = atomicAdd(&tickets[slot.queue], 1);
      drawn = ticket + (ticket / stretch + slot.queue) * stretch;
    }
    __syncwarp();  // the other lanes wait for thread 0, so that all make their next access together
    return drawn;
  };

  const auto take = [&](auto& slot, int drawn) {  // a part's loads go out
    if (thread == 0) slot.smem.part = drawn;
    __syncthreads();  // the part is there before anyone reads it
    slot.part = slot.smem.part;
    if (slot.part >= parts) return;
    const T* x_row = x.row(slot.part / split.parts);
    slot.memory.place = part_of_row(x_row, shape.cols, split, slot.part % split.parts);
    slot.memory.load_row(x_row);
  };

  // [doc: begin_finish]
  const auto begin = [&](auto& slot) {  // the part's state, published
    if (slot.part >= parts) return;
    const SoftmaxState of_thread = slot.memory.add_to(state_of<T>(slot.memory.edge));
    const SoftmaxState state = merge_warps<T, split_threads>(slot.smem.warps, add_lanes<T>(of_thread));
    if (thread == 0) publish(&states[slot.part], state);
  };
  const auto finish = [&](auto& slot) {  // the row's state, y, and the next part
    if (slot.part >= parts) return;
    const int i = slot.part / split.parts;
    if (thread < 32) {
      const SoftmaxState row = wait_for_parts<T>(&states[std::size_t(i) * split.parts], split.parts);
      if (thread == 0) store(&slot.smem.row, row);
    }
    __syncthreads();               // the row's state is there before anyone reads it
    const int drawn = draw(slot);  // comes while the other warps write y
    slot.memory.store_row(y.row(i), load(&slot.smem.row));
    take(slot, drawn);
  };
  // [/doc: begin_finish]

  // ---- prologue ----
  const Place<T, split_threads> nowhere = part_of_row(x.row(0), 0, split, 0);
  Slot<InRegisters<T>> first{InRegisters<T>(nowhere), smem.slots[0], 0};
  Slot<InShared<T>> second{InShared<T>(nowhere, smem.stage), smem.slots[1], 1};
  take(first, draw(first));
  take(second, draw(second));
  begin(first);

  // ---- main loop ----
  while (first.part < parts || second.part < parts) {
    begin(second);
    finish(first);
    begin(first);
    finish(second);
  }
}

}  // namespace online_softmax
