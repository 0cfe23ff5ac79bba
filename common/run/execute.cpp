#include "common/run/execute.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace run {
namespace {

using device::Buffer;
using problem::Dtype;
using problem::Tensor;

// Of a shape, or of a launch.
template <class Request>
void require_supported(const AttentionVariant& variant, const Request& request) {
  if (const auto reason = refusal(variant.supports, request)) throw std::invalid_argument(variant.name + " " + *reason);
}

problem::Attention supported(const AttentionVariant& variant, const problem::Attention& requested) {
  const problem::Attention shape = problem::resolve(requested);
  require_supported(variant, shape);
  return shape;
}

// A plain fp32 array in device memory.
class FloatBuffer {
 public:
  FloatBuffer(const std::string& name, std::vector<std::int64_t> shape)
      : shape_(std::move(shape)), buffer_(name, static_cast<std::size_t>(Tensor::count(shape_)) * sizeof(float)) {}

  FloatBuffer(const std::string& name, const Tensor& tensor) : FloatBuffer(name, tensor.shape) {
    buffer_.upload(tensor.values.data(), buffer_.bytes());
  }

  float* data() const { return buffer_.as<float>(); }
  void poison() { buffer_.poison(); }
  bool guards_intact() const { return buffer_.guards_intact(); }

  Tensor download() const {
    Tensor tensor(shape_);
    buffer_.download(tensor.values.data(), buffer_.bytes());
    return tensor;
  }

 private:
  std::vector<std::int64_t> shape_;
  Buffer buffer_;
};

bool same_bits(const std::vector<NamedTensor>& run, const std::vector<NamedTensor>& again) {
  return std::equal(run.begin(), run.end(), again.begin(), again.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return !check::first_difference(a.tensor.values, b.tensor.values);
  });
}

}  // namespace

const Tensor& Outcome::output(const std::string& name) const {
  for (const NamedTensor& output : outputs) {
    if (output.name == name) return output.tensor;
  }
  throw std::out_of_range("there is no output '" + name + "'");
}

Outcome run_program(const Program& program, const ExecuteOptions& options) {
  device::take_findings();  // those of earlier work
  const auto run = [&] {
    program.poison();
    const auto start = std::chrono::steady_clock::now();
    program.launch();
    device::synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };

  Outcome outcome;
  if (options.counters) {
    device::take_counters();
    device::set_counting(true);
  }
  if (options.trace) {
    device::take_traces();
    device::set_tracing(true);
  }
  outcome.host_seconds = run();
  if (options.counters) {
    device::set_counting(false);
    outcome.counters = device::take_counters();
  }
  if (options.trace) {
    device::set_tracing(false);
    outcome.traces = device::take_traces();
  }
  outcome.outputs = program.download();
  outcome.findings = device::take_findings();
  if (options.check) {
    check::Verdict& verdict = outcome.verdict.emplace();
    verdict.tensors = program.judge(outcome.outputs);
    verdict.guards_intact = program.surroundings_intact();
    if (program.deterministic && outcome.findings.empty()) {  // a second run would only find the same
      run();
      verdict.repeatable = same_bits(outcome.outputs, program.download());
      outcome.findings = device::take_findings();
    }
  }
  if (options.repetitions > 0) outcome.times = measure(program.launch, options.repetitions);
  return outcome;
}

