#include "common/run/family/softmax_request.h"

#include <CLI/CLI.hpp>

#include "common/run/harness/files.h"

namespace run {

void add_softmax_flags(CLI::App& app, SoftmaxFlags& flags) {
  add_whole_number(app, "--rows", flags.rows, 1, "rows of x and of y");
  add_whole_number(app, "--cols", flags.cols, 1, "columns: scores that share a softmax");
  add_whole_number(app, "--ldx", flags.ldx, 1, "elements from one row of x to the next (default: cols)");
  add_whole_number(app, "--ldy", flags.ldy, 1, "of y (default: cols)");
  add_dtype(app, flags.dtype);
}

problem::Tensor read_softmax_input(const std::filesystem::path& folder, problem::Dtype dtype) {
  const std::filesystem::path file = folder / "x.npy";
  problem::NpyArray array = problem::read_npy(file);
  const auto& shape = array.tensor.shape;
  if (shape.size() != 2) refuse(file, "shape " + problem::to_string(shape) + "; it must be [rows, cols]");
  require_extents(file, shape);
  for (float& x : array.tensor.values) x = problem::round_to(dtype, x);
  return std::move(array.tensor);
}

SoftmaxRequest make_request(const SoftmaxStep& step, const SoftmaxFlags& flags, const CommonOptions& options) {
  problem::Softmax shape = step.default_shape;
  shape.ldx = flags.ldx.value_or(shape.ldx);
  shape.ldy = flags.ldy.value_or(shape.ldy);
  shape.dtype = flags.dtype.value_or(shape.dtype);
  if (!options.input) {
    shape.rows = flags.rows.value_or(shape.rows);
    shape.cols = flags.cols.value_or(shape.cols);
    return {.shape = problem::resolve(shape), .seed = options.seed.value_or(default_seed), .folder = {}, .inputs = {}};
  }
  problem::Tensor x = read_softmax_input(*options.input, shape.dtype);
  shape.rows = fixed_by_file("--rows", flags.rows, x.shape[0], *options.input);
  shape.cols = fixed_by_file("--cols", flags.cols, x.shape[1], *options.input);
  return {.shape = problem::resolve(shape), .seed = {}, .folder = *options.input, .inputs = std::move(x)};
}

}  // namespace run
