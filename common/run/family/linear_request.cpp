#include "common/run/family/linear_request.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/run/harness/files.h"
#include "common/run/harness/text.h"

namespace run {
namespace {

namespace fs = std::filesystem;
using problem::Linear;
using problem::Tensor;

std::string flag_of(const problem::LinearField& field) {
  std::string flag = "--" + std::string(field.name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// Calls visit(field, what was typed for it).
template <class Visit>
void each(const LinearFlags& flags, const Visit& visit) {
  for (std::size_t i = 0; i < flags.fields.size(); ++i) visit(problem::linear_fields[i], flags.fields[i]);
}

// What no file fixes.
Linear with_options(Linear shape, const LinearFlags& flags) {
  shape.dtype = flags.dtype.value_or(shape.dtype);
  if (flags.dtype_a) shape.dtype_a = flags.dtype_a;
  if (flags.dtype_c) shape.dtype_c = flags.dtype_c;
  shape.activation = flags.activation.value_or(shape.activation);
  shape.bias |= flags.bias;
  return shape;
}

LinearRequest generated(const LinearFlags& flags, const Linear& defaults, std::uint64_t seed) {
  Linear shape = with_options(defaults, flags);
  each(flags, [&](const problem::LinearField& field, const std::optional<int>& given) {
    if (given) shape.*field.value = *given;
  });
  return {.shape = problem::resolve(shape), .seed = seed, .folder = {}, .inputs = {}};
}

LinearRequest from_folder(const LinearFlags& flags, const Linear& defaults, const fs::path& folder) {
  Linear shape = with_options(defaults, flags);
  problem::LinearInputs in = read_linear_inputs(folder, shape.dtype, shape.dtype_a.value_or(shape.dtype));
  if (flags.bias && !in.bias) throw InputError("--bias: " + (folder / "bias.npy").string() + " is missing");
  shape.bias = in.bias.has_value();
  const auto& a = in.a.shape;
  const auto& b = in.b.shape;
  const bool routed = !in.experts.shape.empty();
  const std::pair<int Linear::*, std::int64_t> fixed[] = {{&Linear::samples, a[0]},
                                                          {&Linear::channels, a[1]},
                                                          {&Linear::weight_samples, b[0]},
                                                          {&Linear::weight_channels, b[1]},
                                                          {&Linear::m, a[2]},
                                                          {&Linear::n, b[2]},
                                                          {&Linear::k, a[3]},
                                                          {&Linear::experts, routed ? b[1] : 0},
                                                          {&Linear::top, routed ? in.experts.shape[1] : 0}};
  each(flags, [&](const problem::LinearField& field, const std::optional<int>& given) {
    const auto* by_file = std::find_if(std::begin(fixed), std::end(fixed), [&](auto f) { return f.first == field.value; });
    if (by_file != std::end(fixed)) {
      shape.*field.value = fixed_by_file(flag_of(field), given, by_file->second, folder);
    } else {
      shape.*field.value = given.value_or(shape.*field.value);
    }
  });
  return {.shape = problem::resolve(shape), .seed = {}, .folder = folder, .inputs = std::move(in)};
}

// An array of so many dimensions, of which leading ones may be missing.
Tensor read_array(const fs::path& file, std::size_t dimensions, std::size_t least, const char* as, problem::Dtype dtype) {
  Tensor tensor = problem::read_npy(file).tensor;
  if (tensor.shape.size() < least || tensor.shape.size() > dimensions) {
    refuse(file, "shape " + problem::to_string(tensor.shape) + "; it must be " + as + ", leading extents of 1 may be missing");
  }
  tensor.shape.insert(tensor.shape.begin(), dimensions - tensor.shape.size(), 1);
  require_extents(file, tensor.shape);
  for (float& x : tensor.values) x = problem::round_to(dtype, x);
  return tensor;
}

// experts.npy and routing.npy, both or none.
void read_routing(const fs::path& folder, problem::LinearInputs& in) {
  const fs::path experts_file = folder / "experts.npy", routing_file = folder / "routing.npy";
  if (!fs::exists(experts_file) && !fs::exists(routing_file)) return;
  for (const fs::path& file : {experts_file, routing_file}) {
    if (!fs::exists(file)) refuse(file, "it is missing; experts.npy and routing.npy go together");
  }
  in.experts = problem::read_npy_integer_array(experts_file);
  in.routing = problem::read_npy(routing_file).tensor;
  const auto& shape = in.experts.shape;
  if (shape.size() != 2 || shape[0] != in.a.shape[2]) {
    refuse(experts_file, "shape " + problem::to_string(shape) + "; it must be [tokens, top], with a.npy's " +
                             std::to_string(in.a.shape[2]) + " tokens");
  }
  require_extents(experts_file, shape);
  if (in.routing.shape != shape) {
    refuse(routing_file,
           "shape " + problem::to_string(in.routing.shape) + "; it must be experts.npy's, " + problem::to_string(shape));
  }
  for (std::int64_t at = 0; at < std::ssize(in.experts.values); ++at) {
    const std::int32_t expert = in.experts.values[at];
    if (expert >= 0 && expert < in.b.shape[1]) continue;
    refuse(experts_file, "token " + std::to_string(at / shape[1]) + ", slot " + std::to_string(at % shape[1]) +
                             " names expert " + std::to_string(expert) + "; b.npy has " + std::to_string(in.b.shape[1]) +
                             " experts, from 0 on");
  }
}

template <class Value, class FromName>
void add_named(CLI::App& app, const std::string& flag, std::optional<Value>& value, FromName from_name,
               const std::string& names, const std::string& help) {
  const auto parse = [=, &value](const std::string& text) {
    value = from_name(text);
    if (!value) throw InputError(flag + ": '" + text + "' is unknown; " + names);
  };
  app.add_option_function<std::string>(flag, parse, help)->type_name("NAME");
}

}  // namespace

void add_linear_flags(CLI::App& app, LinearFlags& flags) {
  for (std::size_t i = 0; i < flags.fields.size(); ++i) {
    const problem::LinearField& field = problem::linear_fields[i];
    add_whole_number(app, flag_of(field), flags.fields[i], field.least, field.help);
  }
  add_dtype(app, flags.dtype);
  add_dtype(app, flags.dtype_a, "--dtype-a",
            "of A: fp32, which is rounded to the weights' type on loading, or that type (default)");
  add_dtype(app, flags.dtype_c, "--dtype-c", "of C: fp32, fp16 or bf16 (default: the weights' type)");
  add_named(app, "--activation", flags.activation, problem::activation_from_name, "none, relu, gelu or silu",
            "of each element of C: none (default), relu, gelu (exact, by erf) or silu");
  app.add_flag("--bias", flags.bias, "add a bias to each row of C; with --input, bias.npy says so");
}

problem::LinearInputs read_linear_inputs(const fs::path& folder, problem::Dtype dtype, problem::Dtype dtype_a) {
  problem::LinearInputs in{read_array(folder / "a.npy", 4, 2, "[samples, channels, m, k]", dtype_a),
                           read_array(folder / "b.npy", 4, 2, "[weight_samples, weight_channels, n, k]", dtype), std::nullopt};
  const auto& a = in.a.shape;
  const auto& b = in.b.shape;
  if (a[3] != b[3]) {
    refuse(folder / "b.npy", "shape " + problem::to_string(b) + " does not go with a.npy's " + problem::to_string(a) +
                                 ": k, the last extent, must be equal");
  }
  read_routing(folder, in);
  const fs::path bias_file = folder / "bias.npy";
  if (!fs::exists(bias_file)) return in;
  in.bias = read_array(bias_file, 3, 1, "[weight_samples, weight_channels, n]", dtype);
  if (!std::equal(in.bias->shape.begin(), in.bias->shape.end(), b.begin())) {
    refuse(bias_file, "shape " + problem::to_string(in.bias->shape) + " does not go with b.npy's " + problem::to_string(b) +
                          ": there must be a number for each row of B");
  }
  return in;
}

LinearRequest make_request(const LinearStep& step, const LinearFlags& flags, const CommonOptions& options) {
  if (options.input) return from_folder(flags, step.default_shape, *options.input);
  return generated(flags, step.default_shape, options.seed.value_or(default_seed));
}

}  // namespace run
