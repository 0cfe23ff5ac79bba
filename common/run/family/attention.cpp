#include "common/run/family/attention.h"

#include <algorithm>

#include "common/problem/attention_options.h"
#include "common/reference/dropout.h"
#include "common/run/family/heads.h"
#include "common/run/harness/text.h"

namespace run {

using problem::Dtype;

namespace {

std::string dims_text(const AttentionSupport& supports) {
  if (supports.dims.empty()) return "any dim up to " + std::to_string(supports.max_dim);
  return "dim " + joined(supports.dims, [](int dim) { return std::to_string(dim); });
}

bool takes_dim(const AttentionSupport& supports, int dim) {
  return supports.dims.empty() ? dim <= supports.max_dim : contains(supports.dims, dim);
}

std::string sparse_text(const AttentionSupport& supports) {
  if (supports.sparse_q.empty()) return "";
  const auto numbers = [](const std::vector<int>& sizes) {
    return joined(sizes, [](int size) { return std::to_string(size); });
  };
  return "; sparse masks, blocks of " + numbers(supports.sparse_q) + " queries by " + numbers(supports.sparse_k) + " keys" +
         (supports.sparse_tokens ? ", heads that stream by token" : "");
}

// The first of these options that the request has and the variant does not take; empty if there is none.
template <class Options>
std::string unsupported(const Options& options, const AttentionSupport& supports, const problem::Attention& shape) {
  std::string what;
  problem::each(options, [&](auto option) {
    if constexpr (option.some_variants) {
      if (what.empty() && option.is_on(shape) && !option.field(supports)) what = option.refused;
    }
  });
  return what;
}

template <class Options>
std::string listed(const Options& options, const AttentionSupport& supports) {
  std::string text;
  problem::each(options, [&](auto option) {
    if constexpr (option.some_variants) text += option.field(supports) ? option.listed : option.not_listed;
  });
  return text;
}

// The first property of the request that is not supported; empty if there is none.
std::string unsupported(const AttentionSupport& supports, const problem::Attention& shape) {
  if (!contains(supports.dtypes, shape.dtype)) return std::string(problem::name(shape.dtype));
  if (!takes_dim(supports, shape.dim)) return "dim " + std::to_string(shape.dim);
  if (auto what = unsupported(problem::visibility_options, supports, shape); !what.empty()) return what;
  if (shape.is_packed() && !supports.packed) return "packed sequences (cu-seqlens)";
  if (auto what = unsupported(problem::dropout_options, supports, shape); !what.empty()) return what;
  if (shape.dropout > 0 && shape.is_packed() && !supports.packed_dropout) return "dropout with packed sequences";
  if (shape.sparse && supports.sparse_q.empty()) return "a sparse mask";
  if (shape.sparse && !contains(supports.sparse_q, shape.sparse->block_q)) {
    return "blocks of " + std::to_string(shape.sparse->block_q) + " queries";
  }
  if (shape.sparse && !contains(supports.sparse_k, shape.sparse->block_k)) {
    return "blocks of " + std::to_string(shape.sparse->block_k) + " keys";
  }
  if (shape.sparse && shape.sparse->has(problem::HeadType::streaming_tokens) && !supports.sparse_tokens) {
    return "heads that stream by token";
  }
  if (shape.kv_heads < shape.heads && !supports.grouped_heads) return "fewer kv-heads than heads";
  if (auto what = unsupported(problem::score_options, supports, shape); !what.empty()) return what;
  if (shape.bias && !supports.bias) return "a bias";
  if (shape.sinks && !supports.sinks) return "sinks";
  if (!shape.lengths.empty() && !supports.lengths) return "lengths of a padded cache";
  if (shape.pages && !supports.pages) return "a paged cache";
  if (shape.batch > supports.max_batch) return "a batch beyond " + std::to_string(supports.max_batch);
  if (shape.heads > supports.max_heads) return "more than " + std::to_string(supports.max_heads) + " heads";
  return supports.beyond ? supports.beyond(shape) : "";
}

std::string refused(const std::string& what, const AttentionSupport& supports) {
  return "does not support " + what + "; it supports " + to_string(supports);
}

}  // namespace

std::string to_string(const AttentionSupport& supports) {
  return joined(supports.dtypes, problem::name) + "; " + dims_text(supports) + "; " +
         listed(problem::visibility_options, supports) + "; any length" + (supports.packed ? "; packed sequences" : "") +
         listed(problem::dropout_options, supports) + (supports.packed_dropout ? ", of packed sequences, too" : "") +
         sparse_text(supports) + listed(problem::score_options, supports) + (supports.bias ? "; bias" : "") +
         (supports.sinks ? "; sinks" : "") + (supports.lengths ? "; lengths of a padded cache" : "") +
         (supports.pages ? "; paged caches" : "") + (supports.grouped_heads ? "; grouped heads" : "; kv-heads = heads") +
         (supports.row_alignment > 1 ? "; rows at multiples of " + std::to_string(supports.row_alignment) + " bytes" : "");
}

std::optional<std::string> refusal(const AttentionSupport& supports, const problem::Attention& shape) {
  const std::string what = unsupported(supports, shape);
  if (what.empty()) return std::nullopt;
  return refused(what, supports);
}

std::optional<std::string> refusal_of_rows(const AttentionSupport& supports, bool aligned, std::int64_t row_stride) {
  if (!aligned) {
    return refused("rows that begin elsewhere than at multiples of " + std::to_string(supports.row_alignment) + " bytes",
                   supports);
  }
  if (row_stride > supports.max_row_stride) {
    return refused("rows that are " + std::to_string(row_stride) + " elements apart, which is more than " +
                       std::to_string(supports.max_row_stride),
                   supports);
  }
  return std::nullopt;
}

std::optional<std::string> refusal(const AttentionSupport& supports, const AttentionLaunch& launch) {
  const auto element = static_cast<std::int64_t>(problem::bytes(launch.shape.dtype));
  const auto fits = [&](const auto& x) { return has_rows_at(x, supports.row_alignment, element); };
  const int seq_q = launch.shape.seq_q, seq_k = launch.shape.seq_k;
  return refusal_of_rows(supports, fits(launch.q) && fits(launch.k) && fits(launch.v) && fits(launch.o),
                         std::max({row_distance(launch.q, seq_q), row_distance(launch.k, seq_k), row_distance(launch.v, seq_k),
                                   row_distance(launch.o, seq_q)}));
}

// ---- arrays ----

Arrays packed_arrays(const problem::Attention& a) {
  if (!a.is_packed()) return {};
  return {input("cu_seqlens", Element::int32(), {static_cast<std::int64_t>(a.cu_seqlens.size())}),
          of_plan("first_token", Element::int32(), {a.seq_q}), of_plan("end_token", Element::int32(), {a.seq_q})};
}

std::vector<Given> given_packed(const problem::Attention& a) {
  if (!a.is_packed()) return {};
  return {{.name = "cu_seqlens", .integers = a.cu_seqlens}};
}

Arrays sparse_arrays(const problem::Attention& a) {
  if (!a.sparse) return {};
  const problem::SparseMask& mask = *a.sparse;
  return {optional_input("block_mask", Element::int32(),
                         {mask.batches, a.heads, problem::query_blocks(mask, a), problem::words_of_row(mask, a)}),
          input("head_type", Element::int32(), {a.heads}), optional_input("streaming", Element::int32(), {a.heads, 2})};
}

std::vector<Given> given_sparse(const problem::Attention& a) {
  if (!a.sparse) return {};
  const problem::SparseMask& mask = *a.sparse;
  std::vector<Given> given = {{.name = "head_type", .integers = mask.types}};
  if (!mask.live.empty()) given.push_back({.name = "block_mask", .integers = mask.live});
  if (!mask.streaming.empty()) {
    given.push_back({.name = "streaming", .integers = {&mask.streaming.front().sink, 2 * mask.streaming.size()}});
  }
  return given;
}

Arrays score_arrays(const problem::Attention& a) {
  Arrays arrays;
  if (a.bias) arrays = arrays + Arrays{input("bias", a.dtype, a.bias->shape)};
  if (a.sinks) arrays = arrays + Arrays{input("sinks", Dtype::fp32, {a.heads})};
  if (!a.lengths.empty()) arrays = arrays + Arrays{input("lengths", Element::int32(), {a.batch})};
  if (a.pages) arrays = arrays + Arrays{input("pages", Element::int32(), {a.batch, problem::columns_of(*a.pages, a)})};
  return arrays;
}

std::vector<Given> given_scores(const problem::Attention& a) {
  std::vector<Given> given;
  if (a.bias) given.push_back({"bias", a.bias.get()});
  if (a.sinks) given.push_back({"sinks", a.sinks.get()});
  if (!a.lengths.empty()) given.push_back({.name = "lengths", .integers = a.lengths});
  if (a.pages) given.push_back({.name = "pages", .integers = a.pages->table});
  return given;
}

Arrays mask_arrays(const problem::Attention& a) {
  if (!a.writes_mask) return {};
  return {output("mask", Dtype::fp16, {a.batch, a.heads, a.seq_q, a.seq_k})};
}

std::vector<check::TensorVerdict> judge_mask(const problem::Attention& a, const std::vector<NamedTensor>& outputs) {
  if (!a.writes_mask) return {};
  const reference::AttentionSpec spec = spec_of(a);
  check::TensorVerdict verdict;
  verdict.name = "mask";
  verdict.max_error = verdict.max_baseline_error = verdict.worst_ratio = verdict.mean_error = verdict.mean_allowed = 0;
  const float* kept = tensor_of(outputs, "mask").values.data();
  for (const reference::Row& row : reference::all_rows(spec)) {
    for (int j = 0; j < a.seq_k; ++j, ++kept) {
      const bool expected = reference::kept_weight(spec, row.batch, row.head, row.query, j) > 0;
      if (!verdict.pass || *kept == (expected ? 1.0f : 0.0f)) continue;
      verdict.pass = false;
      verdict.reason = "mask: " + to_string(row) + ", key " + std::to_string(j) + " is " + std::to_string(*kept) +
                       " and must be " + (expected ? "1" : "0");
    }
    ++verdict.rows_checked;
  }
  return {verdict};
}

Arrays AttentionFamily::arrays(const Problem& a, Layout layout) {
  const std::int64_t entries = a.pages ? a.pages->count : a.batch, rows = a.pages ? a.pages->size : a.seq_k;
  const std::vector<std::int64_t> key_rows = {entries, a.kv_heads, rows, a.dim};
  const auto queries = heads_strides(a.heads, a.seq_q, a.dim, layout), keys = heads_strides(a.kv_heads, rows, a.dim, layout);
  return Arrays{input("q", a.dtype, {a.batch, a.heads, a.seq_q, a.dim}, queries), input("k", a.dtype, key_rows, keys),
                input("v", a.dtype, key_rows, keys), output("o", a.dtype, {a.batch, a.heads, a.seq_q, a.dim}, queries),
                output("lse", Dtype::fp32, {a.batch, a.heads, a.seq_q})} +
         packed_arrays(a) + sparse_arrays(a) + score_arrays(a) + mask_arrays(a);
}

std::vector<Given> AttentionFamily::given(const Problem& a, const Inputs& in) {
  std::vector<Given> given = given_packed(a);
  for (Given& array : given_sparse(a)) given.push_back(std::move(array));
  for (Given& array : given_scores(a)) given.push_back(std::move(array));
  const auto keys = [&](const char* name, const problem::Tensor& tensor) -> Given {
    if (!a.pages) return {name, &tensor};
    const auto pool = std::make_shared<const problem::Tensor>(problem::to_pool(tensor, a));
    return {.name = name, .values = pool.get(), .own = pool};
  };
  given.insert(given.begin(), {{"q", &in.q}, keys("k", in.k), keys("v", in.v)});
  return given;
}

AttentionLaunch AttentionFamily::bind(const Problem& a, const DeviceArrays& arrays) {
  return {a,
          heads_of<true>(arrays, "q"),
          heads_of<true>(arrays, "k"),
          heads_of<true>(arrays, "v"),
          heads_of<false>(arrays, "o"),
          arrays.get<float>("lse"),
          arrays};
}

std::vector<check::TensorVerdict> AttentionFamily::judge(const Truth& truth, const std::vector<NamedTensor>& outputs) {
  auto verdicts = truth.judge(tensor_of(outputs, "o"), tensor_of(outputs, "lse"));
  for (check::TensorVerdict& mask : judge_mask(truth.shape(), outputs)) verdicts.push_back(std::move(mask));
  return verdicts;
}

Program layer_program(const AttentionStep& step, const AttentionVariant& variant, const problem::Attention& a,
                      const LayerInputs& inputs) {
  const std::int64_t width = std::int64_t{a.heads} * a.dim, row = 3 * width;
  const std::int64_t tokens = std::int64_t{a.batch} * a.seq_q;
  const Array qkv = scratch("qkv", Dtype::fp32, {tokens, 3, width});
  const auto part = [&](const char* name, int n) {  // Q, K or V within qkv
    return view(name, qkv, n * width, {a.batch, a.heads, a.seq_q, a.dim}, {a.seq_q * row, a.dim, row});
  };
  const Arrays arrays = {input("x", Dtype::fp32, {a.batch, a.seq_q, width}),
                         input("in_proj_weight", Dtype::fp32, {row, width}),
                         input("in_proj_bias", Dtype::fp32, {row}),
                         input("out_proj_weight", Dtype::fp32, {width, width}),
                         input("out_proj_bias", Dtype::fp32, {width}),
                         qkv,
                         part("q", 0),
                         part("k", 1),
                         part("v", 2),
                         output("o", Dtype::fp32, {a.batch, a.heads, a.seq_q, a.dim},
                                heads_strides(a.heads, a.seq_q, a.dim, {.tokens_first = true})),  // [tokens, E]
                         output("lse", Dtype::fp32, {a.batch, a.heads, a.seq_q}),
                         output("y", Dtype::fp32, {a.batch, a.seq_q, width})};
  const auto given = [&inputs] {
    return std::vector<Given>{{"x", &inputs.x},
                              {"in_proj_weight", &inputs.in_proj_weight},
                              {"in_proj_bias", &inputs.in_proj_bias},
                              {"out_proj_weight", &inputs.out_proj_weight},
                              {"out_proj_bias", &inputs.out_proj_bias}};
  };
  const auto bind = [&step, &variant, a, tokens, width](const DeviceArrays& on_device) -> Launches {
    const AttentionLaunch attention = AttentionFamily::bind(a, on_device);
    require_supported(variant, attention);
    const auto get = [&](const char* name) { return on_device.get<float>(name); };
    const int rows = static_cast<int>(tokens), e = static_cast<int>(width);
    const ProjectionLaunch in{rows, e, 3 * e, get("x"), get("in_proj_weight"), get("in_proj_bias"), get("qkv")};
    const ProjectionLaunch out{rows, e, e, get("o"), get("out_proj_weight"), get("out_proj_bias"), get("y")};
    return {.plan = nullptr, .launch = [&step, &variant, attention, in, out] {
              step.linear(in);
              variant.launch(attention);
              step.linear(out);
            }};
  };
  return {arrays + variant.scratch_of(a), given, bind, variant.deterministic};
}

std::vector<check::TensorVerdict> judge_layer(const LayerTruth& truth, const std::vector<NamedTensor>& outputs) {
  return truth.judge(tensor_of(outputs, "o"), tensor_of(outputs, "lse"), tensor_of(outputs, "y"));
}

Outcome execute_layer(const AttentionStep& step, const AttentionVariant& variant, const problem::Attention& requested,
                      const LayerInputs& inputs, const ExecuteOptions& options, const LayerTruth* truth) {
  if (!step.linear) throw std::invalid_argument(step.name + " does not carry the whole layer");
  const problem::Attention a = problem::resolve(requested);
  require_supported(variant, a);
  std::optional<LayerTruth> own;
  if (options.check && !truth) truth = &own.emplace(a, inputs);
  const Judge judge = [truth](const std::vector<NamedTensor>& outputs) { return judge_layer(*truth, outputs); };
  return run_program(layer_program(step, variant, a, inputs), judge, options);
}

}  // namespace run
