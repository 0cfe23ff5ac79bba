// What a step of the backward pass is asked to compute: flags as the forward's, and what they and the files add up to.
#pragma once

#include <filesystem>
#include <optional>

#include "common/problem/backward.h"
#include "common/run/cli/options.h"
#include "common/run/family/attention_request.h"
#include "common/run/family/backward.h"

namespace run {

// Either a seed, or inputs from a folder.
struct BackwardRequest {
  problem::Backward shape;  // resolved
  std::optional<std::uint64_t> seed;
  std::filesystem::path folder;
  std::optional<problem::BackwardInputs> inputs;
};

// q.npy, k.npy, v.npy as the forward's, do.npy [batch, heads, seq_q, dim] of their type; and, or they are computed, o.npy of
// the same shape and type and lse.npy [batch, heads, seq_q]: both or neither. Values are rounded to `dtype`, LSE is not. Throws
// InputError, naming the file.
problem::BackwardInputs read_backward_inputs(const std::filesystem::path& folder, problem::Dtype dtype);

// Reads the files that the flags name, but makes no random inputs yet: there may be no memory for them. Throws InputError for
// bad files and for flags that contradict them, std::invalid_argument for a shape that cannot be.
BackwardRequest make_request(const BackwardStep& step, const AttentionFlags& flags, const CommonOptions& options);

}  // namespace run
