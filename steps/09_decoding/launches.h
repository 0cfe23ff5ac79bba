// Step 09, host side: launches that are compiled apart from step.cu, the file that has each, and how many blocks take part.
#pragma once

#include <algorithm>

#include "common/device/dispatch.h"
#include "common/run/family/attention.h"
#include "common/runtime/launch.h"
#include "steps/09_decoding/choice.h"

namespace decoding {

using device::ceil_div;
using problem::Attention;
using run::AttentionLaunch;

// A rung as a variant needs it.
struct Rung {
  void (*launch)(const AttentionLaunch&);
  std::size_t (*shared_bytes)(const Attention&) = nullptr;  // of a block
  run::Arrays (*scratch)(const Attention&) = nullptr;
  std::vector<std::string> (*kernels)(const Attention&) = nullptr;  // where they depend on the problem
};

Rung packed_heads_rung();  // rungs.cu
Rung warp_rings_rung();
Rung split_kv_rung();  // split.cu
Rung last_block_rung();
Rung whole_rows_rung();  // stream.cu
Rung stream_k_rung();
Rung any_dim_rung();  // any_dim.cu
Rung scored_rung();   // scored.cu: stream_k with options of scores, in the blocks of `tuned`
Rung scored_99k_rung();
// Those whose instructions need compute capability 9.0.
Rung cluster_rung();           // cluster.sm_90.cu
Rung dependent_rung();         // dependent.sm_90.cu: `cluster`, dependent
Rung chosen_rung();            // by choice.h
Rung chosen_dependent_rung();  // the same, and begins before the launch before has ended
Rung chosen_99k_rung();        // `tuned` in blocks with less shared memory

// Of the rungs before `tuned`: two blocks or more fit on an SM, and one on devices with 99 KB.
template <int dim>
using RungTile = Tile<dim, dim <= 128 ? 4 : 2, dim <= 64 ? 4 : 2>;

// Of the device; the simulator has as many as an H100.
inline int multiprocessors() {
  const runtime::Properties& device = runtime::properties();
  return device.backend == "sim" ? 132 : device.multiprocessors;
}

// How many blocks share an item where all items have as many: what fills the SMs `blocks_per_sm` times, one a tile at most.
inline int splits_of(const Work& work, int blocks_per_sm) {
  return std::clamp(multiprocessors() * blocks_per_sm / work.items, 1, work.tiles);
}
// What Work needs of a problem, before there is a launch.
inline device::AttentionShape extents_of(const Attention& a) {
  return {.batch = a.batch,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .seq_q = a.seq_q,
          .seq_k = a.seq_k,
          .dim = a.dim,
          .causal = a.causal,
          .scale = 1.0f,
          .window = a.window};
}

// All blocks share all tiles.
inline Stream shared_evenly(const Work& work) { return {1, std::int64_t{work.items} * work.tiles, nullptr}; }

// Blocks that fill the device `blocks_per_sm` times, but no more than units of work.
inline int stream_blocks(std::int64_t units, int blocks_per_sm) { return blocks_for(units, multiprocessors() * blocks_per_sm); }

}  // namespace decoding
