// 03_online_softmax, held_parts: parts that wait for each other.
// Predecessor: 07_split_rows.cuh
//
// `split_rows` reads x twice because its blocks end before the row's state is known. Here a block keeps its part in registers,
// publishes its state, waits until the states of all parts of its row are there, and writes y from what it holds: 2 transfers,
// for rows as long as the registers of the whole device.
//
//   states[rows][parts]   each part's (m, l)
//   arrived[rows]         how many of a row's states are written; the last element is the counter that hands out tickets
//   Smem                  states[8]   (m, l) of each warp;   ticket   which part this block takes
//
// A block that waits for others may wait for ever: if blocks that wait fill the device, the one that they wait for cannot
// start. So parts are not taken by blockIdx, because no order of blocks is guaranteed, but by a ticket: a counter that each
// block raises when it starts. Parts are then started in order, row by row. Look at the oldest unfinished row. If not all of
// its parts have started, then all blocks on the device work on this row, and they are fewer than its parts: there is room for
// one more. So every row ends, as long as the device has room for the blocks of one row. The host makes sure of that.
//
// The order of an exchange: write the state, fence, raise the count; then read the count, fence, read the states. A fence makes
// the thread's earlier writes visible before its later ones; without the first fence others may see the count before the state.
//
// What to expect: 0.85 to 0.95 of a copy's speed at 64 × 1M, because x is again read only once, and an SM has four blocks, some
// of which load while others wait or write.
#pragma once

#include "steps/03_online_softmax/07_split_rows.cuh"

namespace online_softmax {

struct HeldPartsSmem {
  SplitSmem warps;
  int ticket;
};

// Grid: over count. Blocks of split_threads.
__global__ void clear_arrivals(int count, int* arrived) {  // [count]
  const int n = blockIdx.x * split_threads + threadIdx.x;
  if (n < count) arrived[n] = 0;
}

// Grid: over rows · parts. Blocks of split_threads.
template <class T>
__global__ void __launch_bounds__(split_threads, 1024 / split_threads)
    held_parts_softmax(Shape shape, Split split,
                       Rows<const T> x,       // [rows, cols]
                       SoftmaxState* states,  // [rows, parts]
                       int* arrived,          // [rows + 1], all 0
                       Rows<T> y) {           // [rows, cols]
  auto& smem = device::shared_storage<HeldPartsSmem>();
  const int thread = threadIdx.x;
  if (thread == 0) smem.ticket = atomicAdd(&arrived[shape.rows], 1);
  __syncthreads();  // the ticket is there before anyone reads it
  const int ticket = smem.ticket, i = ticket / split.parts, part = ticket % split.parts;
  HeldPart<T> held(part_of_row(x.row(i), shape.cols, split, part));
  held.load_row(x.row(i));
  const SoftmaxState mine = merge_warps<T, split_threads>(smem.warps, held.warp_state());

  // [doc: exchange]
  if (thread == 0) {
    store(&states[ticket], mine);
    __threadfence();  // the state is there before it is counted
    atomicAdd(&arrived[i], 1);
    while (atomicAdd(&arrived[i], 0) < split.parts) {  // an atomic, because it asks L2: a load may find an old value in L1
    }
    __threadfence();  // all states were counted before any is read
  }
  __syncthreads();  // thread 0 has seen all parts arrive before anyone reads their states
  const SoftmaxState row = merge_parts<T>(&states[std::size_t(i) * split.parts], split.parts);
  // [/doc: exchange]
  held.store_row(y.row(i), row);
}

}  // namespace online_softmax
