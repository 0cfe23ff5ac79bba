#include "common/run/family/gather.h"

#include "common/problem/require.h"
#include "common/problem/splitmix.h"

namespace run {
namespace {

using problem::Element;
using problem::Integers;
using problem::Tensor;

}  // namespace

Gather resolve(const Gather& shape) {
  problem::require_extent("rows", shape.rows);
  problem::require_extent("cols", shape.cols);
  problem::require_extent("ids", shape.ids);
  problem::require(shape.dtype != problem::Dtype::fp32, "x must be fp16 or bf16: its products with int8 are exact in fp32");
  return shape;
}

std::string to_string(const Gather& shape) {
  return "rows " + std::to_string(shape.rows) + ", cols " + std::to_string(shape.cols) + ", ids " + std::to_string(shape.ids) +
         ", " + std::string(problem::name(shape.dtype));
}

GatherInputs make_inputs(const Gather& shape, std::uint64_t seed) {
  std::uint64_t n = 0;
  const auto number = [&](std::int64_t from, std::int64_t end) {
    return static_cast<std::int32_t>(from + static_cast<std::int64_t>(problem::splitmix(seed, n++) % (end - from)));
  };
  GatherInputs in{Tensor({shape.rows, shape.cols}), Integers({shape.cols}), Integers({shape.ids})};
  for (float& x : in.x.values) x = static_cast<float>(number(-100, 101)) / 16;
  for (std::int32_t& factor : in.factors.values) factor = number(-128, 128);
  for (std::int32_t& id : in.ids.values) id = number(0, shape.rows);
  return in;
}

std::string to_string(const GatherSupport&) { return "fp16, bf16; any rows; any cols; any ids"; }

std::optional<std::string> refusal(const GatherSupport&, const Gather&) { return std::nullopt; }

GatherTruth::GatherTruth(const Gather& shape, const GatherInputs& in)
    : dtype_(shape.dtype), y_({shape.ids, shape.cols}), rest_({0, shape.cols}), taken_({shape.rows}), missed_({0}) {
  for (int n = 0; n < shape.ids; ++n) {
    ++taken_.values[in.ids.values[n]];
    for (int c = 0; c < shape.cols; ++c) {
      y_.values[std::int64_t{n} * shape.cols + c] =
          in.x.values[std::int64_t{in.ids.values[n]} * shape.cols + c] * static_cast<float>(in.factors.values[c]);
    }
  }
  for (int row = 0; row < shape.rows; ++row) {
    if (taken_.values[row] > 0) continue;
    missed_.values.push_back(row);
    const auto from = in.x.values.begin() + std::int64_t{row} * shape.cols;
    rest_.values.insert(rest_.values.end(), from, from + shape.cols);
  }
  missed_.shape[0] = rest_.shape[0] = std::ssize(missed_.values);
}

namespace {

// Numbers that must be equal to the truth: no error is allowed.
check::TensorVerdict judge_exact(const std::string& name, problem::Dtype dtype, const Tensor& values, const Tensor& truth) {
  if (const auto wrong = check::judge_shape(name, values.shape, truth.shape)) return *wrong;
  const std::vector<double> exact(truth.values.begin(), truth.values.end());
  return check::judge({.name = name, .dtype = dtype, .cols = truth.shape[1], .values = values.values},
                      {.truth = exact, .baseline = truth.values, .factor = 0});
}

}  // namespace

std::vector<check::TensorVerdict> GatherTruth::judge(const std::vector<NamedTensor>& outputs) const {
  Integers count({1});
  count.values[0] = static_cast<std::int32_t>(missed_.values.size());
  return {judge_exact("y", problem::Dtype::fp32, tensor_of(outputs, "y"), y_),
          judge_exact("rest", dtype_, tensor_of(outputs, "rest"), rest_),
          check::judge_integers("taken", integers_of(outputs, "taken"), taken_),
          check::judge_integers("missed_count", integers_of(outputs, "missed_count"), count),
          check::judge_integers("missed", integers_of(outputs, "missed"), missed_)};
}

Arrays GatherFamily::arrays(const Problem& g, Layout) {
  const Array missed_count = output("missed_count", Element::int32(), {1});
  return {input("x", g.dtype, {g.rows, g.cols}),
          input("factors", Element::int8(), {g.cols}),
          input("ids", Element::int32(), {g.ids}),
          output("y", problem::Dtype::fp32, {g.ids, g.cols}),
          output("taken", Element::int32(), {g.rows}),
          missed_count,
          output_up_to("missed", Element::int32(), {g.rows}, missed_count),
          output_up_to("rest", g.dtype, {g.rows, g.cols}, missed_count)};
}

std::vector<Given> GatherFamily::given(const Problem&, const Inputs& in) {
  return {{"x", &in.x}, {"factors", nullptr, in.factors.values}, {"ids", nullptr, in.ids.values}};
}

GatherLaunch GatherFamily::bind(const Problem& g, const DeviceArrays& arrays) {
  return {g,
          arrays.data("x"),
          arrays.get<std::int8_t>("factors"),
          arrays.get<std::int32_t>("ids"),
          arrays.get<float>("y"),
          arrays.get<std::int32_t>("taken"),
          arrays.get<std::int32_t>("missed_count"),
          arrays.get<std::int32_t>("missed"),
          arrays.data("rest")};
}

std::vector<check::TensorVerdict> GatherFamily::judge(const Truth& truth, const std::vector<NamedTensor>& outputs) {
  return truth.judge(outputs);
}

}  // namespace run
