// 03_online_softmax, host side: how each variant is launched, and which rows it takes.
#pragma once

#include "steps/03_online_softmax/02_online.cuh"
#include "steps/03_online_softmax/host.h"

namespace online_softmax {

inline void launch_three_pass(const run::SoftmaxLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) { launch_rows<T>(l, three_pass_softmax<T>, row_threads, row_threads, 0); });
}
inline void launch_online(const run::SoftmaxLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) { launch_rows<T>(l, two_pass_softmax<T>, row_threads, row_threads, 0); });
}
inline void launch_warp_per_row(const run::SoftmaxLaunch& l) {
  with_type(l.shape.dtype,
            [&]<class T>(T) { launch_rows<T>(l, warp_per_row_softmax<T>, warps_per_block, 32 * warps_per_block, 0); });
}
inline void launch_block_per_row(const run::SoftmaxLaunch& l) {
  with_type(l.shape.dtype,
            [&]<class T>(T) { launch_rows<T>(l, block_per_row_softmax<T>, 1, block_threads, sizeof(BlockSmem)); });
}

inline void launch_wide_loads(const run::SoftmaxLaunch& l) {
  if (!aligned_alike(l.shape)) return launch_block_per_row(l);
  with_type(l.shape.dtype, [&]<class T>(T) {
    launch_rows<T>(l, wide_loads_softmax<T>, 1, block_threads, sizeof(WarpStatesSmem<block_threads>));
  });
}

// ---- the row in registers ----

// One size of `vectorised`: rows of up to `chunks` chunks.
struct Vectorised {
  int chunks;
  std::size_t shared_bytes;
  void (*launch)(const run::SoftmaxLaunch&);
};

template <int group, int most>
inline void launch_groups(const run::SoftmaxLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) { launch_vectorised<T, group, most>(l); });
}

template <int group, int most>
inline constexpr Vectorised vectorised{group * most, sizeof(WarpStatesSmem<vectorised_block(group)>),
                                       launch_groups<group, most>};

inline constexpr Vectorised sizes[] = {vectorised<32, 1>,  vectorised<32, 4>,  vectorised<64, 8>,  vectorised<128, 8>,
                                       vectorised<256, 8>, vectorised<512, 8>, vectorised<1024, 8>};
// Longer rows leave one block to an SM: while it computes, no bytes are in flight.
constexpr int tuned_chunks = 512 * 8;

// The least that holds the rows, or none: then they are too long, or x and y are aligned differently.
inline const Vectorised* holding(const Softmax& s, int most = 1 << 30) {
  const auto at =
      std::find_if(std::begin(sizes), std::end(sizes), [&](const Vectorised& v) { return chunks_of(s) <= v.chunks; });
  return aligned_alike(s) && at != std::end(sizes) && at->chunks <= most ? at : nullptr;
}

inline void launch_vectorised_rows(const run::SoftmaxLaunch& l) {
  const Vectorised* size = holding(l.shape);
  size ? size->launch(l) : launch_block_per_row(l);
}

// ---- rows in parts ----

inline void launch_split_rows(const run::SoftmaxLaunch& l) {
  if (!aligned_alike(l.shape)) return launch_block_per_row(l);
  const Split split = split_of(l.shape);
  const auto blocks = static_cast<unsigned>(l.shape.rows * split.parts);
  SoftmaxState* states = l.arrays.get<SoftmaxState>("states");
  with_type(l.shape.dtype, [&]<class T>(T) {
    runtime::launch(split_states_softmax<T>, {.grid = blocks, .block = split_threads, .shared_bytes = sizeof(SplitSmem)},
                    shape_of(l.shape), split, x_of<T>(l), states);
    runtime::launch(split_write_softmax<T>, {.grid = blocks, .block = split_threads}, shape_of(l.shape), split, x_of<T>(l),
                    static_cast<const SoftmaxState*>(states), y_of<T>(l));
  });
}

constexpr int blocks_by_registers = 1024 / split_threads;  // on an SM; the launch bounds of the kernels that wait promise it

// Whether the blocks of a row's parts can be on the device at once. The simulator has room for as many as 66 SMs.
inline bool can_wait(const Softmax& s, int blocks_on_an_sm) {
  const runtime::Properties& device = runtime::properties();
  const int multiprocessors = device.backend == "sim" ? 66 : device.multiprocessors;
  return aligned_alike(s) && split_of(s).parts <= multiprocessors * blocks_on_an_sm;
}
inline bool can_hold_parts(const Softmax& s) { return can_wait(s, blocks_by_registers); }
// The driver decides how much of an SM's memory is shared memory, and how much is L1. One block is sure to fit.
inline bool can_stage_parts(const Softmax& s) { return can_wait(s, 1); }

