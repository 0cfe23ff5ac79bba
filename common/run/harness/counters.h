// The simulator's counts under Nsight Compute's names, each with what it is worth.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "common/runtime/runtime.h"

namespace run {

// Where nvcc makes of a kernel's accesses something else than its source says (merges two, moves one out of a loop), counts of
// the source only estimate what the hardware counts. A step declares it here, with the reason; `make sass` compares this list
// with the machine code.
struct Estimate {
  std::string kernel;  // without its namespace
  runtime::Space space;
  runtime::Op op;
  std::string reason;
  std::string arguments = {};  // only where its template arguments have this among them; empty: always
  bool of_shuffles = false;    // of SHFL, and of no access
};
inline Estimate estimate_of_shuffles(std::string kernel, std::string reason) {
  return {.kernel = std::move(kernel), .space = {}, .op = {}, .reason = std::move(reason), .of_shuffles = true};
}

struct Metric {
  std::string name;  // Nsight Compute's
  std::uint64_t value;
  std::string reason;  // why it is an estimate; empty: equal to Nsight Compute's, to the digit
};

// Of one launch. The instance of an opcode is written as Nsight Compute's metric, a dot, and the opcode.
std::vector<Metric> metrics(const runtime::KernelCounters& counters, const std::vector<Estimate>& estimates);

// Least traffic with DRAM, in bytes: every sector that the launch touches, once.
std::vector<Metric> least_traffic(const runtime::KernelCounters& counters);

nlohmann::ordered_json counters_json(const std::vector<runtime::KernelCounters>& launches,
                                     const std::vector<Estimate>& estimates);

// One table with a column for each launch, and one with a row for each line of the source that accesses memory.
void print_counters(std::ostream& out, const std::vector<runtime::KernelCounters>& launches,
                    const std::vector<Estimate>& estimates);

}  // namespace run
