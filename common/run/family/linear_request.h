// What a step of linear layers is asked to compute: the family's own flags, and what they and the files add up to.
#pragma once

#include <array>
#include <filesystem>
#include <optional>

#include "common/problem/linear_fields.h"
#include "common/run/cli/options.h"
#include "common/run/family/linear.h"

namespace run {

struct LinearFlags {
  std::array<std::optional<int>, std::size(problem::linear_fields)> fields;  // in the order of the rows
  std::optional<problem::Dtype> dtype, dtype_a, dtype_c;
  std::optional<problem::Activation> activation;
  bool bias = false;
};

void add_linear_flags(CLI::App& app, LinearFlags& flags);

// Either a seed, or inputs from a folder.
struct LinearRequest {
  problem::Linear shape;  // resolved
  std::optional<std::uint64_t> seed;
  std::filesystem::path folder;
  std::optional<problem::LinearInputs> inputs;
};

// a.npy [samples, channels, m, k], b.npy [weight_samples, weight_channels, n, k] and, where it is there, bias.npy
// [weight_samples, weight_channels, n]. Leading extents may be missing, and are 1 then. Each is float16 or float32; the values
// of A are rounded to `dtype_a`, the others to `dtype`. Where experts.npy (int32 [m, top]) is there, the weights' channels are
// experts, and routing.npy ([m, top]) says how their results are weighed. Throws InputError, naming the file.
problem::LinearInputs read_linear_inputs(const std::filesystem::path& folder, problem::Dtype dtype, problem::Dtype dtype_a);

// Reads the files that the flags name, but makes no random inputs yet: there may be no memory for them. Throws InputError for
// bad files and for flags that contradict them or each other, std::invalid_argument for a shape that cannot be.
LinearRequest make_request(const LinearStep& step, const LinearFlags& flags, const CommonOptions& options);

}  // namespace run