Outcome execute(const AttentionVariant& variant, const problem::Attention& requested, const problem::AttentionInputs& inputs,
                const ExecuteOptions& options, const AttentionTruth* truth) {
  const problem::Attention shape = supported(variant, requested);
  HeadsBuffer q("q", {shape.batch, shape.heads, shape.seq_q, shape.dim}, shape.dtype, options.layout);
  HeadsBuffer k("k", {shape.batch, shape.kv_heads, shape.seq_k, shape.dim}, shape.dtype, options.layout);
  HeadsBuffer v("v", {shape.batch, shape.kv_heads, shape.seq_k, shape.dim}, shape.dtype, options.layout);
  HeadsBuffer o("o", {shape.batch, shape.heads, shape.seq_q, shape.dim}, shape.dtype, options.layout);
  FloatBuffer lse("lse", {shape.batch, shape.heads, shape.seq_q});
  Scratch scratch(variant.scratch(shape));
  q.upload(inputs.q);
  k.upload(inputs.k);
  v.upload(inputs.v);
  const AttentionLaunch launch{shape, q.view<true>(), k.view<true>(), v.view<true>(), o.view<false>(), lse.data(), scratch};
  require_supported(variant, launch);

  std::optional<AttentionTruth> own_truth;
  if (options.check && !truth) truth = &own_truth.emplace(shape, inputs);

  Program program;
  program.deterministic = variant.deterministic;
  program.launch = [&] { variant.launch(launch); };
  program.poison = [&] {
    o.poison();
    lse.poison();
    scratch.poison();
  };
  program.download = [&] {
    return std::vector<NamedTensor>{{"o", o.download(), shape.dtype}, {"lse", lse.download(), Dtype::fp32}};
  };
  program.surroundings_intact = [&] {
    return q.guards_intact() && k.guards_intact() && v.guards_intact() && o.surroundings_intact() && lse.guards_intact() &&
           scratch.guards_intact();
  };
  program.judge = [&](const std::vector<NamedTensor>& out) { return truth->judge(out[0].tensor, out[1].tensor); };
  return run_program(program, options);
}

Outcome execute_layer(const AttentionStep& step, const AttentionVariant& variant, const problem::Attention& requested,
                      const LayerInputs& inputs, const ExecuteOptions& options, const LayerTruth* truth) {
  if (!step.linear) throw std::invalid_argument(step.name + " does not carry the whole layer");
  const problem::Attention shape = supported(variant, requested);
  const int width = shape.heads * shape.dim;
  const int tokens = shape.batch * shape.seq_q;
  const FloatBuffer x("x", inputs.x);
  const FloatBuffer in_weight("in_proj_weight", inputs.in_proj_weight), in_bias("in_proj_bias", inputs.in_proj_bias);
  const FloatBuffer out_weight("out_proj_weight", inputs.out_proj_weight), out_bias("out_proj_bias", inputs.out_proj_bias);
  FloatBuffer qkv("qkv", {tokens, 3, width});
  HeadsBuffer o("o", {shape.batch, shape.heads, shape.seq_q, shape.dim}, Dtype::fp32, {.tokens_first = true});  // [tokens, E]
  FloatBuffer lse("lse", {shape.batch, shape.heads, shape.seq_q});
  FloatBuffer y("y", {shape.batch, shape.seq_q, width});
  Scratch scratch(variant.scratch(shape));

  const std::int64_t row = 3 * std::int64_t{width};
  const auto part = [&](int n) {  // Q, K or V within qkv
    return device::AnyHeads<true>{qkv.data() + n * width, shape.seq_q * row, shape.dim, row};
  };
  const auto o_view = o.view<false>();
  const AttentionLaunch attention{shape, part(0), part(1), part(2), o_view, lse.data(), scratch};
  require_supported(variant, attention);

  std::optional<LayerTruth> own_truth;
  if (options.check && !truth) truth = &own_truth.emplace(shape, inputs);

  Program program;
  program.deterministic = variant.deterministic;
  program.launch = [&] {
    step.linear({tokens, width, 3 * width, x.data(), in_weight.data(), in_bias.data(), qkv.data()});
    variant.launch(attention);
    step.linear({tokens, width, width, static_cast<const float*>(o_view.data), out_weight.data(), out_bias.data(), y.data()});
  };
  program.poison = [&] {
    qkv.poison();
    o.poison();
    lse.poison();
    y.poison();
    scratch.poison();
  };
  program.download = [&] {
    return std::vector<NamedTensor>{
        {"o", o.download(), Dtype::fp32}, {"lse", lse.download(), Dtype::fp32}, {"y", y.download(), Dtype::fp32}};
  };
  program.surroundings_intact = [&] {
    const auto intact = [](const auto&... buffers) { return (buffers.guards_intact() && ...); };
    return intact(x, in_weight, in_bias, out_weight, out_bias, qkv, o, lse, y, scratch);
  };
  program.judge = [&](const std::vector<NamedTensor>& out) {
    return truth->judge(out[0].tensor, out[1].tensor, out[2].tensor);
  };
  return run_program(program, options);
}

}  // namespace run
