#include "common/problem/attention_options.h"
#include "common/run/cli/family_main.h"
#include "common/run/family/any_step.h"
#include "common/run/family/attention_request.h"
#include "common/run/harness/text.h"

namespace run {
namespace {

struct AttentionCommand : PlainCommand<AttentionCommand> {
  using Family = AttentionFamily;
  using Request = AttentionRequest;
  using Flags = AttentionFlags;
  using Plain = PlainCommand<AttentionCommand>;

  static void add_flags(CLI::App& app, Flags& flags) { add_attention_flags(app, flags); }

  static std::string text(const Request& request) {
    return problem::to_string(request.shape) + ", scale " + significant(*request.shape.scale, 6) + ", " +
           input_text(request.seed, request.folder);
  }

  static nlohmann::ordered_json problem_json(const problem::Attention& a) { return attention_json(a); }

  // ---- with --layer, the whole layer around each variant ----

  static Program program(const AttentionStep& step, const AttentionVariant& variant, const Request& request) {
    return request.layer ? layer_program(step, variant, request.shape, *request.layer) : Plain::program(step, variant, request);
  }

  static Judge judge(const Request& request) {
    if (!request.layer) return Plain::judge(request);
    const auto truth = std::make_shared<const LayerTruth>(request.shape, *request.layer);
    return [truth](const std::vector<NamedTensor>& outputs) { return judge_layer(*truth, outputs); };
  }

  static Prediction predict(const AttentionVariant& variant, const Request& request) {
    Prediction p = Plain::predict(variant, request);
    if (!request.layer) return p;
    const double rows = static_cast<double>(request.shape.batch) * request.shape.seq_q;
    const double width = static_cast<double>(request.shape.heads) * request.shape.dim;
    p.kernels.insert(p.kernels.begin(), problem::linear_cost("linear (Q, K, V)", rows, width, 3 * width));
    p.kernels.push_back(problem::linear_cost("linear (y)", rows, width, width));
    p.flops += p.kernels.front().flops + p.kernels.back().flops;
    p.scratch_bytes += static_cast<std::size_t>(3 * rows * width) * sizeof(float);
    return p;
  }

  static nlohmann::ordered_json input_json(const Request& request) {
    return run::input_json(request.seed, request.layer ? "layer" : "path", request.folder);
  }

  static void add_flags_of_step(CLI::App& app, const AttentionStep& step) {
    if (step.backward) add_backward_flag(app);
  }

  static std::string list_note(const AttentionStep& step) {
    std::string note;
    if (step.linear) note += "\n--layer DIR runs the whole layer around any of them.\n";
    if (step.backward) note += "\n--backward --list shows the variants of the backward pass.\n";
    return note;
  }
};

}  // namespace

nlohmann::ordered_json attention_json(const problem::Attention& a) {
  nlohmann::ordered_json json = {{"family", "attention"}, {"batch", a.batch}, {"heads", a.heads}, {"kv_heads", a.kv_heads},
                                 {"seq_q", a.seq_q},      {"seq_k", a.seq_k}, {"dim", a.dim}};
  const auto write = [&](auto option) { json[std::string(option.name)] = problem::plain(option.field(a)); };
  problem::each(problem::attention_options, [&](auto option) {
    if (option.json == problem::InJson::always) write(option);
  });
  json["dtype"] = problem::name(a.dtype);
  if (a.is_packed()) json["cu_seqlens"] = a.cu_seqlens;
  if (a.dropout > 0) json["dropout"] = {{"of_256", a.dropout}, {"seed", a.dropout_seed}};
  if (a.sparse) {
    json["sparse"] = {{"block_q", a.sparse->block_q}, {"block_k", a.sparse->block_k}, {"live_pairs", a.live_pairs()}};
    for (const std::int32_t type : a.sparse->types) {
      json["sparse"]["head_types"].push_back(problem::to_string(static_cast<problem::HeadType>(type)));
    }
  }
  problem::each(problem::attention_options, [&](auto option) {
    if (option.json == problem::InJson::if_on && option.is_on(a)) write(option);
  });
  if (a.bias) json["bias"] = a.bias->shape;
  if (a.sinks) json["sinks"] = true;
  if (!a.lengths.empty()) json["lengths"] = a.lengths;
  if (a.pages) json["pages"] = {{"size", a.pages->size}, {"count", a.pages->count}};
  return json;
}

int step_main(int argc, char** argv, const AttentionStep& step) {
  if (step.backward && has_backward_flag(argc, argv)) return step_main(argc, argv, *step.backward);
  return family_main<AttentionCommand>(argc, argv, step);
}

}  // namespace run
