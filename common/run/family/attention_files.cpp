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
