// What one warp does, in order: warp 0 of block 0 of each launch, with Options::trace; another one after trace_warp().
//
// A traced launch is counted, so each instruction is made by those lanes that would make it together on the hardware
// (engine.h). Instructions that are not counted (commits, waits, barriers) are put together for the trace alone. Atomics and
// volatile accesses are not in it, as they are not among the counters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/simt/counters.h"
#include "common/simt/simt.h"

namespace simt {

class Block;
struct WarpCall;

// Which warp of block 0 is traced from the next launch on. A block without such a warp has an empty trace.
[[gnu::visibility("default")]] void trace_warp(unsigned warp);

class Trace {
 public:
  void request(Block& block, std::span<const PendingAccess> lanes, const Cost& cost);
  void call(const WarpCall& call);
  // Of the ldmatrix that was the latest call: row i is given by lane i.
  void matrix_rows(Block& block, std::span<const std::uintptr_t> rows, const Wavefronts& wavefronts);
  KernelTrace result(const Launch& launch);  // hands the events over

 private:
  std::vector<TraceEvent> events_;
};

}  // namespace simt
