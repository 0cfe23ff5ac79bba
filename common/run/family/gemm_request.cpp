#include "common/run/family/gemm_request.h"

#include <CLI/CLI.hpp>

#include "common/run/harness/files.h"

namespace run {
namespace {

namespace fs = std::filesystem;
using problem::Gemm;
using problem::NpyArray;

// What no file fixes.
Gemm with_options(Gemm shape, const GemmFlags& flags) {
  shape.lda = flags.lda.value_or(shape.lda);
  shape.ldb = flags.ldb.value_or(shape.ldb);
  shape.ldc = flags.ldc.value_or(shape.ldc);
  shape.dtype = flags.dtype.value_or(shape.dtype);
  return shape;
}

GemmRequest generated(const GemmFlags& flags, const Gemm& defaults, std::uint64_t seed) {
  Gemm shape = with_options(defaults, flags);
  shape.batch = flags.batch.value_or(defaults.batch);
  shape.batch_a = flags.batch_a.value_or(flags.batch ? 0 : defaults.batch_a);
  shape.m = flags.m.value_or(defaults.m);
  shape.n = flags.n.value_or(defaults.n);
  shape.k = flags.k.value_or(defaults.k);
  return {.shape = problem::resolve(shape), .seed = seed, .folder = {}, .inputs = {}};
}

GemmRequest from_folder(const GemmFlags& flags, const Gemm& defaults, const fs::path& folder) {
  Gemm shape = with_options(defaults, flags);
  problem::GemmInputs in = read_gemm_inputs(folder, shape.dtype);
  const auto& a = in.a.shape;
  const auto& b = in.b.shape;
  shape.batch = fixed_by_file("--batch", flags.batch, b[0], folder);
  shape.batch_a = fixed_by_file("--batch-a", flags.batch_a, a[0], folder);
  shape.m = fixed_by_file("--m", flags.m, a[1], folder);
  shape.n = fixed_by_file("--n", flags.n, b[1], folder);
  shape.k = fixed_by_file("--k", flags.k, a[2], folder);
  return {.shape = problem::resolve(shape), .seed = {}, .folder = folder, .inputs = std::move(in)};
}

NpyArray read_matrices(const fs::path& file, const char* rows) {
  NpyArray array = problem::read_npy(file);
  auto& shape = array.tensor.shape;
  const std::string as_read = problem::to_string(shape);
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  if (shape.size() != 3) refuse(file, "shape " + as_read + "; it must be [batch, " + rows + ", k] or [" + rows + ", k]");
  require_extents(file, shape);
  return array;
}

}  // namespace

void add_gemm_flags(CLI::App& app, GemmFlags& flags) {
  add_whole_number(app, "--batch", flags.batch, 1, "batch entries");
  add_whole_number(app, "--batch-a", flags.batch_a, 1, "batch entries of A: as many, or 1 that all share (default: as many)");
  add_whole_number(app, "--m", flags.m, 1, "rows of A and of C");
  add_whole_number(app, "--n", flags.n, 1, "rows of B, columns of C");
  add_whole_number(app, "--k", flags.k, 1, "columns of A and of B: C = A · Bᵀ");
  add_whole_number(app, "--lda", flags.lda, 1, "elements from one row of A to the next (default: k)");
  add_whole_number(app, "--ldb", flags.ldb, 1, "of B (default: k)");
  add_whole_number(app, "--ldc", flags.ldc, 1, "of C (default: n)");
  add_dtype(app, flags.dtype);
  app.add_option("--experts", flags.experts, "rows of A by expert (no variant supports it yet)")->type_name("FILE");
}

problem::GemmInputs read_gemm_inputs(const fs::path& folder, problem::Dtype dtype) {
  NpyArray a = read_matrices(folder / "a.npy", "m"), b = read_matrices(folder / "b.npy", "n");
  require_one_type(folder, "a.npy and b.npy", {&a, &b}, dtype);
  const auto& a_shape = a.tensor.shape;
  const auto& b_shape = b.tensor.shape;
  if (a_shape[2] != b_shape[2] || (a_shape[0] != 1 && a_shape[0] != b_shape[0])) {
    refuse(folder / "b.npy", "shape " + problem::to_string(b_shape) + " does not go with a.npy's " +
                                 problem::to_string(a_shape) + ": k must be equal, and batch too unless A's is 1");
  }
  return {std::move(a.tensor), std::move(b.tensor)};
}

GemmRequest make_request(const GemmStep& step, const GemmFlags& flags, const CommonOptions& options) {
  if (flags.experts) throw InputError("--experts: no variant of " + step.name + " groups rows by expert");
  if (options.input) return from_folder(flags, step.default_shape, *options.input);
  return generated(flags, step.default_shape, options.seed.value_or(default_seed));
}

}  // namespace run
