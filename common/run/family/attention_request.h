// What an attention step is asked to compute: the family's own flags, and what they and the files add up to.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "common/problem/attention.h"
#include "common/run/cli/options.h"
#include "common/run/family/attention.h"
#include "common/run/family/attention_truth.h"

namespace run {

nlohmann::ordered_json attention_json(const problem::Attention& shape);  // as docs/result.schema.json has it

struct AttentionFlags {
  std::optional<int> batch, heads, kv_heads, seq_q, seq_k, dim;
  std::optional<problem::Dtype> dtype;
  problem::Attention options;           // the options that have a row (attention_options.h), as far as they are given
  std::vector<std::string_view> given;  // names of these, but for those that are a switch
  std::optional<std::filesystem::path> layer, cu_seqlens, bias, sinks, lengths;
  std::optional<std::string> pattern;
  std::optional<int> block_q, block_k, page_size;
};

void add_shape_flags(CLI::App& app, AttentionFlags& flags);  // all but --layer
void add_attention_flags(CLI::App& app, AttentionFlags& flags);

// --backward, of a step that has both passes. The flag is read before the others, because it says whose the others are.
void add_backward_flag(CLI::App& app);
bool has_backward_flag(int argc, char** argv);

// What the flags ask for, resolved: without files, and where q [batch, heads, seq_q, dim] and k [batch, kv_heads, seq_k, dim]
// of files fix the extents. Throws InputError for a flag that contradicts them, std::invalid_argument for a shape that cannot
// be.
problem::Attention asked_shape(const AttentionFlags& flags, const problem::Attention& defaults);
problem::Attention shape_of_files(const AttentionFlags& flags, const problem::Attention& defaults,
                                  const std::vector<std::int64_t>& q, const std::vector<std::int64_t>& k,
                                  const std::filesystem::path& folder);

// With a sparse mask, where a pattern or files give one. The seed is that of the pattern's random choices.
problem::Attention with_sparse_mask(problem::Attention shape, const AttentionFlags& flags, const CommonOptions& options);

// With a bias, sinks and lengths of a padded cache, from the files that flags name, or from those of the folder with inputs;
// and with a page table, where --page-size asks for one and the folder has none. The seed says which pages are whose.
problem::Attention with_score_arrays(problem::Attention shape, const AttentionFlags& flags, const CommonOptions& options);

// With files for the outputs, the mask of dropout is among them. Throws std::invalid_argument where it is too large.
problem::Attention with_mask(problem::Attention shape, const CommonOptions& options);

// Either a seed, or inputs from a folder, or a layer from a folder.
struct AttentionRequest {
  problem::Attention shape;  // resolved
  std::optional<std::uint64_t> seed;
  std::filesystem::path folder;
  std::optional<problem::AttentionInputs> inputs;
  std::optional<LayerInputs> layer;
};

// Reads the files that the flags name, but makes no random inputs yet: there may be no memory for them. Throws InputError for
// bad files and for flags that contradict them or each other, std::invalid_argument for a shape that cannot be.
AttentionRequest make_request(const AttentionStep& step, const AttentionFlags& flags, const CommonOptions& options);

}  // namespace run
