// Step 03, host side: what the step offers, sizes, launches.
#include "common/run/family/any_step.h"
#include "steps/03_online_softmax/02_online.cuh"
#include "steps/03_online_softmax/host.h"

namespace {

using namespace online_softmax;
using problem::Dtype;
using problem::KernelCost;
using run::Arrays;
using run::Element;
using run::SoftmaxLaunch;
using run::SoftmaxVariant;

void launch_three_pass(const SoftmaxLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) { launch_rows<T>(l, three_pass_softmax<T>, row_threads, row_threads, 0); });
}
void launch_online(const SoftmaxLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) { launch_rows<T>(l, two_pass_softmax<T>, row_threads, row_threads, 0); });
}
void launch_warp_per_row(const SoftmaxLaunch& l) {
  with_type(l.shape.dtype,
            [&]<class T>(T) { launch_rows<T>(l, warp_per_row_softmax<T>, warps_per_block, 32 * warps_per_block, 0); });
}
void launch_block_per_row(const SoftmaxLaunch& l) {
  with_type(l.shape.dtype,
            [&]<class T>(T) { launch_rows<T>(l, block_per_row_softmax<T>, 1, block_threads, sizeof(BlockSmem)); });
}

// One instantiation of file 5: rows of up to `chunks` chunks.
struct Vectorised {
  int chunks;
  std::size_t shared_bytes;
  void (*launch)(const SoftmaxLaunch&);
};

template <int group, int most>
void launch_groups(const SoftmaxLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) { launch_vectorised<T, group, most>(l); });
}

template <int group, int most>
constexpr Vectorised vectorised{group * most, sizeof(WarpStatesSmem<vectorised_block(group)>), launch_groups<group, most>};

constexpr Vectorised sizes[] = {vectorised<32, 1>,  vectorised<32, 4>,  vectorised<64, 8>,  vectorised<128, 8>,
                                vectorised<256, 8>, vectorised<512, 8>, vectorised<1024, 8>};
// Longer rows leave one block to a multiprocessor: while it computes, no bytes are under way.
constexpr int tuned_chunks = 512 * 8;

// The least that holds the rows, or none: then they are too long, or x and y are aligned differently.
const Vectorised* holding(const Softmax& s, int most = 1 << 30) {
  const auto at =
      std::find_if(std::begin(sizes), std::end(sizes), [&](const Vectorised& v) { return chunks_of(s) <= v.chunks; });
  return aligned_alike(s) && at != std::end(sizes) && at->chunks <= most ? at : nullptr;
}

void launch_vectorised_rows(const SoftmaxLaunch& l) {
  const Vectorised* size = holding(l.shape);
  size ? size->launch(l) : launch_block_per_row(l);
}

