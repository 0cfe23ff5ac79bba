#include "common/run/gemm_execute.h"

#include <stdexcept>

namespace run {

Outcome execute(const GemmVariant& variant, const problem::Gemm& requested, const problem::GemmInputs& inputs,
                const ExecuteOptions& options, const GemmTruth* truth) {
  const problem::Gemm shape = problem::resolve(requested);
  if (const auto reason = refusal(variant.supports, shape)) throw std::invalid_argument(variant.name + " " + *reason);
  const auto matrices = [&](const char* name, std::int64_t batch, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
    return RowsBuffer(name, {batch, rows, cols}, {(rows + (options.layout.gaps ? 3 : 0)) * stride, stride}, shape.dtype);
  };
  RowsBuffer a = matrices("a", shape.batch_a, shape.m, shape.k, shape.lda);
  RowsBuffer b = matrices("b", shape.batch, shape.n, shape.k, shape.ldb);
  RowsBuffer c = matrices("c", shape.batch, shape.m, shape.n, shape.ldc);
  Scratch scratch(variant.scratch(shape));
  a.upload(inputs.a);
  b.upload(inputs.b);
  const bool shared = shape.batch_a == 1;
  const GemmLaunch launch{shape, a.data(), b.data(), c.data(), shared ? 0 : a.stride(0), b.stride(0), c.stride(0), scratch};

  std::optional<GemmTruth> own_truth;
  if (options.check && !truth) truth = &own_truth.emplace(shape, inputs);

  Program program;
  program.deterministic = variant.deterministic;
  program.launch = [&] { variant.launch(launch); };
  program.poison = [&] {
    c.poison();
    scratch.poison();
  };
  program.download = [&] { return std::vector<NamedTensor>{{"c", c.download(), shape.dtype}}; };
  program.surroundings_intact = [&] {
    return a.guards_intact() && b.guards_intact() && c.surroundings_intact() && scratch.guards_intact();
  };
  program.judge = [&](const std::vector<NamedTensor>& out) {
    return std::vector<check::TensorVerdict>{truth->judge(out[0].tensor)};
  };
  return run_program(program, options);
}

}  // namespace run