inline void launch_held_parts(const run::SoftmaxLaunch& l) {
  if (!can_hold_parts(l.shape)) return launch_split_rows(l);
  const Split split = split_of(l.shape);
  int* arrived = l.arrays.get<int>("arrived");
  const int count = l.shape.rows + 1;
  runtime::launch(clear_arrivals, {.grid = static_cast<unsigned>(ceil_div(count, split_threads)), .block = split_threads},
                  count, arrived);
  with_type(l.shape.dtype, [&]<class T>(T) {
    runtime::launch(held_parts_softmax<T>,
                    {.grid = static_cast<unsigned>(l.shape.rows * split.parts),
                     .block = split_threads,
                     .shared_bytes = sizeof(HeldPartsSmem)},
                    shape_of(l.shape), split, x_of<T>(l), l.arrays.get<SoftmaxState>("states"), arrived, y_of<T>(l));
  });
}

// ---- states as messages ----

// States that are absent, and tickets that are 0.
inline void launch_clear(const run::SoftmaxLaunch& l, int parts) {
  runtime::launch(clear_states, {.grid = static_cast<unsigned>(ceil_div(parts, split_threads)), .block = split_threads}, parts,
                  l.arrays.get<SoftmaxState>("states"), l.arrays.get<int>("tickets"));
}

// A kernel with a block for each part; kernel_of(T{}) is that for T.
template <class KernelOf>
void launch_parts(const run::SoftmaxLaunch& l, KernelOf kernel_of, std::size_t shared_bytes) {
  const Split split = split_of(l.shape);
  const int parts = l.shape.rows * split.parts;
  launch_clear(l, parts);
  with_type(l.shape.dtype, [&]<class T>(T) {
    runtime::launch(
        kernel_of(T{}), {.grid = static_cast<unsigned>(parts), .block = split_threads, .shared_bytes = shared_bytes},
        shape_of(l.shape), split, x_of<T>(l), l.arrays.get<SoftmaxState>("states"), l.arrays.get<int>("tickets"), y_of<T>(l));
  });
}

inline void launch_messages(const run::SoftmaxLaunch& l) {
  if (!can_hold_parts(l.shape)) return launch_split_rows(l);
  launch_parts(
      l, []<class T>(T) { return messages_softmax<T>; }, sizeof(PartSmem));
}

inline void launch_as_they_come(const run::SoftmaxLaunch& l) {
  if (!can_hold_parts(l.shape)) return launch_split_rows(l);
  launch_parts(
      l, []<class T>(T) { return as_they_come_softmax<T>; }, sizeof(PartSmem));
}

inline void launch_in_shared(const run::SoftmaxLaunch& l) {
  if (!can_stage_parts(l.shape)) return launch_split_rows(l);
  launch_parts(
      l, []<class T>(T) { return in_shared_softmax<T>; }, sizeof(InSharedSmem));
}

inline void launch_in_turns(const run::SoftmaxLaunch& l) {
  if (!can_stage_parts(l.shape)) return launch_split_rows(l);
  const Split split = split_of(l.shape);
  const int parts = l.shape.rows * split.parts;
  // As many blocks as may be on the device at once. An SM has 1 KB of shared memory more than a block may ask for, and each
  // block costs 1 KB beside what it asks for. In the simulator, the launch that an H200 gets, so that it counts the same.
  const runtime::Properties& device = runtime::properties();
  const int multiprocessors = device.backend == "sim" ? 132 : device.multiprocessors;
  const auto by_shared = static_cast<int>((device.shared_bytes_per_block + 1024) / (sizeof(InTurnsSmem) + 1024));
  const int blocks = std::min(parts, multiprocessors * std::min(blocks_by_registers, by_shared));
  const int stretch =
      ceil_div(ceil_div(blocks, 2), split.parts) * split.parts;  // half of what the blocks take at first; whole rows
  launch_clear(l, parts);
  with_type(l.shape.dtype, [&]<class T>(T) {
    runtime::launch(in_turns_softmax<T>,
                    {.grid = static_cast<unsigned>(blocks), .block = split_threads, .shared_bytes = sizeof(InTurnsSmem)},
                    shape_of(l.shape), split, stretch, x_of<T>(l), l.arrays.get<SoftmaxState>("states"),
                    l.arrays.get<int>("tickets"), y_of<T>(l));
  });
}

inline void launch_tuned(const run::SoftmaxLaunch& l) {
  const Vectorised* size = holding(l.shape, tuned_chunks);
  size ? size->launch(l) : launch_in_turns(l);
}

}  // namespace online_softmax
