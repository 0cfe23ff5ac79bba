// What a step of row softmaxes is asked to compute: the family's own flags, and what they and the files add up to.
#pragma once

#include <filesystem>
#include <optional>

#include "common/problem/softmax.h"
#include "common/run/cli/options.h"
#include "common/run/family/softmax.h"

namespace run {

struct SoftmaxFlags {
  std::optional<int> rows, cols, ldx, ldy;
  std::optional<problem::Dtype> dtype;
};

void add_softmax_flags(CLI::App& app, SoftmaxFlags& flags);

// Either a seed, or x from a folder.
struct SoftmaxRequest {
  problem::Softmax shape;  // resolved
  std::optional<std::uint64_t> seed;
  std::filesystem::path folder;
  std::optional<problem::Tensor> inputs;  // x
};

// x.npy [rows, cols], float16 or float32; the values are rounded to `dtype`. Throws InputError, naming the file.
problem::Tensor read_softmax_input(const std::filesystem::path& folder, problem::Dtype dtype);

// Reads the file that the flags name, but makes no random inputs yet: there may be no memory for them. Throws InputError for a
// bad file and for flags that contradict it, std::invalid_argument for a shape that cannot be.
SoftmaxRequest make_request(const SoftmaxStep& step, const SoftmaxFlags& flags, const CommonOptions& options);

}  // namespace run
