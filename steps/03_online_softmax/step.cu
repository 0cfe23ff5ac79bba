// 03_online_softmax, host side: what the step offers, and what each variant needs and costs.
#include "common/run/family/any_step.h"
#include "steps/03_online_softmax/launches.h"

namespace {

using namespace online_softmax;
using problem::Dtype;
using problem::KernelCost;
using run::Arrays;
using run::Element;
using run::SoftmaxLaunch;
using run::SoftmaxVariant;

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
std::vector<KernelCost> wide_loads_cost(const Softmax& s) {
  return aligned_alike(s) ? std::vector{problem::row_softmax_cost(s, "wide_loads_softmax", 2)} : block_cost(s);
}
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
// Of a variant whose states are messages, where the blocks of a row can be on the device at once.
std::vector<KernelCost> message_cost(const Softmax& s, bool can, std::string kernel) {
  if (!can) return split_cost(s);
  KernelCost cost = problem::row_softmax_cost(s, std::move(kernel));
  const double states = static_cast<double>(run::scratch_bytes(states_of_parts(s)));
  cost.bytes_read += states;
  cost.bytes_written += states;
  return {{"clear_states", 0, 0, states + 2 * sizeof(int)}, cost};
}
std::vector<KernelCost> in_turns_cost(const Softmax& s) { return message_cost(s, can_stage_parts(s), "in_turns_softmax"); }
std::vector<KernelCost> tuned_cost(const Softmax& s) {
  return holding(s, tuned_chunks) ? vectorised_cost(s) : in_turns_cost(s);
}

std::size_t vectorised_shared_bytes(const Softmax& s) { return holding(s) ? holding(s)->shared_bytes : sizeof(BlockSmem); }
std::size_t split_shared_bytes(const Softmax&) { return std::max(sizeof(SplitSmem), sizeof(BlockSmem)); }
std::size_t held_parts_shared_bytes(const Softmax& s) {
  return can_hold_parts(s) ? sizeof(HeldPartsSmem) : split_shared_bytes(s);
}
std::size_t in_turns_shared_bytes(const Softmax& s) { return can_stage_parts(s) ? sizeof(InTurnsSmem) : split_shared_bytes(s); }
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

// A variant of one kernel whose states are messages; rows for which it cannot wait are left to `split_rows`.
SoftmaxVariant messages_variant(std::string name, std::string idea, std::string kernel, std::size_t shared_bytes,
                                bool (*can)(const Softmax&), std::function<void(const SoftmaxLaunch&)> launch) {
  return {.name = std::move(name),
          .idea = std::move(idea),
          .shared_bytes = [=](const Softmax& s) { return can(s) ? shared_bytes : split_shared_bytes(s); },
          .scratch = states_and_tickets,
          .cost = [=](const Softmax& s) { return message_cost(s, can(s), kernel); },
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
    {.name = "wide_loads",
     .idea = "16 bytes an access",
     .shared_bytes = split_shared_bytes,
     .cost = wide_loads_cost,
     .launch = launch_wide_loads},
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
    messages_variant("messages", "a state is its own message: no fence, no count", "messages_softmax", sizeof(PartSmem),
                     can_hold_parts, launch_messages),
    messages_variant("as_they_come", "a thread's state, from its chunks as they come", "as_they_come_softmax", sizeof(PartSmem),
                     can_hold_parts, launch_as_they_come),
    messages_variant("in_shared", "parts in shared memory: five blocks to an SM", "in_shared_softmax", sizeof(InSharedSmem),
                     can_stage_parts, launch_in_shared),
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
  for (const char* kernel : {"messages_softmax", "as_they_come_softmax", "in_shared_softmax", "in_turns_softmax"}) {
    estimates.push_back(
        {kernel, runtime::Space::global, runtime::Op::load, "how often a state is asked for depends on the time"});
  }
  for (const char* kernel : {"in_shared_softmax", "in_turns_softmax"}) {
    estimates.push_back({kernel, runtime::Space::global, runtime::Op::copy_past_l1,
                         "a copy of a chunk that is not there is executed under a false predicate"});
    estimates.push_back({.kernel = kernel,
                         .space = runtime::Space::global,
                         .op = runtime::Op::store,
                         .reason = "nvcc gives the stores of a row's chunks the name of a line without a store",
                         .arguments = "__half"});
  }
  estimates.push_back({"wide_loads_softmax", runtime::Space::global, runtime::Op::load,
                       "for fp32 nvcc puts the load of a chunk behind the question whether it is there"});
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
