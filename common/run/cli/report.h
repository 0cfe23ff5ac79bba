// What one run of a step's executable says: a table for people, JSON for programs (docs/result.schema.json), arrays in .npy.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/problem/cost.h"
#include "common/run/cli/options.h"
#include "common/run/cli/select.h"
#include "common/run/harness/counters.h"
#include "common/run/harness/execute.h"

namespace run {

// What is known of a variant before it runs.
struct Prediction {
  double flops = 0;                          // that TFLOP/s are computed from
  std::vector<problem::KernelCost> kernels;  // in launch order
  std::size_t shared_bytes = 0;              // of one block
  std::size_t scratch_bytes = 0;             // of device memory
};

struct Result {
  std::string variant;
  Prediction predicted;
  Arrays arrays;
  Outcome outcome;
};

struct Report {
  std::string step;
  std::string problem_text;               // with all defaults, in one line
  const nlohmann::ordered_json& problem;  // the same for programs
  const nlohmann::ordered_json& input;    // a seed or a folder
  problem::Dtype dtype;
  std::vector<Estimate> estimates;
  std::vector<Result> results;
  std::vector<Skipped> skipped;
};

// Writes the files that the options ask for, prints the table to stdout and what failed to stderr, and returns the exit status.
int finish(const Report& report, const CommonOptions& options);

}  // namespace run
