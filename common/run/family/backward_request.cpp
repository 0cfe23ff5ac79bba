#include "common/run/family/backward_request.h"

#include "common/run/family/attention_files.h"
#include "common/run/harness/files.h"

namespace run {
namespace {

namespace fs = std::filesystem;
using problem::NpyArray;
using problem::Tensor;

Tensor read_like_q(const fs::path& folder, const std::string& name, const Tensor& q, problem::Dtype dtype) {
  const fs::path file = folder / name;
  NpyArray array = problem::read_npy(file), q_file = problem::read_npy(folder / "q.npy");
  if (array.tensor.shape != q.shape) {
    refuse(file, "shape " + problem::to_string(array.tensor.shape) + " where q.npy has " + problem::to_string(q.shape));
  }
  require_one_type(folder, "q.npy and " + name, {&q_file, &array}, dtype);
  return std::move(array.tensor);
}

Tensor read_lse(const fs::path& file, const Tensor& q) {
  NpyArray array = problem::read_npy(file);
  const std::vector<std::int64_t> expected(q.shape.begin(), q.shape.begin() + 3);
  if (array.tensor.shape != expected) {
    refuse(file, "shape " + problem::to_string(array.tensor.shape) + " where q.npy asks for " + problem::to_string(expected));
  }
  if (array.stored != problem::Dtype::fp32) refuse(file, "float16; LSE must be float32");
  return std::move(array.tensor);
}

}  // namespace

problem::BackwardInputs read_backward_inputs(const fs::path& folder, problem::Dtype dtype) {
  problem::AttentionInputs forward = read_attention_inputs(folder, dtype);
  problem::BackwardInputs in;
  in.d_o = read_like_q(folder, "do.npy", forward.q, dtype);
  const fs::path o_file = folder / "o.npy", lse_file = folder / "lse.npy";
  if (fs::exists(o_file) != fs::exists(lse_file)) {
    const bool has_o = fs::exists(o_file);
    refuse(folder, std::string("there is ") + (has_o ? "o.npy but no lse.npy" : "lse.npy but no o.npy") +
                       "; a forward pass gives both, and without both it is computed");
  }
  if (fs::exists(o_file)) {
    in.o = read_like_q(folder, "o.npy", forward.q, dtype);
    in.lse = read_lse(lse_file, forward.q);
  }
  in.q = std::move(forward.q);
  in.k = std::move(forward.k);
  in.v = std::move(forward.v);
  return in;
}

BackwardRequest make_request(const BackwardStep& step, const AttentionFlags& flags, const CommonOptions& options) {
  const problem::Attention& defaults = step.default_shape;
  if (!options.input) {
    return {.shape = {with_mask(
                with_sparse_mask(with_score_arrays(asked_shape(flags, defaults), flags, options), flags, options), options)},
            .seed = options.seed.value_or(default_seed),
            .folder = {},
            .inputs = {}};
  }
  problem::BackwardInputs in = read_backward_inputs(*options.input, flags.dtype.value_or(defaults.dtype));
  const problem::Attention of_files = shape_of_files(flags, defaults, in.q.shape, in.k.shape, *options.input);
  const problem::Attention shape =
      with_mask(with_sparse_mask(with_score_arrays(of_files, flags, options), flags, options), options);
  return {.shape = {shape}, .seed = {}, .folder = *options.input, .inputs = std::move(in)};
}

}  // namespace run
