#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "benchmarks/attention_library.h"
#include "benchmarks/mma_roof.cuh"
#include "common/run/cli/select.h"
#include "common/run/family/any_step.h"

struct AttentionProgram {
  double operations;
  std::function<void()> launch;
};

namespace {

std::string last_error;

// What the call returns; `failed` where it throws, since no exception may leave through a C interface.
template <class Result, class Call>
Result guarded(Result failed, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    last_error = error.what();
    return failed;
  }
}

problem::Dtype parse_dtype(const std::string& name) {
  for (const problem::Dtype dtype : {problem::Dtype::fp32, problem::Dtype::fp16, problem::Dtype::bf16}) {
    if (name == problem::name(dtype)) return dtype;
  }
  throw std::invalid_argument("'" + name + "' is none of fp32, fp16, bf16");
}

template <class Problem>  // problem::Attention or problem::Backward
Problem shape_of(const AttentionProblem& p) {
  Problem shape;
  shape.batch = p.batch;
  shape.heads = p.heads;
  shape.kv_heads = p.kv_heads;
  shape.seq_q = p.seq_q;
  shape.seq_k = p.seq_k;
  shape.dim = p.dim;
  shape.causal = p.causal != 0;
  shape.window = p.window;
  if (!std::isnan(p.scale)) shape.scale = p.scale;
  shape.dtype = parse_dtype(p.dtype);
  if ((p.cu_seqlens == nullptr) != (p.cu_seqlens_count == 0))
    throw std::invalid_argument("cu_seqlens and its count: one is missing");
  if (p.cu_seqlens) shape.cu_seqlens.assign(p.cu_seqlens, p.cu_seqlens + p.cu_seqlens_count);
  return problem::resolve(shape);
}

template <bool Const>
device::AnyHeads<Const> view(const AttentionTensor& tensor) {
  return {tensor.data, tensor.batch_stride, tensor.head_stride, tensor.row_stride};
}

// What the launches of a variant refer to: the tensors of `bind`, and scratch memory of its own.
template <class Step>
struct Prepared {
  using Variant = run::Variant<typename Step::Family>;
  const Variant& variant;
  run::DeviceArrays scratch;
  typename Step::Family::Launch launch;

  template <class Problem, class Bind>
  Prepared(const Variant& chosen, const Problem& shape, const Bind& bind)
      : variant(chosen),
        scratch(chosen.scratch_of(shape) + run::packed_arrays(shape), run::given_packed(shape)),
        launch(bind(scratch)) {}
};

template <class Step>
const Step& step_of(const char* pass) {
  const run::AnyStep step = run::this_step();
  if (const auto* found = std::get_if<const Step*>(&step)) return **found;
  throw std::invalid_argument(std::visit([](const auto* other) { return other->name; }, step) + " has no " + pass + " pass");
}

// A program of the variant of that name. bind(scratch) makes its launch.
template <class Step, class Problem, class Bind>
AttentionProgram* prepare(const Step& step, const char* variant, const Problem& shape, const Bind& bind) {
  const auto refusal = [&](const auto& v) { return run::refusal(v.supports, shape); };
  const auto selection = run::select(step.variants, variant, refusal);
  if (selection.chosen.size() != 1) throw std::invalid_argument("--variant: name one, not " + std::string(variant));
  const auto prepared = std::make_shared<const Prepared<Step>>(*selection.chosen.front(), shape, bind);
  if (const auto reason = run::refusal(prepared->variant.supports, prepared->launch)) {
    throw std::invalid_argument(prepared->variant.name + " " + *reason);
  }
  return new AttentionProgram{shape.flops(), [prepared] { prepared->variant.launch(prepared->launch); }};
}

template <class Step>
std::string describe(const Step& step) {
  nlohmann::ordered_json variants = nlohmann::ordered_json::array();
  for (const auto& variant : step.variants) {
    variants.push_back({{"name", variant.name}, {"idea", variant.idea}, {"supports", to_string(variant.supports)}});
  }
  return nlohmann::ordered_json{
      {"step", step.name},
      {"default", step.default_variant},
      {"toolkit", std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10)},
      {"variants", variants}}
      .dump();
}

}  // namespace

const char* attention_describe() {
  static const std::string text = std::visit([](const auto* step) { return describe(*step); }, run::this_step());
  return text.c_str();
}

AttentionProgram* attention_prepare(const char* variant, const AttentionProblem* problem) {
  return guarded<AttentionProgram*>(nullptr, [&] {
    const AttentionProblem& p = *problem;
    const auto shape = shape_of<problem::Attention>(p);
    return prepare(step_of<run::AttentionStep>("forward"), variant, shape, [&](const run::DeviceArrays& scratch) {
      return run::AttentionLaunch{shape, view<true>(p.q), view<true>(p.k), view<true>(p.v), view<false>(p.o), p.lse, scratch};
    });
  });
}

AttentionProgram* attention_prepare_backward(const char* variant, const AttentionProblem* problem,
                                             const AttentionGradients* gradients) {
  return guarded<AttentionProgram*>(nullptr, [&] {
    const AttentionProblem& p = *problem;
    const AttentionGradients& g = *gradients;
    const auto shape = shape_of<problem::Backward>(p);
    return prepare(step_of<run::BackwardStep>("backward"), variant, shape, [&](const run::DeviceArrays& scratch) {
      return run::BackwardLaunch{
          shape, view<true>(p.q),   view<true>(p.k),   view<true>(p.v),   view<true>(p.o), view<true>(g.d_o),
          p.lse, view<false>(g.dq), view<false>(g.dk), view<false>(g.dv), scratch};
    });
  });
}

AttentionProgram* attention_prepare_roof(const char* dtype, double operations) {
  return guarded<AttentionProgram*>(nullptr, [&] {
    const problem::Dtype parsed = parse_dtype(dtype);
    if (parsed == problem::Dtype::fp32) throw std::invalid_argument("mma.sync.m16n8k16 multiplies fp16 or bf16, not fp32");
    const auto roof = std::make_shared<const benchmarks::MmaRoof>(parsed, operations);
    return new AttentionProgram{roof->operations(), [roof] { roof->launch(); }};
  });
}

double attention_operations(const AttentionProgram* program) { return program->operations; }

bool attention_launch(const AttentionProgram* program) {
  return guarded(false, [&] {
    program->launch();
    return true;
  });
}

void attention_release(AttentionProgram* program) { delete program; }

const char* attention_error() { return last_error.c_str(); }
