// Attention's inputs from .npy files. Everything here throws InputError, naming the file, for what cannot be used.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "common/problem/attention.h"
#include "common/run/family/attention_truth.h"

namespace run {

// q.npy [batch, heads, seq_q, dim], k.npy and v.npy [batch, kv_heads, seq_k, dim], all float16 or all float32; the values are
// rounded to `dtype`. Paged: k.npy and v.npy [pages, kv_heads, page size, dim].
problem::AttentionInputs read_attention_inputs(const std::filesystem::path& folder, problem::Dtype dtype, bool paged = false);

// The mask of a folder: block_mask.npy, bool or uint8 [batch or 1, heads, query blocks, key blocks]; head_type.npy, integers
// [heads] (0 dense, 1 block-sparse, 2 streaming by block, 3 streaming by token; without the file all heads are block-sparse);
// streaming.npy, integers [heads, 2] (sink and local). Null where it has none of them. The shape is resolved but for the mask.
std::shared_ptr<const problem::SparseMask> read_sparse_mask(const std::filesystem::path& folder,
                                                            const problem::Attention& shape, int block_q, int block_k);

// A bias [batch, heads, seq_q, seq_k], each but the last may be 1, and missing ones are; rounded to `dtype`. Sinks [heads].
std::shared_ptr<const problem::Tensor> read_bias(const std::filesystem::path& file, problem::Dtype dtype);
std::shared_ptr<const problem::Tensor> read_sinks(const std::filesystem::path& file);

// x.npy [batch, seq, E] or [seq, E] (then a batch of 1), in_proj_weight.npy [3E, E], in_proj_bias.npy [3E],
// out_proj_weight.npy [E, E] and out_proj_bias.npy [E].
LayerInputs read_layer_inputs(const std::filesystem::path& folder);

// "heads" of layer.json; nothing where there is no such file.
std::optional<int> read_layer_heads(const std::filesystem::path& folder);

}  // namespace run
