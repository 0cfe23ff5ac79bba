#include "common/run/softmax_execute.h"

#include <stdexcept>

#include "common/run/rows_buffer.h"

namespace run {

Outcome execute(const SoftmaxVariant& variant, const problem::Softmax& requested, const problem::Tensor& input,
                const ExecuteOptions& options, const SoftmaxTruth* truth) {
  const problem::Softmax shape = problem::resolve(requested);
  if (const auto reason = refusal(variant.supports, shape)) throw std::invalid_argument(variant.name + " " + *reason);
  RowsBuffer x("x", {shape.rows, shape.cols}, {shape.ldx}, shape.dtype);
  RowsBuffer y("y", {shape.rows, shape.cols}, {shape.ldy}, shape.dtype);
  Scratch scratch(variant.scratch(shape));
  x.upload(input);
  const SoftmaxLaunch launch{shape, x.data(), y.data(), scratch};

  std::optional<SoftmaxTruth> own_truth;
  if (options.check && !truth) truth = &own_truth.emplace(shape, input);

  Program program;
  program.deterministic = variant.deterministic;
  program.launch = [&] { variant.launch(launch); };
  program.poison = [&] {
    y.poison();
    scratch.poison();
  };
  program.download = [&] { return std::vector<NamedTensor>{{"y", y.download(), shape.dtype}}; };
  program.surroundings_intact = [&] { return x.guards_intact() && y.surroundings_intact() && scratch.guards_intact(); };
  program.judge = [&](const std::vector<NamedTensor>& out) {
    return std::vector<check::TensorVerdict>{truth->judge(out[0].tensor)};
  };
  return run_program(program, options);
}

}  // namespace run
