#include "common/run/family/attention_files.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/run/harness/files.h"

namespace run {
namespace {

namespace fs = std::filesystem;
using problem::NpyArray;
using problem::Tensor;

using Shape = std::vector<std::int64_t>;

NpyArray read_heads(const fs::path& file) {
  NpyArray array = problem::read_npy(file);
  const Shape& shape = array.tensor.shape;
  if (shape.size() != 4) refuse(file, "shape " + problem::to_string(shape) + "; it must be [batch, heads, seq, dim]");
  require_extents(file, shape);
  return array;
}

Tensor read_shaped(const fs::path& file, const Shape& expected) {
  Tensor tensor = problem::read_npy(file).tensor;
  if (tensor.shape != expected) {
    refuse(file, "shape " + problem::to_string(tensor.shape) + " where x.npy asks for " + problem::to_string(expected));
  }
  return tensor;
}

}  // namespace

problem::AttentionInputs read_attention_inputs(const fs::path& folder, problem::Dtype dtype) {
  const fs::path q_file = folder / "q.npy", k_file = folder / "k.npy", v_file = folder / "v.npy";
  NpyArray q = read_heads(q_file), k = read_heads(k_file), v = read_heads(v_file);
  require_one_type(folder, "q.npy, k.npy and v.npy", {&q, &k, &v}, dtype);
  const Shape& queries = q.tensor.shape;
  const Shape& keys = k.tensor.shape;
  if (v.tensor.shape != keys) {
    refuse(v_file, "shape " + problem::to_string(v.tensor.shape) + " where k.npy has " + problem::to_string(keys));
  }
  if (keys[0] != queries[0] || keys[3] != queries[3]) {
    refuse(k_file, "shape " + problem::to_string(keys) + " does not go with q.npy's " + problem::to_string(queries) +
                       ": batch and dim must be equal");
  }
  return {std::move(q.tensor), std::move(k.tensor), std::move(v.tensor)};
}

std::shared_ptr<const problem::SparseMask> read_sparse_mask(const fs::path& folder, const problem::Attention& a, int block_q,
                                                            int block_k) {
  const fs::path blocks_file = folder / "block_mask.npy", types_file = folder / "head_type.npy",
                 streaming_file = folder / "streaming.npy";
  const bool has_blocks = fs::exists(blocks_file), has_types = fs::exists(types_file),
             has_streaming = fs::exists(streaming_file);
  if (!has_blocks && !has_types && !has_streaming) return nullptr;
  auto mask = std::make_shared<problem::SparseMask>();
  mask->block_q = block_q;
  mask->block_k = block_k;
  if (!has_types && has_streaming) refuse(streaming_file, "there is no head_type.npy that says which heads stream");
  mask->types.assign(a.heads, static_cast<std::int32_t>(problem::HeadType::block_sparse));
  if (has_types) {
    mask->types = problem::read_npy_integers(types_file);
    for (const std::int32_t type : mask->types) {
      if (type < 0 || type > static_cast<std::int32_t>(problem::HeadType::streaming_tokens)) {
        refuse(types_file, "type " + std::to_string(type) +
                               "; it must be 0 (dense), 1 (block-sparse), 2 (streaming by block) or 3 (streaming by token)");
      }
    }
    if (std::ssize(mask->types) != a.heads) {
      refuse(types_file, std::to_string(mask->types.size()) + " heads where q.npy has " + std::to_string(a.heads));
    }
  }
  if (has_streaming) {
    const problem::Integers pairs = problem::read_npy_integer_array(streaming_file);
    if (pairs.shape != Shape{a.heads, 2}) {
      refuse(streaming_file, "shape " + problem::to_string(pairs.shape) + "; it must be [" + std::to_string(a.heads) + ", 2]");
    }
    for (int head = 0; head < a.heads; ++head) {
      mask->streaming.push_back({pairs.values[2 * head], pairs.values[2 * head + 1]});
      if (mask->streaming.back().sink < 0 || mask->streaming.back().local < 0) {
        refuse(streaming_file, "head " + std::to_string(head) + " has a number below 0");
      }
    }
  } else if (mask->has(problem::HeadType::streaming_blocks) || mask->has(problem::HeadType::streaming_tokens)) {
    refuse(types_file, "some heads stream, and there is no streaming.npy that says how far");
  }
  if (has_blocks) {
    const problem::NpyFlags live = problem::read_npy_flags(blocks_file);
    const int rows = problem::query_blocks(*mask, a), columns = problem::key_blocks(*mask, a);
    if (live.shape != Shape{1, a.heads, rows, columns} && live.shape != Shape{a.batch, a.heads, rows, columns}) {
      refuse(blocks_file, "shape " + problem::to_string(live.shape) + "; blocks of " + std::to_string(block_q) + " × " +
                              std::to_string(block_k) + " (--block-q, --block-k) ask for " +
                              problem::to_string(Shape{a.batch, a.heads, rows, columns}) + ", or 1 in place of the batch");
    }
    mask->batches = static_cast<int>(live.shape[0]);
    const int words = problem::words_of_row(*mask, a);
    mask->live.resize(live.values.size() / columns * words);
    for (std::size_t n = 0; n < live.values.size(); ++n) {
      const std::size_t row = n / columns, column = n % columns;
      if (live.values[n]) mask->live[row * words + column / 32] |= static_cast<std::int32_t>(1u << column % 32);
    }
  } else if (mask->has(problem::HeadType::block_sparse)) {
    refuse(types_file, "some heads are block-sparse, and there is no block_mask.npy");
  }
  return mask;
}

std::shared_ptr<const Tensor> read_bias(const fs::path& file, problem::Dtype dtype) {
  Tensor bias = problem::read_npy(file).tensor;
  if (bias.shape.empty() || bias.shape.size() > 4) {
    refuse(file,
           "shape " + problem::to_string(bias.shape) + "; it must be [batch, heads, seq_q, seq_k], or its last dimensions");
  }
  bias.shape.insert(bias.shape.begin(), 4 - bias.shape.size(), 1);
  for (float& x : bias.values) x = problem::round_to(dtype, x);
  return std::make_shared<const Tensor>(std::move(bias));
}

std::shared_ptr<const Tensor> read_sinks(const fs::path& file) {
  return std::make_shared<const Tensor>(problem::read_npy(file).tensor);
}

LayerInputs read_layer_inputs(const fs::path& folder) {
  const fs::path x_file = folder / "x.npy";
  Tensor x = problem::read_npy(x_file).tensor;
  const std::string as_read = problem::to_string(x.shape);
  if (x.shape.size() == 2) x.shape.insert(x.shape.begin(), 1);
  if (x.shape.size() != 3) refuse(x_file, "shape " + as_read + "; it must be [batch, seq, E] or [seq, E]");
  require_extents(x_file, {x.shape[0] * x.shape[1], 3 * x.shape[2]});
  const std::int64_t width = x.shape[2];
  return {std::move(x), read_shaped(folder / "in_proj_weight.npy", {3 * width, width}),
          read_shaped(folder / "in_proj_bias.npy", {3 * width}), read_shaped(folder / "out_proj_weight.npy", {width, width}),
          read_shaped(folder / "out_proj_bias.npy", {width})};
}

std::optional<int> read_layer_heads(const fs::path& folder) {
  const fs::path path = folder / "layer.json";
  if (!fs::exists(path)) return std::nullopt;
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object()) refuse(path, "not a JSON object");
  const auto heads = json.find("heads");
  if (heads == json.end()) return std::nullopt;
  if (!heads->is_number_integer() || *heads < 1 || *heads > std::numeric_limits<int>::max()) {
    refuse(path, "\"heads\" must be a whole number from 1");
  }
  return heads->get<int>();
}

}  // namespace run
