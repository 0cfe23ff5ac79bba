// What a step of matrix products is asked to compute: the family's own flags, and what they and the files add up to.
#pragma once

#include <filesystem>
#include <optional>

#include "common/problem/gemm.h"
#include "common/run/cli/options.h"
#include "common/run/family/gemm.h"

namespace run {

struct GemmFlags {
  std::optional<int> batch, batch_a, m, n, k, lda, ldb, ldc;
  std::optional<problem::Dtype> dtype;
  std::optional<std::filesystem::path> experts;
};

void add_gemm_flags(CLI::App& app, GemmFlags& flags);

// Either a seed, or inputs from a folder.
struct GemmRequest {
  problem::Gemm shape;  // resolved
  std::optional<std::uint64_t> seed;
  std::filesystem::path folder;
  std::optional<problem::GemmInputs> inputs;
};

// a.npy [batch, m, k], [1, m, k] or [m, k] (then A is shared), b.npy [batch, n, k] or [n, k], both float16 or both float32; the
// values are rounded to `dtype`. Throws InputError, naming the file.
problem::GemmInputs read_gemm_inputs(const std::filesystem::path& folder, problem::Dtype dtype);

// Reads the files that the flags name, but makes no random inputs yet: there may be no memory for them. Throws InputError for
// bad files and for flags that contradict them or each other, std::invalid_argument for a shape that cannot be.
GemmRequest make_request(const GemmStep& step, const GemmFlags& flags, const CommonOptions& options);

}  // namespace run
