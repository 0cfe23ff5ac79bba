#include "common/run/family/attention_request.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string_view>

#include "common/problem/attention_options.h"
#include "common/run/family/attention_files.h"
#include "common/run/harness/files.h"

namespace run {
namespace {

using problem::Attention;
using problem::OptionKind;

constexpr std::uint64_t default_dropout_seed = 1;
constexpr int default_block = 128;  // of a sparse mask

// A probability as kernels have it: so many of 256.
int of_256(const std::string& flag, float probability) {
  if (!(probability >= 0 && probability <= 1)) throw InputError(flag + ": it must be a probability, from 0 to less than 1");
  const int n = static_cast<int>(std::lround(probability * 256));
  if (n == 0 && probability > 0) throw InputError(flag + ": it rounds to 0 of 256; the least is 1/512");
  if (n == 256) throw InputError(flag + ": 256 of 256 pairs would be left out, and nothing would be left");
  return n;
}

template <class Option>
bool is_given(const AttentionFlags& flags, Option option) {
  if constexpr (option.kind == OptionKind::on_off) return option.field(flags.options);
  return std::find(flags.given.begin(), flags.given.end(), option.name) != flags.given.end();
}

template <class Option>
void add_flag_of(CLI::App& app, Option option, AttentionFlags& flags) {
  const std::string flag = problem::flag_of(option);
  const auto take = [&flags, option](auto value) {
    option.field(flags.options) = value;
    flags.given.push_back(option.name);
  };
  if constexpr (option.kind == OptionKind::on_off) app.add_flag(flag, option.field(flags.options), option.help);
  if constexpr (option.kind == OptionKind::whole_number) add_whole_number(app, flag, take, 1, option.help);
  if constexpr (option.kind == OptionKind::number) add_number(app, flag, take, option.help);
  if constexpr (option.kind == OptionKind::seed) add_seed(app, flag, take, option.help);
  if constexpr (option.kind == OptionKind::of_256) {
    add_number(
        app, flag, [take, flag](float probability) { take(of_256(flag, probability)); }, option.help);
  }
}

std::vector<std::int32_t> read_sums(const std::filesystem::path& file) {
  if (file.empty()) throw InputError("--cu-seqlens: a file is needed");
  std::vector<std::int32_t> sums = problem::read_npy_integers(file);
  try {
    problem::require_sums(sums);
  } catch (const std::invalid_argument& error) {
    refuse(file, error.what());
  }
  return sums;
}

// The options that no file fixes.
Attention with_options(Attention shape, const AttentionFlags& flags) {
  problem::each(problem::attention_options, [&](auto option) {
    if (is_given(flags, option)) option.field(shape) = option.field(flags.options);
  });
  const bool has_seed = is_given(flags, problem::dropout_seed_option);
  if (has_seed && !is_given(flags, problem::dropout_option)) throw InputError("--dropout-seed: there is no --dropout");
  if (!has_seed) shape.dropout_seed = default_dropout_seed;
  if (shape.dropout == 0) shape.dropout_seed = 0;
  shape.dtype = flags.dtype.value_or(shape.dtype);
  if (flags.cu_seqlens) shape.cu_seqlens = read_sums(*flags.cu_seqlens);
  return shape;
}

}  // namespace

Attention asked_shape(const AttentionFlags& flags, const Attention& defaults) {
  Attention shape = with_options(defaults, flags);
  shape.batch = flags.batch.value_or(defaults.batch);
  shape.heads = flags.heads.value_or(defaults.heads);
  shape.kv_heads = flags.kv_heads.value_or(flags.heads.value_or(defaults.kv_heads));
  shape.seq_q = flags.seq_q.value_or(shape.is_packed() ? shape.cu_seqlens.back() : defaults.seq_q);
  shape.seq_k = flags.seq_k.value_or(flags.seq_q || shape.is_packed() ? shape.seq_q : defaults.seq_k);
  shape.dim = flags.dim.value_or(defaults.dim);
  return problem::resolve(shape);
}

Attention shape_of_files(const AttentionFlags& flags, const Attention& defaults, const std::vector<std::int64_t>& q,
                         const std::vector<std::int64_t>& k, const std::filesystem::path& folder) {
  Attention shape = with_options(defaults, flags);
  shape.batch = fixed_by_file("--batch", flags.batch, q[0], folder);
  shape.heads = fixed_by_file("--heads", flags.heads, q[1], folder);
  shape.kv_heads = fixed_by_file("--kv-heads", flags.kv_heads, k[1], folder);
  shape.seq_q = fixed_by_file("--seq-q", flags.seq_q, q[2], folder);
  shape.seq_k = fixed_by_file("--seq-k", flags.seq_k, k[2], folder);
  shape.dim = fixed_by_file("--dim", flags.dim, q[3], folder);
  return problem::resolve(shape);
}

namespace {

AttentionRequest from_folder(const AttentionFlags& flags, const Attention& defaults, const std::filesystem::path& folder) {
  const std::filesystem::path table_file = folder / "pages.npy";
  const bool paged = std::filesystem::exists(table_file);
  problem::AttentionInputs in = read_attention_inputs(folder, flags.dtype.value_or(defaults.dtype), paged);
  if (!paged) {
    const Attention shape = shape_of_files(flags, defaults, in.q.shape, in.k.shape, folder);
    return {.shape = shape, .seed = {}, .folder = folder, .inputs = std::move(in), .layer = {}};
  }
  const problem::Integers table = problem::read_npy_integer_array(table_file);
  const std::int64_t pages = in.k.shape[0], size = in.k.shape[2];
  if (table.shape.size() != 2 || table.shape[0] != in.q.shape[0] || table.shape[1] < 1) {
    refuse(table_file, "shape " + problem::to_string(table.shape) + "; it must be [batch, pages of an entry]");
  }
  const std::int64_t most = table.shape[1] * size, seq_k = flags.seq_k.value_or(static_cast<int>(most));
  if (seq_k > most || seq_k <= most - size) {
    throw InputError("--seq-k is " + std::to_string(seq_k) + "; " + table_file.string() + " has " +
                     std::to_string(table.shape[1]) + " pages of " + std::to_string(size) + " keys for each batch entry");
  }
  Attention shape = shape_of_files(flags, defaults, in.q.shape, {in.q.shape[0], in.k.shape[1], seq_k, in.k.shape[3]}, folder);
  shape.pages =
      std::make_shared<const problem::Pages>(problem::Pages{static_cast<int>(size), static_cast<int>(pages), table.values});
  return {.shape = shape, .seed = {}, .folder = folder, .inputs = std::move(in), .layer = {}};
}

AttentionRequest from_layer(const AttentionFlags& flags, const CommonOptions& options, const std::filesystem::path& folder) {
  if (options.input) throw InputError("--input contradicts --layer: either has inputs of its own");
  if (options.seed) throw InputError("--seed contradicts --layer: the inputs come from files");
  if (flags.cu_seqlens) throw InputError("--cu-seqlens contradicts --layer: a layer has whole batch entries");
  if (flags.bias || flags.sinks || flags.lengths || flags.page_size)
    throw InputError("--bias, --sinks, --lengths and --page-size contradict --layer: a layer has none");
  if (flags.pattern || flags.block_q || flags.block_k)
    throw InputError("--pattern contradicts --layer: a layer has no sparse mask");
  problem::each(problem::attention_options, [&](auto option) {
    if (option.name == problem::causal_option.name || !is_given(flags, option)) return;
    throw InputError(problem::flag_of(option) + " contradicts --layer: a layer has none");
  });
  if (flags.dtype.value_or(problem::Dtype::fp32) != problem::Dtype::fp32) throw InputError("--layer computes in fp32");
  require_folder("--layer", folder);
  LayerInputs in = read_layer_inputs(folder);
  const std::optional<int> stored_heads = read_layer_heads(folder);
  if (!stored_heads && !flags.heads) throw InputError("--layer: --heads is needed, as there is no layer.json that says it");

  const auto& x = in.x.shape;  // [batch, seq, E]
  Attention shape;
  shape.heads = stored_heads ? fixed_by_file("--heads", flags.heads, *stored_heads, folder / "layer.json") : *flags.heads;
  if (x[2] % shape.heads != 0) {
    throw InputError("--layer: E is " + std::to_string(x[2]) + ", no multiple of " + std::to_string(shape.heads) + " heads");
  }
  shape.batch = fixed_by_file("--batch", flags.batch, x[0], folder);
  shape.kv_heads = fixed_by_file("--kv-heads", flags.kv_heads, shape.heads, folder);
  shape.seq_q = fixed_by_file("--seq-q", flags.seq_q, x[1], folder);
  shape.seq_k = fixed_by_file("--seq-k", flags.seq_k, x[1], folder);
  shape.dim = fixed_by_file("--dim", flags.dim, x[2] / shape.heads, folder);
  shape.causal = flags.options.causal;
  return {.shape = problem::resolve(shape), .seed = {}, .folder = folder, .inputs = {}, .layer = std::move(in)};
}

}  // namespace

void add_shape_flags(CLI::App& app, AttentionFlags& flags) {
  add_whole_number(app, "--batch", flags.batch, 1, "batch entries");
  add_whole_number(app, "--heads", flags.heads, 1, "query heads");
  add_whole_number(app, "--kv-heads", flags.kv_heads, 1, "key/value heads (default: as many as heads)");
  add_whole_number(app, "--seq-q", flags.seq_q, 1, "queries");
  add_whole_number(app, "--seq-k", flags.seq_k, 1, "keys (default: as many as queries)");
  add_whole_number(app, "--dim", flags.dim, 1, "dimensions of a head");
  const auto add = [&](auto option) { add_flag_of(app, option, flags); };
  problem::each(problem::visibility_options, add);
  app.add_option("--cu-seqlens", flags.cu_seqlens,
                 "packed sequences: sums of their lengths, [0, …, seq_q], integers in an .npy file")
      ->type_name("FILE");
  problem::each(problem::dropout_options, add);
  app.add_option(
         "--pattern", flags.pattern,
         "a sparse mask: band:N, sink:S+local:L, random:P, vertical-slash:V+S, …, or several with commas for the heads by "
         "turns")
      ->type_name("NAME:ARGS");
  add_whole_number(app, "--block-q", flags.block_q, 1, "queries of a block of a sparse mask (default 128)");
  add_whole_number(app, "--block-k", flags.block_k, 1, "keys of a block of a sparse mask (default 128)");
  problem::each(problem::score_options, add);
  const auto add_file = [&](const char* flag, auto& path, const char* help) {
    app.add_option(flag, path, help)->type_name("FILE");
  };
  add_file("--bias", flags.bias, "add to scores: [batch, heads, seq_q, seq_k], each but the last may be 1; −∞ hides a key");
  add_file("--sinks", flags.sinks, "a logit more in each softmax, without a value: [heads]");
  add_file("--lengths", flags.lengths, "of a padded cache: how many keys each batch entry has, integers [batch]");
  add_whole_number(app, "--page-size", flags.page_size, 1,
                   "a paged cache: keys of a page (a power of two up to 256); with pages.npy, K and V of --input are in pages");
  add_dtype(app, flags.dtype);
}

void add_attention_flags(CLI::App& app, AttentionFlags& flags) {
  add_shape_flags(app, flags);
  app.add_option("--layer", flags.layer, "run the whole layer in DIR: x.npy, its weights and biases; writes y.npy")
      ->type_name("DIR");
}

void add_backward_flag(CLI::App& app) {
  app.add_flag("--backward")
      ->description("run the variants of the backward pass: dq, dk and dv from q, k, v and do")
      ->disable_flag_override();
}

bool has_backward_flag(int argc, char** argv) {
  const std::string_view flag = "--backward";
  return std::any_of(argv, argv + argc, [&](std::string_view word) {
    return word == flag || (word.starts_with(flag) && word[flag.size()] == '=');  // with a value, too: CLI11 takes "true" alone
  });
}

Attention with_sparse_mask(Attention shape, const AttentionFlags& flags, const CommonOptions& options) {
  const int block_q = flags.block_q.value_or(default_block), block_k = flags.block_k.value_or(default_block);
  if (options.input) shape.sparse = read_sparse_mask(*options.input, shape, block_q, block_k);
  if (shape.sparse && flags.pattern) {
    throw InputError("--pattern contradicts " + options.input->string() + ", which has a sparse mask of its own");
  }
  if (flags.pattern) {
    if (shape.heads > most_heads)
      throw InputError("--heads: a mask is made for at most " + std::to_string(most_heads) + " heads");
    shape.sparse = problem::make_pattern(*flags.pattern, shape, block_q, block_k, options.seed.value_or(default_seed));
  }
  if (!shape.sparse && (flags.block_q || flags.block_k)) {
    throw InputError("--block-q and --block-k: there is no sparse mask (--pattern, or block_mask.npy in --input)");
  }
  return problem::resolve(shape);
}

Attention with_score_arrays(Attention shape, const AttentionFlags& flags, const CommonOptions& options) {
  // The file that a flag names, or that lies beside the inputs; read(file) says what is in it.
  const auto with = [&](const char* flag, const auto& named, const char* file, const auto& read) {
    const bool beside = options.input && std::filesystem::exists(*options.input / file);
    if (named && beside) throw InputError(std::string(flag) + " contradicts " + (*options.input / file).string());
    if (named && named->empty()) throw InputError(std::string(flag) + ": a file is needed");
    if (named || beside) read(named ? *named : *options.input / file);
  };
  with("--bias", flags.bias, "bias.npy", [&](const auto& file) { shape.bias = read_bias(file, shape.dtype); });
  with("--sinks", flags.sinks, "sinks.npy", [&](const auto& file) { shape.sinks = read_sinks(file); });
  with("--lengths", flags.lengths, "lengths.npy", [&](const auto& file) { shape.lengths = problem::read_npy_integers(file); });
  if (flags.page_size && shape.pages && *flags.page_size != shape.pages->size) {
    throw InputError("--page-size contradicts " + (*options.input / "k.npy").string() + ", whose pages have " +
                     std::to_string(shape.pages->size) + " keys");
  }
  if (flags.page_size && !shape.pages) {
    shape.pages = problem::make_pages(shape, *flags.page_size, options.seed.value_or(default_seed));
  }
  return problem::resolve(shape);
}

Attention with_mask(Attention shape, const CommonOptions& options) {
  shape.writes_mask = shape.dropout > 0 && options.output;
  if (shape.writes_mask && options.bench)
    throw InputError("--bench with --output and --dropout: writing the mask would be timed");
  return problem::resolve(shape);
}

AttentionRequest make_request(const AttentionStep& step, const AttentionFlags& flags, const CommonOptions& options) {
  if (flags.layer && !step.linear) throw InputError("--layer: " + step.name + " does not carry the whole layer");
  if (flags.layer) return from_layer(flags, options, *flags.layer);
  AttentionRequest request = options.input ? from_folder(flags, step.default_shape, *options.input)
                                           : AttentionRequest{.shape = asked_shape(flags, step.default_shape),
                                                              .seed = options.seed.value_or(default_seed),
                                                              .folder = {},
                                                              .inputs = {},
                                                              .layer = {}};
  const bool in_pages = request.shape.pages != nullptr;  // K and V of files
  request.shape = with_mask(with_sparse_mask(with_score_arrays(request.shape, flags, options), flags, options), options);
  if (in_pages) {
    request.inputs->k = problem::of_pool(request.inputs->k, request.shape);
    request.inputs->v = problem::of_pool(request.inputs->v, request.shape);
  }
  return request;
}

}  // namespace run
