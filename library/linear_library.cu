#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/run/family/any_step.h"
#include "common/run/harness/device.h"
#include "library/borrowed.h"
#include "library/calls.h"
#include "library/linear_library.h"

namespace {

using library::checked;
using library::refuse;
using library::require_array;
using library::Tensor;
using problem::Linear;
using run::LinearVariant;

Linear shape_of(const LinearProblem& p) {
  Linear shape;
  shape.samples = p.samples;
  shape.channels = p.channels;
  shape.weight_samples = p.weight_samples;
  shape.weight_channels = p.weight_channels;
  shape.m = p.m;
  shape.n = p.n;
  shape.k = p.k;
  shape.experts = p.experts;
  shape.top = p.top;
  shape.dtype = library::dtype_of("dtype", p.dtype);
  if (p.dtype_a) shape.dtype_a = library::dtype_of("dtype_a", p.dtype_a);
  if (p.dtype_c) shape.dtype_c = library::dtype_of("dtype_c", p.dtype_c);
  shape.bias = p.bias != nullptr;
  if (p.activation) {
    const auto activation = problem::activation_from_name(p.activation);
    if (!activation) {
      throw std::invalid_argument("activation is '" + std::string(p.activation) + "', which is none of none, relu, gelu, silu");
    }
    shape.activation = *activation;
  }
  return problem::resolve(shape);
}

// The arrays of one launch. Of the caller's memory it refers only to theirs.
struct Operands {
  Linear shape;
  Tensor a, b, c;
  const void* bias;
  const int* expert_ids;
  const float* routing;

  void require() const {
    for (const Tensor* x : {&a, &b, &c}) require_array(x->name, x->data, static_cast<std::size_t>(x->element));
    if (bias) require_array("bias", bias, problem::bytes(shape.dtype));
    if (shape.is_routed()) {
      require_array("expert_ids", expert_ids, sizeof(int));
      require_array("routing", routing, sizeof(float));
    } else if (expert_ids || routing) {
      throw std::invalid_argument(std::string(expert_ids ? "expert_ids" : "routing") + " is given, and experts is 0");
    }
  }
  Operands at(const LinearAddresses& addresses) const {
    if ((addresses.bias == nullptr) != (bias == nullptr)) {
      throw std::invalid_argument(std::string("bias is ") + (addresses.bias ? "given" : "null") +
                                  ", and the program was prepared " + (bias ? "with it" : "without it"));
    }
    Operands o = *this;
    o.a.data = const_cast<void*>(addresses.a);
    o.b.data = const_cast<void*>(addresses.b);
    o.c.data = addresses.c;
    o.bias = addresses.bias;
    o.expert_ids = addresses.expert_ids;
    o.routing = addresses.routing;
    return o;
  }
  run::LinearLaunch launch(const run::DeviceArrays& arrays) const {
    const auto strides = [](const Tensor& x) { return run::LinearStrides{x.strides[0], x.strides[1], x.strides[2]}; };
    return {shape, a.data, b.data, bias, expert_ids, routing, c.data, strides(a), strides(b), strides(c), arrays};
  }
  // The same where kernels find the arrays.
  Operands borrowed(library::Borrowed& memory) const {
    const auto input = [&](const char* name, const auto* data, std::int64_t count, std::size_t element) {
      if (data == nullptr) return data;
      void* bytes = const_cast<void*>(static_cast<const void*>(data));
      return static_cast<decltype(data)>(memory.input(name, library::dense(bytes, count * static_cast<std::int64_t>(element))));
    };
    Operands o = *this;
    o.a.data = memory.input("a", a.bytes());
    o.b.data = memory.input("b", b.bytes());
    o.c.data = memory.output("c", c.bytes());
    o.bias = input("bias", bias, shape.weight_entries() * shape.n, problem::bytes(shape.dtype));
    o.expert_ids = input("expert_ids", expert_ids, shape.pairs(), sizeof(int));
    o.routing = input("routing", routing, shape.pairs(), sizeof(float));
    return o;
  }
};

Operands operands_of(const LinearProblem& p, const Linear& g) {
  const auto tensor = [](const char* name, const LinearTensor& x, std::array<std::int64_t, 3> counts, int columns,
                         problem::Dtype dtype) {
    return Tensor{name,   x.data,  {x.sample_stride, x.channel_stride, x.row_stride},
                  counts, columns, static_cast<std::int64_t>(problem::bytes(dtype))};
  };
  return {g,
          tensor("a", p.a, {g.samples, g.channels, g.m}, g.k, *g.dtype_a),
          tensor("b", p.b, {g.weight_samples, g.weight_channels, g.n}, g.k, g.dtype),
          tensor("c", p.c, {g.samples, g.channels, g.m}, g.n, *g.dtype_c),
          p.bias,
          p.expert_ids,
          p.routing};
}

// Why a device does not run a variant for these arrays, or the variant does not take them; or nothing.
std::optional<std::string> reason_against(const LinearVariant& variant, const Operands& operands, int device) {
  const run::DeviceArrays none{run::Arrays{}};
  if (auto reason = run::refusal(variant.supports, operands.shape)) return reason;
  if (auto reason = run::device_refusal(library::properties_of(device), variant, operands.shape)) return reason;
  return run::refusal(variant.supports, operands.launch(none));
}

// `tuned`, the step's default, requests weights before the launch before has ended. A library cannot know whether that launch
// writes them: a cast, or a copy. `tuned_alone` has the same tiles, and waits.
std::string default_name(const run::LinearStep& step, const Linear& shape, bool constant_weights) {
  const std::string name = step.default_for(shape);
  return name == "tuned" && !constant_weights ? "tuned_alone" : name;
}

const LinearVariant& chosen(const run::LinearStep& step, const char* name, const LinearProblem& problem,
                            const Operands& operands) {
  const std::string wanted_name = name ? name : default_name(step, operands.shape, problem.constant_weights != 0);
  const LinearVariant& wanted = run::variant_named(step, wanted_name);
  const std::optional<std::string> reason = reason_against(wanted, operands, problem.device);
  if (!reason) return wanted;
  if (name == nullptr) {
    for (const std::string& next : step.next_best) {
      const auto& variant = run::variant_named(step, next);
      if (!reason_against(variant, operands, problem.device)) return variant;
    }
  }
  throw std::invalid_argument(wanted.name + " " + *reason);
}

}  // namespace

