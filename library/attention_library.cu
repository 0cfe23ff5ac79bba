#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "common/problem/attention_options.h"
#include "common/problem/require.h"
#include "common/run/cli/command.h"
#include "common/run/family/any_step.h"
#include "library/attention_library.h"
#include "library/borrowed.h"
#include "library/calls.h"
#include "library/program.h"

namespace {

using library::checked;
using library::refuse;
using library::require_array;
using library::Tensor;

// Sums of lengths that nobody gave: those of one sequence, as far as a launch looks at them.
std::vector<int> unknown_lengths(const AttentionProblem& p) {
  std::vector<int> sums(static_cast<std::size_t>(p.cu_seqlens_count), 0);
  sums.back() = p.seq_q;
  return sums;
}

// Where the host has no lengths of a cache, its entries have all keys.
std::vector<int> lengths_of(int batch, int seq_k, const int* of_host) {
  if (of_host) return {of_host, of_host + batch};
  return std::vector<int>(static_cast<std::size_t>(batch), seq_k);
}

// The mask as far as the host's memory has it. Bits that nobody gave are 1: a launch does not look at them, but what it may
// need at most is counted by them.
std::shared_ptr<const problem::SparseMask> sparse_mask(const AttentionSparse& s, const problem::Attention& shape) {
  const auto needed = [](const char* name, const void* given) {
    if (given == nullptr) throw std::invalid_argument(std::string(name) + " is null");
  };
  problem::require_extent("block_q", s.block_q);
  problem::require_extent("block_k", s.block_k);
  problem::SparseMask mask;
  mask.block_q = s.block_q;
  mask.block_k = s.block_k;
  mask.batches = s.batches;
  needed("head_type_host", s.head_type_host);
  mask.types.assign(s.head_type_host, s.head_type_host + shape.heads);
  if (mask.has(problem::HeadType::streaming_blocks) || mask.has(problem::HeadType::streaming_tokens)) {
    needed("streaming_host", s.streaming_host);
    needed("streaming", s.streaming);
    for (int h = 0; h < shape.heads; ++h) mask.streaming.push_back({s.streaming_host[2 * h], s.streaming_host[2 * h + 1]});
  }
  if (mask.has(problem::HeadType::block_sparse)) {
    needed("block_mask", s.block_mask);
    if (s.batches != 1 && s.batches != shape.batch) {
      throw std::invalid_argument("batches of block_mask is " + std::to_string(s.batches) + "; it must be 1 or " +
                                  std::to_string(shape.batch));
    }
    const std::size_t words =
        std::size_t{1} * s.batches * shape.heads * problem::query_blocks(mask, shape) * problem::words_of_row(mask, shape);
    mask.live.resize(words, ~0);
    if (s.block_mask_host) std::copy_n(s.block_mask_host, words, mask.live.begin());
  }
  return std::make_shared<const problem::SparseMask>(std::move(mask));
}

// An option, as C has it: an int for a bool, and NaN for a number that is not given.
template <class Value, class Given>
void set(Value& value, Given given) {
  if constexpr (std::is_same_v<Value, bool>) {
    value = given != 0;
  } else if constexpr (std::is_same_v<Value, std::optional<Given>>) {
    if (!std::isnan(given)) value = given;
  } else {
    static_assert(std::is_same_v<Value, Given>);
    value = given;
  }
}

// Of arrays that change scores a launch needs to know which there are, and no values.
void set_score_arrays(problem::Attention& shape, const AttentionProblem& p) {
  const auto without_values = [](std::vector<std::int64_t> extents) {
    problem::Tensor tensor;
    tensor.shape = std::move(extents);
    return std::make_shared<const problem::Tensor>(std::move(tensor));
  };
  if (p.bias.data) shape.bias = without_values({p.batch, p.heads, p.seq_q, p.seq_k});
  if (p.sinks) shape.sinks = without_values({p.heads});
  if (p.lengths_host && !p.lengths) throw std::invalid_argument("lengths_host is given, and lengths is null");
  if (p.lengths) shape.lengths = lengths_of(p.batch, p.seq_k, p.lengths_host);
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
  shape.dtype = library::dtype_of("dtype", p.dtype);
  problem::each(problem::attention_options, [&](auto option) { set(option.field(shape), option.field(p)); });
  if ((p.cu_seqlens == nullptr) != (p.cu_seqlens_count == 0) || (p.cu_seqlens_host && !p.cu_seqlens)) {
    throw std::invalid_argument("cu_seqlens and its count: one is missing");
  }
  if (p.cu_seqlens_host) {
    shape.cu_seqlens.assign(p.cu_seqlens_host, p.cu_seqlens_host + p.cu_seqlens_count);
  } else if (p.cu_seqlens) {
    if (p.cu_seqlens_count < 2) throw std::invalid_argument("cu_seqlens_count must be 2 or more");
    shape.cu_seqlens = unknown_lengths(p);
  }
  shape = problem::resolve(shape);
  set_score_arrays(shape, p);
  if (p.sparse) shape.sparse = sparse_mask(*p.sparse, shape);
  return problem::resolve(shape);
}

// The tensors of a problem, by what they are for. Of the caller's memory it refers only to theirs.
struct Tensors {
  AttentionProblem p;
  std::int64_t element;    // bytes
  AttentionSparse sparse;  // where the problem has one
  bool backward = false;
  AttentionGradients g = {};  // of the backward pass

