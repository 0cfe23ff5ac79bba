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

problem::Attention shape_of(const AttentionProblem& p) {
  problem::Attention shape;
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
  return problem::resolve(shape);
}

template <bool Const>
device::AnyHeads<Const> view(const AttentionTensor& tensor) {
  return {tensor.data, tensor.batch_stride, tensor.head_stride, tensor.row_stride};
}

// What the launches of a variant refer to.
struct Prepared {
  const run::AttentionVariant& variant;
  run::DeviceArrays scratch;
  run::AttentionLaunch launch;

  Prepared(const run::AttentionVariant& chosen, const problem::Attention& shape, const AttentionProblem& p)
      : variant(chosen), scratch(chosen.scratch_of(shape)), launch{shape,           view<true>(p.q),  view<true>(p.k),
                                                                   view<true>(p.v), view<false>(p.o), p.lse,
                                                                   scratch} {}
};

}  // namespace

const char* attention_describe() {
  static const std::string text = [] {
    const run::AttentionStep& step = run::this_step_as<run::AttentionStep>();
    nlohmann::ordered_json variants = nlohmann::ordered_json::array();
    for (const run::AttentionVariant& variant : step.variants) {
      variants.push_back({{"name", variant.name}, {"idea", variant.idea}, {"supports", to_string(variant.supports)}});
    }
    return nlohmann::ordered_json{
        {"step", step.name},
        {"default", step.default_variant},
        {"toolkit", std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10)},
        {"variants", variants}}
        .dump();
  }();
  return text.c_str();
}

AttentionProgram* attention_prepare(const char* variant, const AttentionProblem* problem) {
  return guarded<AttentionProgram*>(nullptr, [&] {
    const problem::Attention shape = shape_of(*problem);
    const auto refusal = [&](const run::AttentionVariant& v) { return run::refusal(v.supports, shape); };
    const auto selection = run::select(run::this_step_as<run::AttentionStep>().variants, variant, refusal);
    if (selection.chosen.size() != 1) throw std::invalid_argument("--variant: name one, not " + std::string(variant));
    const auto prepared = std::make_shared<const Prepared>(*selection.chosen.front(), shape, *problem);
    if (const auto reason = run::refusal(prepared->variant.supports, prepared->launch)) {
      throw std::invalid_argument(prepared->variant.name + " " + *reason);
    }
    return new AttentionProgram{shape.flops(), [prepared] { prepared->variant.launch(prepared->launch); }};
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