void launch_split_rows(const SoftmaxLaunch& l) {
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

constexpr int blocks_by_registers = 1024 / split_threads;  // on a multiprocessor; the launch bounds of files 7 and 8 promise it

// Whether the blocks of a row's parts can be on the device at once. The simulator has room for as many as 66 multiprocessors.
bool can_wait(const Softmax& s, int blocks_on_a_multiprocessor) {
  const runtime::Properties& device = runtime::properties();
  const int multiprocessors = device.backend == "sim" ? 66 : device.multiprocessors;
  return aligned_alike(s) && split_of(s).parts <= multiprocessors * blocks_on_a_multiprocessor;
}
bool can_hold_parts(const Softmax& s) { return can_wait(s, blocks_by_registers); }
// How much of a multiprocessor's memory is shared memory, and how much is L1, the driver decides. One block is sure to fit.
bool can_take_turns(const Softmax& s) { return can_wait(s, 1); }

void launch_held_parts(const SoftmaxLaunch& l) {
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

void launch_in_turns(const SoftmaxLaunch& l) {
  if (!can_take_turns(l.shape)) return launch_split_rows(l);
  const Split split = split_of(l.shape);
  const int parts = l.shape.rows * split.parts;
  // As many blocks as may be on the device at once. A multiprocessor has 1 KB of shared memory more than a block may ask for,
  // and each block costs 1 KB beside what it asks for. In the simulator, the launch that an H200 gets, so that it counts the
  // same.
  const runtime::Properties& device = runtime::properties();
  const int multiprocessors = device.backend == "sim" ? 132 : device.multiprocessors;
  const auto by_shared = static_cast<int>((device.shared_bytes_per_block + 1024) / (sizeof(InTurnsSmem) + 1024));
  const int blocks = std::min(parts, multiprocessors * std::min(blocks_by_registers, by_shared));
  const int stretch =
      ceil_div(ceil_div(blocks, 2), split.parts) * split.parts;  // half of what the blocks take at first; whole rows
  SoftmaxState* states = l.arrays.get<SoftmaxState>("states");
  int* tickets = l.arrays.get<int>("tickets");
  runtime::launch(clear_states, {.grid = static_cast<unsigned>(ceil_div(parts, split_threads)), .block = split_threads}, parts,
                  states, tickets);
  with_type(l.shape.dtype, [&]<class T>(T) {
    runtime::launch(in_turns_softmax<T>,
                    {.grid = static_cast<unsigned>(blocks), .block = split_threads, .shared_bytes = sizeof(InTurnsSmem)},
                    shape_of(l.shape), split, stretch, x_of<T>(l), states, tickets, y_of<T>(l));
  });
}

void launch_tuned(const SoftmaxLaunch& l) {
  const Vectorised* size = holding(l.shape, tuned_chunks);
  size ? size->launch(l) : launch_in_turns(l);
}

// ---- what each needs and costs ----

Arrays states_of_parts(const Softmax& s) { return {run::scratch("states", Dtype::fp32, {s.rows, split_of(s).parts, 2})}; }
Arrays states_and_arrivals(const Softmax& s) {
  return states_of_parts(s) + Arrays{run::scratch("arrived", Element::int32(), {s.rows + 1})};
}
Arrays states_and_tickets(const Softmax& s) {
  return states_of_parts(s) + Arrays{run::scratch("tickets", Element::int32(), {2})};
}
Arrays tuned_scratch(const Softmax& s) { return holding(s, tuned_chunks) ? Arrays{} : states_and_tickets(s); }

std::vector<KernelCost> block_cost(const Softmax& s) { return {problem::row_softmax_cost(s, "block_per_row_softmax", 2)}; }
std::vector<KernelCost> vectorised_cost(const Softmax& s) {
  return holding(s) ? std::vector{problem::row_softmax_cost(s, "vectorised_softmax")} : block_cost(s);
}
std::vector<KernelCost> split_cost(const Softmax& s) {
  if (!aligned_alike(s)) return block_cost(s);
  const double states = static_cast<double>(run::scratch_bytes(states_of_parts(s)));
  KernelCost first = problem::row_softmax_cost(s, "split_states_softmax", 1, 0);
  KernelCost second = problem::row_softmax_cost(s, "split_write_softmax");
  first.flops *= 0.6;  // maximum, subtract, exp and add of five, and again subtract, exp and multiply
  second.flops *= 0.4;
  first.bytes_written = states;
  second.bytes_read += states;
  return {first, second};
}
std::vector<KernelCost> held_parts_cost(const Softmax& s) {
  if (!can_hold_parts(s)) return split_cost(s);
  KernelCost cost = problem::row_softmax_cost(s, "held_parts_softmax");
  const double states = static_cast<double>(run::scratch_bytes(states_of_parts(s))), arrived = sizeof(int) * (s.rows + 1.0);
  cost.bytes_read += states + arrived;
  cost.bytes_written += states + arrived;
  return {{"clear_arrivals", 0, 0, arrived}, cost};
}
std::vector<KernelCost> in_turns_cost(const Softmax& s) {
  if (!can_take_turns(s)) return split_cost(s);
  KernelCost cost = problem::row_softmax_cost(s, "in_turns_softmax");
  const double states = static_cast<double>(run::scratch_bytes(states_of_parts(s)));
  cost.bytes_read += states;
  cost.bytes_written += states;
  return {{"clear_states", 0, 0, states + 2 * sizeof(int)}, cost};
}
std::vector<KernelCost> tuned_cost(const Softmax& s) {
  return holding(s, tuned_chunks) ? vectorised_cost(s) : in_turns_cost(s);
}

std::size_t vectorised_shared_bytes(const Softmax& s) { return holding(s) ? holding(s)->shared_bytes : sizeof(BlockSmem); }
std::size_t split_shared_bytes(const Softmax&) { return std::max(sizeof(SplitSmem), sizeof(BlockSmem)); }
std::size_t held_parts_shared_bytes(const Softmax& s) {
  return can_hold_parts(s) ? sizeof(HeldPartsSmem) : split_shared_bytes(s);
}
std::size_t in_turns_shared_bytes(const Softmax& s) { return can_take_turns(s) ? sizeof(InTurnsSmem) : split_shared_bytes(s); }
std::size_t tuned_shared_bytes(const Softmax& s) {
  return holding(s, tuned_chunks) ? vectorised_shared_bytes(s) : in_turns_shared_bytes(s);
}

// A variant of one kernel that reads x so many times.
SoftmaxVariant variant(std::string name, std::string idea, std::string kernel, int reads, std::size_t shared_bytes,
                       std::function<void(const SoftmaxLaunch&)> launch) {
  return {.name = std::move(name),
          .idea = std::move(idea),
          .shared_bytes = [=](const Softmax&) { return shared_bytes; },
          .cost = [=](const Softmax& s) { return std::vector{problem::row_softmax_cost(s, kernel, reads)}; },
          .launch = std::move(launch)};
}

const std::vector<SoftmaxVariant> variants = {
    variant("three_pass", "safe softmax: maximum, sum, result; one thread per row", "three_pass_softmax", 3, 0,
            launch_three_pass),
    variant("online", "maximum and sum in one pass", "two_pass_softmax", 2, 0, launch_online),
    variant("warp_per_row", "lanes merge their states by shuffles; 2^x for exp", "warp_per_row_softmax", 2, 0,
            launch_warp_per_row),
    variant("block_per_row", "warps merge theirs through shared memory", "block_per_row_softmax", 2, sizeof(BlockSmem),
            launch_block_per_row),
    {.name = "vectorised",
     .idea = "16 bytes an access, and the row stays in registers: x is read once",
     .shared_bytes = vectorised_shared_bytes,
     .cost = vectorised_cost,
     .launch = launch_vectorised_rows},
    {.name = "split_rows",
     .idea = "a row in parts, a block each; a second kernel merges and writes",
     .shared_bytes = split_shared_bytes,
     .scratch = states_of_parts,
     .cost = split_cost,
     .launch = launch_split_rows},
    {.name = "held_parts",
     .idea = "parts stay in registers while their states are exchanged",
     .shared_bytes = held_parts_shared_bytes,
     .scratch = states_and_arrivals,
     .cost = held_parts_cost,
     .launch = launch_held_parts},
    {.name = "in_turns",
     .idea = "a block has two parts, and begins one before it waits for the other's row",
     .shared_bytes = in_turns_shared_bytes,
     .scratch = states_and_tickets,
     .cost = in_turns_cost,
     .launch = launch_in_turns},
    {.name = "tuned",
     .idea = "rows up to 64 KB in one block, longer ones in parts, in turns",
     .shared_bytes = tuned_shared_bytes,
     .scratch = tuned_scratch,
     .cost = tuned_cost,
     .launch = launch_tuned},
};

std::vector<run::Estimate> estimates(const Softmax&) {
  std::vector<run::Estimate> estimates;
  for (const runtime::Op op : {runtime::Op::load, runtime::Op::store}) {
    estimates.push_back({"in_turns_softmax", runtime::Space::global, op,
                         "volatile accesses are not counted: how often a state is asked for depends on the time"});
  }
  estimates.push_back({"in_turns_softmax", runtime::Space::global, runtime::Op::copy_past_l1,
                       "a copy of a chunk that is not there is executed under a false predicate"});
  return estimates;
}

}  // namespace

namespace online_softmax {

run::AnyStep step() {
  static const run::SoftmaxStep step{.name = "03_online_softmax",
                                     .question = "How often must a softmax read its row?",
                                     .default_shape = {.rows = 64, .cols = 1000, .dtype = Dtype::fp16},
                                     .default_variant = "tuned",
                                     .variants = variants,
                                     .estimates = estimates};
  return &step;
}

}  // namespace online_softmax