  Tensor queries(const char* name, const AttentionTensor& tensor) const {
    return {name, tensor.data, strides(tensor), {p.batch, p.heads, p.seq_q}, p.dim, element};
  }
  Tensor keys(const char* name, const AttentionTensor& tensor) const {
    return {name, tensor.data, strides(tensor), {p.batch, p.kv_heads, p.seq_k}, p.dim, element};
  }
  static std::array<std::int64_t, 3> strides(const AttentionTensor& tensor) {
    return {tensor.batch_stride, tensor.head_stride, tensor.row_stride};
  }
  library::Rows lse() const {
    const std::int64_t bytes = std::int64_t{p.batch} * p.heads * p.seq_q * std::int64_t{sizeof(float)};
    return library::dense(p.lse, bytes);
  }
  const void* given(const std::string& array) const {
    if (array == "cu_seqlens") return p.cu_seqlens;
    if (array == "head_type") return sparse.head_type;
    if (array == "bias") return p.bias.data;
    if (array == "sinks") return p.sinks;
    if (array == "lengths") return p.lengths;
    return array == "streaming" ? static_cast<const void*>(sparse.streaming) : sparse.block_mask;
  }
  // visit(tensor, whether kernels write it)
  template <class Visit>
  void each(const Visit& visit) const {
    visit(queries("q", p.q), false);
    visit(keys("k", p.k), false);
    visit(keys("v", p.v), false);
    visit(queries("o", p.o), !backward);
    if (p.bias.data) visit({"bias", p.bias.data, strides(p.bias), {p.batch, p.heads, p.seq_q}, p.seq_k, element}, false);
    if (!backward) return;
    visit(queries("d_o", g.d_o), false);
    visit(queries("dq", g.dq), true);
    visit(keys("dk", g.dk), true);
    visit(keys("dv", g.dv), true);
  }
  // What a launch may change.
  void require_addresses() const {
    each([](const Tensor& x, bool) { require_array(x.name, x.data, static_cast<std::size_t>(x.element)); });
    require_array("lse", p.lse, sizeof(float));
    if (p.cu_seqlens) require_array("cu_seqlens", p.cu_seqlens, sizeof(int));
    if (p.sinks) require_array("sinks", p.sinks, sizeof(float));
    if (p.lengths) require_array("lengths", p.lengths, sizeof(int));
  }
  void require() const {
    require_addresses();
    each([](const Tensor& x, bool written) { written ? x.require_output() : x.require(); });
    if (!p.sparse) return;
    require_array("head_type", sparse.head_type, sizeof(int));
    for (const auto& [name, data] :
         {std::pair<const char*, const void*>{"streaming", sparse.streaming}, {"block_mask", sparse.block_mask}}) {
      if (data) require_array(name, data, sizeof(int));
    }
  }
  Tensors at(const AttentionAddresses& a) const {
    Tensors t = *this;
    t.p.q.data = a.q;
    t.p.k.data = a.k;
    t.p.v.data = a.v;
    t.p.o.data = a.o;
    t.p.lse = a.lse;
    t.g.d_o.data = a.d_o;
    t.g.dq.data = a.dq;
    t.g.dk.data = a.dk;
    t.g.dv.data = a.dv;
    const auto set = [](const char* name, auto& of_program, const auto& address) {
      if ((address == nullptr) != (of_program == nullptr)) {
        throw std::invalid_argument(std::string(name) + " is " + (address ? "given" : "null") +
                                    ", and the program was prepared " + (of_program ? "with it" : "without it"));
      }
      of_program = address;
    };
    set("cu_seqlens", t.p.cu_seqlens, a.cu_seqlens);
    set("bias", t.p.bias.data, a.bias);
    set("sinks", t.p.sinks, a.sinks);
    set("lengths", t.p.lengths, a.lengths);
    if (a.lengths_host && !a.lengths) throw std::invalid_argument("lengths_host is given, and lengths is null");
    t.p.dropout_seed = a.dropout_seed;
    return t;
  }
};

template <bool Const, class Place>
device::AnyHeads<Const> placed(const Tensor& tensor, const Place& place) {
  return {place(tensor, !Const), tensor.strides[0], tensor.strides[1], tensor.strides[2]};
}

// place(tensor, whether kernels write it) is its address, place_lse(the same) that of LSE.
template <class Place, class PlaceLse>
run::AttentionLaunch bind(const Tensors& t, const problem::Attention& shape, const run::DeviceArrays& arrays,
                          const Place& place, const PlaceLse& place_lse) {
  return {shape,
          placed<true>(t.queries("q", t.p.q), place),
          placed<true>(t.keys("k", t.p.k), place),
          placed<true>(t.keys("v", t.p.v), place),
          placed<false>(t.queries("o", t.p.o), place),
          static_cast<float*>(place_lse(true)),
          arrays};
}
template <class Place, class PlaceLse>
run::BackwardLaunch bind(const Tensors& t, const problem::Backward& shape, const run::DeviceArrays& arrays, const Place& place,
                         const PlaceLse& place_lse) {
  return {shape,
          placed<true>(t.queries("q", t.p.q), place),
          placed<true>(t.keys("k", t.p.k), place),
          placed<true>(t.keys("v", t.p.v), place),
          placed<true>(t.queries("o", t.p.o), place),
          placed<true>(t.queries("d_o", t.g.d_o), place),
          static_cast<const float*>(place_lse(false)),
          placed<false>(t.queries("dq", t.g.dq), place),
          placed<false>(t.keys("dk", t.g.dk), place),
          placed<false>(t.keys("dv", t.g.dv), place),
          arrays};
}

// The step's pass of that kind. A step with both is known by its forward pass.
template <class Step>
const Step& step_of(const char* pass) {
  const run::AnyStep step = run::this_step();
  if (const auto* found = std::get_if<const Step*>(&step)) return **found;
  if constexpr (std::is_same_v<Step, run::BackwardStep>) {
    const auto* forward = std::get_if<const run::AttentionStep*>(&step);
    if (forward && (*forward)->backward) return *(*forward)->backward;
  }
  throw std::invalid_argument(std::visit([](const auto* other) { return other->name; }, step) + " has no " + pass + " pass");
}

// A variant and all that it needs to be launched, on any thread and on several at once: a launch changes nothing here.
template <class Problem, class Variant>
struct Prepared {
  const Variant& variant;
  Problem shape;
  Tensors tensors;
  std::shared_ptr<const run::Arrays> arrays;  // of scratch memory, and of what describes the problem