// A launch changes nothing here, so several threads may launch one program at once.
struct LinearProgram {
  const LinearVariant& variant;
  int device;
  Operands operands;
  std::shared_ptr<const run::Arrays> arrays;  // of scratch memory
  std::size_t scratch_bytes;

  bool launch(const Operands& o, void* scratch, void* stream) const {
    if (scratch_bytes > 0) require_array("scratch", scratch, 256);
    library::Borrowed memory(device, stream);
    const run::DeviceArrays on_device = memory.arrays(arrays, {library::Work::all, nullptr, scratch}, {});
    // Other addresses may be at other multiples of 16 bytes; in the simulator copies begin where the originals do.
    const Operands borrowed = o.borrowed(memory);
    const run::LinearLaunch launch = borrowed.launch(on_device);
    refuse(variant, run::refusal(variant.supports, launch));
    variant.launch(launch);
    memory.finish();
    return true;
  }
};

const char* linear_describe() {
  static const std::string text = library::describe(run::this_step_as<run::LinearStep>()).dump();
  return text.c_str();
}

LinearProgram* linear_prepare(const char* name, const LinearProblem* problem) {
  return checked<LinearProgram*>(nullptr, [&] {
    if (problem == nullptr) throw std::invalid_argument("problem is null");
    const Operands operands = operands_of(*problem, shape_of(*problem));
    operands.require();
    operands.a.require();
    operands.b.require();
    operands.c.require_output();
    const LinearVariant& variant = chosen(run::this_step_as<run::LinearStep>(), name, *problem, operands);
    auto arrays = run::DeviceArrays::listed(variant.scratch_of(operands.shape));
    const std::size_t scratch_bytes = library::sizes_of(*arrays).scratch;
    return new LinearProgram{variant, problem->device, operands, std::move(arrays), scratch_bytes};
  });
}

const char* linear_variant(const LinearProgram* program) { return program ? program->variant.name.c_str() : nullptr; }

std::size_t linear_scratch_bytes(const LinearProgram* program) { return program ? program->scratch_bytes : 0; }

double linear_operations(const LinearProgram* program) {
  return program ? program->operands.shape.flops() : std::numeric_limits<double>::quiet_NaN();
}

bool linear_launch(const LinearProgram* program, void* scratch, void* stream) {
  return checked(false, [&] {
    if (program == nullptr) throw std::invalid_argument("program is null");
    return program->launch(program->operands, scratch, stream);
  });
}

bool linear_launch_on(const LinearProgram* program, const LinearAddresses* addresses, void* scratch, void* stream) {
  return checked(false, [&] {
    if (program == nullptr) throw std::invalid_argument("program is null");
    if (addresses == nullptr) throw std::invalid_argument("addresses is null");
    const Operands operands = program->operands.at(*addresses);
    operands.require();
    return program->launch(operands, scratch, stream);
  });
}

void linear_release(LinearProgram* program) { delete program; }

const char* linear_error() { return library::last_error.c_str(); }