  void launch(const Tensors& t, const library::Memory& given, void* stream) const {
    library::Borrowed memory(t.p.device, stream);
    const run::DeviceArrays on_device =
        memory.arrays(arrays, given, [&](const run::Array& array) { return t.given(array.name); });
    if (given.work == library::Work::plan) {  // which has nothing to do with tensors
      variant.plan(bind(
          t, shape, on_device, [](const Tensor& x, bool) { return x.data; }, [&](bool) -> void* { return t.p.lse; }));
      return memory.finish();
    }
    auto l = bind(
        t, shape, on_device,
        [&](const Tensor& x, bool written) {
          return written ? memory.output(x.name, x.bytes()) : memory.input(x.name, x.bytes());
        },
        [&](bool written) { return written ? memory.output("lse", t.lse()) : memory.input("lse", t.lse()); });
    l.shape.dropout_seed = t.p.dropout_seed;
    refuse(variant, run::refusal(variant.supports, l));  // other addresses may be at other multiples of 16 bytes
    if (given.work == library::Work::all && variant.plan) variant.plan(l);
    variant.launch(l);
    memory.finish();
  }

  void operator()(const AttentionAddresses* addresses, const library::Memory& memory, void* stream) const {
    if (addresses == nullptr) return launch(tensors, memory, stream);
    const Tensors others = tensors.at(*addresses);
    others.require_addresses();
    if (tensors.p.cu_seqlens_host) require_same_sums(addresses->cu_seqlens_host);
    if (addresses->lengths_host) problem::require_lengths(shape, lengths_of(shape.batch, shape.seq_k, addresses->lengths_host));
    launch(others, memory, stream);
  }
  // Scratch memory may have been counted by them.
  void require_same_sums(const int* sums) const {
    if (sums == nullptr) throw std::invalid_argument("cu_seqlens_host is null, and the program was prepared with it");
    if (!std::equal(shape.cu_seqlens.begin(), shape.cu_seqlens.end(), sums)) {
      throw std::invalid_argument("cu_seqlens_host has other sums than those that the program was prepared with");
    }
  }
};

// Those that change scores, with the bias's strides.
run::Arrays score_arrays(const Tensors& t, const problem::Attention& shape) {
  run::Arrays arrays = run::score_arrays(shape);
  for (run::Array& array : arrays) {
    if (array.name == "bias") array.strides = {t.p.bias.batch_stride, t.p.bias.head_stride, t.p.bias.row_stride};
  }
  return arrays;
}

// A program of the variant of that name.
template <class Problem, class Step>  // problem::Attention or problem::Backward
AttentionProgram* prepare(const Step& step, const char* name, const AttentionProblem* problem,
                          const AttentionGradients* gradients = nullptr) {
  if (name == nullptr) throw std::invalid_argument("variant is null");
  if (problem == nullptr) throw std::invalid_argument("problem is null");
  const auto shape = shape_of<Problem>(*problem);
  Tensors tensors{*problem, static_cast<std::int64_t>(problem::bytes(shape.dtype)),
                  problem->sparse ? *problem->sparse : AttentionSparse{}, gradients != nullptr};
  if (gradients) tensors.g = *gradients;
  const std::string called = name;
  const auto& variant = run::variant_named(step, called);
  refuse(variant, run::refusal(variant.supports, shape));
  refuse(variant, run::device_refusal(library::properties_of(problem->device), variant, shape));
  tensors.require();
  const run::Arrays arrays =
      variant.scratch_of(shape) + run::packed_arrays(shape) + run::sparse_arrays(shape) + score_arrays(tensors, shape);
  // Where the caller's rows begin decides, too.
  const run::DeviceArrays none{run::Arrays{}};
  refuse(variant, run::refusal(variant.supports, bind(
                                                     tensors, shape, none, [](const Tensor& x, bool) { return x.data; },
                                                     [](bool) -> void* { return nullptr; })));
  const bool unknown = (problem->cu_seqlens && !problem->cu_seqlens_host) || (problem->lengths && !problem->lengths_host) ||
                       (shape.sparse && !shape.sparse->live.empty() && !problem->sparse->block_mask_host);
  return new AttentionProgram{
      .operations = unknown ? std::numeric_limits<double>::quiet_NaN() : shape.flops(),
      .bytes = library::sizes_of(arrays),
      .has_plan = variant.plan != nullptr,
      .launch = Prepared<Problem, std::decay_t<decltype(variant)>>{variant, shape, tensors, run::DeviceArrays::listed(arrays)}};
}

// Addresses: null for those that it was prepared with.
bool work(const AttentionProgram* program, const AttentionAddresses* addresses, const library::Memory& memory, void* stream) {
  if (program == nullptr) throw std::invalid_argument("program is null");
  if (memory.work == library::Work::all) {
    if (program->bytes.scratch > 0) require_array("scratch", memory.scratch, 256);
  } else {
    if (!program->has_plan) throw std::invalid_argument("the variant makes no plan");
    require_array("plan", memory.plan, 256);
  }
  if (memory.work == library::Work::planned && program->bytes.planned_scratch > 0)
    require_array("scratch", memory.scratch, 256);
  program->launch(addresses, memory, stream);
  return true;
}

template <class Step>
nlohmann::ordered_json described(const Step& step) {
  nlohmann::ordered_json json = library::describe(step);
  if constexpr (std::is_same_v<Step, run::AttentionStep>) {
    if (step.backward) json["backward"] = library::describe(*step.backward);
  }
  return json;
}

const char* type_of(int) { return "int32"; }
const char* type_of(float) { return "float32"; }
const char* type_of(std::uint64_t) { return "uint64"; }

template <class Value>
constexpr bool is_optional(const Value&) {
  return false;
}
template <class Value>
constexpr bool is_optional(const std::optional<Value>&) {
  return true;
}

constexpr const char* kinds[] = {"on_off", "whole_number", "number", "of_256", "seed"};  // OptionKind

nlohmann::ordered_json describe_options() {
  nlohmann::ordered_json options = nlohmann::ordered_json::array();
  const AttentionProblem p{};
  problem::each(problem::attention_options, [&](auto option) {
    const auto& field = option.field(p);
    options.push_back({{"name", option.name},
                       {"kind", kinds[static_cast<int>(option.kind)]},
                       {"type", type_of(field)},
                       {"offset", reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&p)}});
    if (is_optional(option.field(problem::Attention()))) options.back()["optional"] = true;
    if (option.range) options.back().update({{"least", option.least}, {"most", option.most}, {"range", option.range}});
  });
  return options;
}

}  // namespace

AttentionProgram* library::guarded(const std::function<AttentionProgram*()>& make) {
  return checked<AttentionProgram*>(nullptr, make);
}

const char* attention_describe() {
  static const std::string text = std::visit(
      [](const auto* step) {
        nlohmann::ordered_json json = described(*step);
        json["options"] = describe_options();
        return json.dump();
      },
      run::this_step());
  return text.c_str();
}

AttentionProgram* attention_prepare(const char* variant, const AttentionProblem* problem) {
  return library::guarded(
      [&] { return prepare<problem::Attention>(step_of<run::AttentionStep>("forward"), variant, problem); });
}

AttentionProgram* attention_prepare_backward(const char* variant, const AttentionProblem* problem,
                                             const AttentionGradients* gradients) {
  return library::guarded([&] {
    const auto& step = step_of<run::BackwardStep>("backward");
    if (gradients == nullptr) throw std::invalid_argument("gradients is null");
    return prepare<problem::Backward>(step, variant, problem, gradients);
  });
}

std::size_t attention_scratch_bytes(const AttentionProgram* program) { return program ? program->bytes.scratch : 0; }
std::size_t attention_planned_scratch_bytes(const AttentionProgram* program) {
  return program ? program->bytes.planned_scratch : 0;
}
std::size_t attention_plan_bytes(const AttentionProgram* program) {
  return program && program->has_plan ? program->bytes.plan : 0;
}

double attention_operations(const AttentionProgram* program) {
  return program ? program->operations : std::numeric_limits<double>::quiet_NaN();
}

bool attention_launch(const AttentionProgram* program, void* scratch, void* stream) {
  return checked(false, [&] { return work(program, nullptr, {library::Work::all, nullptr, scratch}, stream); });
}

bool attention_launch_on(const AttentionProgram* program, const AttentionAddresses* addresses, void* scratch, void* stream) {
  return checked(false, [&] {
    if (addresses == nullptr) throw std::invalid_argument("addresses is null");
    return work(program, addresses, {library::Work::all, nullptr, scratch}, stream);
  });
}

bool attention_plan(const AttentionProgram* program, const AttentionAddresses* addresses, void* plan, void* stream) {
  return checked(false, [&] { return work(program, addresses, {library::Work::plan, plan, nullptr}, stream); });
}

bool attention_launch_planned(const AttentionProgram* program, const AttentionAddresses* addresses, const void* plan,
                              void* scratch, void* stream) {
  return checked(false, [&] {
    return work(program, addresses, {library::Work::planned, const_cast<void*>(plan), scratch}, stream);
  });
}

void attention_release(AttentionProgram* program) { delete program; }

const char* attention_error() { return library::last_error.c_str(); }
